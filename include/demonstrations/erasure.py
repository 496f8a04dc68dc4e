"""`sluice demo-erasure`: erases one member of a made-up gym within minutes and proves it, in a lake of its own, without Airflow.

It prints rows before and after, what each step did, and what the scan found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from sluice.cli.printing import print_rows
from sluice.declare.assembly import loading
from sluice.erasure.request_record import list_erasure_requests
from sluice.errors import SluiceError
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import ERASE, OPTIMIZE
from sluice.printable import count_noun, format_size
from sluice.runs import job, run_ledger
from sluice.settings import Settings, build_root_settings, require_known_pipeline
from sluice.spark_process import build_spark_environment

if TYPE_CHECKING:
    from residue import Hit


RETAIN = "1 minute"
"""The retention, in place of the 7 days of production."""

KIND = "user_id"
"""The kind of identifier by which the request names the member."""


def demonstrate_erasure(told: Settings, console: Console, name: str = "gym", days: int = 2, scale: float = 0.15) -> None:
    """Land, run, ask, erase, wait, prove. Raises SluiceError unless this ends in a certificate that says PASS.

    The folder .sluice/demo-erasure is emptied first, and kept afterwards for inspection.
    """
    require_known_pipeline(told, name)
    settings = _make_demo_checkout(told)
    with _redirect_jvm_output(settings.root / "spark.log"):
        _run_demonstration(settings, console, name, days, scale)


def _run_demonstration(settings: Settings, console: Console, name: str, days: int, scale: float) -> None:
    console.print(f"A gym of made-up members, in {settings.root}. On two cores this takes some minutes.", soft_wrap=True)
    console.print(
        f"Removed files are kept for {RETAIN} here; in production `retain` in pipeline.py says how long, 7 days by default."
    )
    _land_and_run(settings, console, name, days, scale)
    records = PipelineRecords(settings, name)
    member = _choose_member(records)
    tables = count_member_rows(records, member)
    _print_title(console, "The request")
    request = _request_erasure(records, console, member)
    lake = load_pipeline_lake(settings, name)
    looked = [scan_for_request(lake, request, "before the erasure, by the number alone")]
    _print_title(console, "The rows leave every table, view, quarantine, file and state")
    console.print(f"$ sluice erase run {name}")
    first = _run_erasure(records, console, request)
    print_erasure_steps(records, request)
    print_member_rows(tables, count_member_rows(records, member))
    looked.append(scan_for_request(lake, request, "logically erased, by all identifiers"))
    print_scan_summaries(looked)
    _wait_for_retention(console, first)
    _print_title(console, "The bytes go, and a scan of every byte says whether they did")
    console.print(f"$ sluice erase run {name}")
    _run_erasure(records, console, request)
    looked.append(scan_for_request(lake, request, "physically erased"))
    print_scan_summaries(looked)
    _print_final_certificate(records, console, request)


@contextmanager
def _redirect_jvm_output(log: Path) -> Iterator[None]:
    """Redirect the JVM's output, a line for each VACUUM, to a file: the JVM inherits the descriptors, not Python's streams."""
    streams, descriptors = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2))
    with log.open("ab") as file, os.fdopen(os.dup(1), "w", buffering=1) as shown:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        sys.stdout = shown
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            for number, descriptor in zip((1, 2), descriptors, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)


def _make_demo_checkout(told: Settings) -> Settings:
    """The settings of a separate checkout, made of links, so that the scan does not search what other runs left on this machine."""
    folder = told.state / "demo-erasure"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / ".sluice").mkdir(parents=True)
    for name, code in told.code_folders.items():
        (folder / name).symlink_to(code)
    (folder / ".sluice" / "jars").symlink_to(told.state / "jars")
    return replace(told, **build_root_settings(folder), root=folder, secrets_given=None, retain=RETAIN, erasure_approval=False)


def _land_and_run(settings: Settings, console: Console, name: str, days: int, scale: float) -> None:
    """Make two runs, so that tables have histories, and merge files between them, so that there are removed ones."""
    pipeline = loading.load_pipeline_declaration(settings, name)
    maker, layers = loading.load_delivery_maker(pipeline), list(pipeline.layer_names)
    for title, wanted, stages in (("First days", days, [*layers, OPTIMIZE.name]), ("One more day", 1, layers)):
        _print_title(console, title)
        landed = loading.make_deliveries(settings, name, maker, {"days": wanted, "scale": scale})
        console.print(f"Landed {count_noun(landed.files, 'file')}, up to {landed.until}.")
        for stage in stages:
            _run_demo_stage(settings, console, name, stage)


def _run_demo_stage(settings: Settings, console: Console, name: str, stage: str) -> None:
    started = time.monotonic()
    report = job.run_recorded_stage(settings, job.JobRequest(name, stage))
    moved = sum(flow["rows_out"] or 0 for flow in report["flows"])
    console.print(f"  {stage:<20} {moved:>7,} rows {time.monotonic() - started:>6.0f} s")


def _choose_member(records: PipelineRecords) -> str:
    """The member who is in most tables: of those with workouts, the one with the most."""
    known = run_ledger.read_table_rows(records, "completed_workouts")
    counts: dict[str, int] = {}
    for row in known:
        counts[str(row[KIND])] = counts.get(str(row[KIND]), 0) + 1
    owners = {str(row[KIND]) for row in run_ledger.read_table_rows(records, "memberships")}
    able = [member for member in counts if member in owners]
    if not able:
        raise SluiceError("The made-up gym has no member with a device and a workout in so few days.")
    return max(able, key=lambda member: (counts[member], member))


def count_member_rows(records: PipelineRecords, member: str) -> dict[str, int]:
    """How many rows of a member each table has, by the member's number and devices, as a query would return them."""
    devices = {str(row["device_id"]) for row in run_ledger.read_table_rows(records, "memberships") if str(row[KIND]) == member}
    wanted = {KIND: {member}, "device_id": devices}
    found = {}
    for entry in run_ledger.list_pipeline_tables(records):
        if entry["layer"] == "quarantine":
            continue
        rows = run_ledger.read_table_rows(records, entry["table"])
        found[entry["table"]] = sum(any(str(row.get(column)) in values for column, values in wanted.items()) for row in rows)
    return found


def _request_erasure(records: PipelineRecords, console: Console, member: str) -> str:
    """Make the request like any user: with the identifier on standard input only."""
    words = ["erase", "request", records.pipeline, "--identifier", KIND]
    console.print(f"$ sluice {' '.join(words)} < identifiers.txt")
    done = subprocess.run(
        [sys.executable, "-m", "sluice.cli", *words],
        input=f"{member}\n",
        env=_demo_environment(records.settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SluiceError(f"The request was refused: {done.stderr.strip()}")
    console.print(done.stdout.rstrip(), highlight=False)
    return list_erasure_requests(records)[-1].request


def _demo_environment(settings: Settings) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "SLUICE_SECRETS_GIVEN"}
    return {**inherited, **build_spark_environment(settings)}


def _run_erasure(records: PipelineRecords, console: Console, request: str) -> Mapping[str, Any]:
    from sluice.runs import erasure_jobs, summary

    started = time.monotonic()
    report = erasure_jobs.run_erase_stage(records.settings, job.JobRequest(records.pipeline, ERASE.name), [request])
    for row in report["requests"]:
        console.print(f"{summary.describe_request_standing(row)} ({time.monotonic() - started:.0f} s)", highlight=False)
    return report


def _wait_for_retention(console: Console, report: Mapping[str, Any]) -> None:
    """Wait until the bytes may go."""
    until = max(datetime.fromisoformat(row["physical_due_at"]) for row in report["requests"])
    seconds = (until - datetime.now(UTC)).total_seconds() + 1
    if seconds > 0:
        console.print(f"\nUntil then readers of earlier versions are not disturbed. Waiting for {seconds:.0f} s ...")
        time.sleep(seconds)


def _print_final_certificate(records: PipelineRecords, console: Console, request: str) -> None:
    from sluice.erasure.proof import checking

    latest = checking.read_verified_certificate(records, request)
    if latest is None:
        raise SluiceError("No certificate was issued. What was done: sluice erase status")
    page = latest.path.with_suffix(".html")
    print_certificate_summary(console, latest.record)
    console.print(f"\nCertificate   {latest.path}", highlight=False, soft_wrap=True)
    console.print(f"To be read    {page}", highlight=False, soft_wrap=True)
    if latest.verdict != "PASS":
        raise SluiceError(f"The certificate says {latest.verdict}.")


def _print_title(console: Console, title: str) -> None:
    console.print(f"\n{title}", style="bold")


def print_member_rows(before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Print how many rows of the person a query returns, before and after."""
    rows = [{"table": name, "before": count, "after": after.get(name, 0)} for name, count in before.items() if count]
    print_rows(rows, ("table", "before", "after"), "Rows of the member, as a query sees them")


def print_erasure_steps(records: PipelineRecords, request: str) -> None:
    """Print a request's steps from the erasure ledger, one a line."""
    from sluice.erasure import erasure_ledger

    steps: dict[str, dict[str, Any]] = {}
    for done in erasure_ledger.read_erasure_ledger(records):
        if done.request == request:
            step = steps.setdefault(done.step, {"step": done.step, "places": 0, "rows": 0, "files": 0})
            step["places"] += 1
            step["rows"] += done.rows or 0
            step["files"] += done.files or 0
    print_rows(list(steps.values()), ("step", "places", "rows", "files"), "What was done, by the erasure ledger")


@dataclass(frozen=True)
class ScanSummary:
    """What one scan found: hits of the person and of the canary, in how many files, and how much was read."""

    when: str
    person: int
    person_files: int
    canary: int
    canary_files: int
    files: int
    bytes: int
    seconds: float


def scan_for_request(lake: PipelineLake, request: str, when: str) -> ScanSummary:
    """Scan every byte below the pipeline's roots for a request's person, as the certificate's scan does."""
    from sluice.erasure import request_record
    from sluice.erasure.proof import sought

    asked = request_record.read_erasure_request(lake.records, request)
    found = sought.scan_all_roots(lake, sought.collect_sought_needles(lake, [asked]))
    person, control = _count_hits(found.of_person()), _count_hits(found.of_control())
    return ScanSummary(when, *person, *control, found.files, found.bytes, round(found.seconds, 1))


def _count_hits(hits: Sequence[Hit]) -> tuple[int, int]:
    """The number of hits, and of files with hits."""
    return sum(hit.times for hit in hits), len({(hit.root, hit.path) for hit in hits})


def print_scan_summaries(looked: Sequence[ScanSummary]) -> None:
    """Print what the scans found, a line each. The erasure itself plants the canary, so a scan before it cannot find one."""
    rows = [
        {
            "every byte, scanned": one.when,
            "hits of the member": one.person,
            "in files": one.person_files,
            "hits of the canary": one.canary,
            "in its files": one.canary_files,
            "files": one.files,
            "size": format_size(one.bytes),
            "s": one.seconds,
        }
        for one in looked
    ]
    print_rows(rows, tuple(rows[0]), "What the scans found")


def print_certificate_summary(console: Console, record: Mapping[str, Any]) -> None:
    """Print a summary of a certificate."""
    before, now = record["control"]["before"] or {}, record["control"]["now"]
    stores = [
        {"kind of store": name, "planted, found": count, "found now of another": now.get(name)} for name, count in before.items()
    ]
    print_rows(
        stores,
        ("kind of store", "planted, found", "found now of another"),
        "The control: a made-up person in every kind of store",
    )
    console.print(f"After the erasure it was found {count_noun(record['control']['after'], 'time')}.")
    console.print("\nThe certificate", style="bold")
    rows = {
        "verdict": record["verdict"],
        "no query returns the person": record["stamps"]["logical"]["verdict"],
        "no byte holds the person": record["stamps"]["physical"]["verdict"],
        "the control": f"{record['control']['verdict']}, {record['control']['why']}",
        "forms looked for": sum(record["needles"].values()),
        "read": f"{count_noun(record['files'], 'file')}, {format_size(record['bytes'])}, by {count_noun(len(record['decoders']), 'decoder')}",
        "not decoded": len(record["stamps"]["physical"]["unread"]),
        "exceptions": len(record["exceptions"]),
    }
    for name, value in rows.items():
        console.print(f"  {name:<30} {value}", highlight=False)
