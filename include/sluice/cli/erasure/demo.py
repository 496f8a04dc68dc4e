"""`sluice demo-erasure`: one member of a made-up gym is erased within minutes, and what proves it. In a lake of its own, without Airflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from sluice.cli.erasure.demo_report import look, print_certificate, print_looked, print_steps, print_tables
from sluice.declare.assembly import loading
from sluice.errors import SluiceError
from sluice.runs import due, job, ledger
from sluice.settings import Settings, known_pipeline

RETAIN = "1 minute"
"""What stands in for the 7 days of production."""

KIND = "user_id"
"""The kind of identifier that the member is asked for by."""

_CODE = ("include", "spark_jobs", "environments")
PLACES = ("lake", "landing", "secrets", "restricted", "truth", "vault", "released")


def demo(told: Settings, console: Console, name: str = "gym", days: int = 2, scale: float = 0.15) -> None:
    """Land, run, ask, erase, wait, prove. Raises SluiceError where that does not end in a certificate that says PASS.

    The folder .sluice/demo-erasure is emptied first, and left to be looked at.
    """
    known_pipeline(told, name)
    settings = _settings(told)
    with _apart(settings.root / "spark.log"):
        _demo(settings, console, name, days, scale)


def _demo(settings: Settings, console: Console, name: str, days: int, scale: float) -> None:
    console.print(f"A gym of made-up members, in {settings.root}. On two cores this takes some minutes.", soft_wrap=True)
    console.print(
        f"Removed files are kept for {RETAIN} here; in production that is `retain` in pipeline.py, 7 days unless said otherwise."
    )
    _land_and_run(settings, console, name, days, scale)
    member = _a_member(settings, name)
    tables = rows_of(settings, name, member)
    _say(console, "The request")
    request = _ask(settings, console, name, member)
    graph = loading.load(settings, name)
    looked = [look(settings, graph, request, "before the erasure, by the number alone")]
    _say(console, "The rows leave every table, view, quarantine, file and state")
    console.print(f"$ sluice erase run {name}")
    first = _erase(settings, console, name, request)
    print_steps(settings, name, request)
    print_tables(tables, rows_of(settings, name, member))
    looked.append(look(settings, graph, request, "logically erased, by all identifiers"))
    print_looked(looked)
    _wait(console, first)
    _say(console, "The bytes go, and a scan of every byte says whether they did")
    console.print(f"$ sluice erase run {name}")
    _erase(settings, console, name, request)
    looked.append(look(settings, graph, request, "physically erased"))
    print_looked(looked)
    _conclude(settings, console, name, request)


@contextmanager
def _apart(log: Path) -> Iterator[None]:
    """Let what the JVM prints, a line for each VACUUM, go into a file: it inherits the descriptors, and not Python's streams."""
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


def _settings(told: Settings) -> Settings:
    """Those of a checkout of its own, made of links, so that what other runs left on this machine is not searched for its member."""
    folder = told.state / "demo-erasure"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / ".sluice").mkdir(parents=True)
    for name in _CODE:
        (folder / name).symlink_to(told.root / name)
    (folder / ".sluice" / "jars").symlink_to(told.state / "jars")
    places: dict[str, Any] = {place: folder / place for place in PLACES}
    places |= {"lake": str(folder / "lake"), "secrets_given": None}
    return replace(told, **places, root=folder, retain=RETAIN, erasure_approval=False)


def _land_and_run(settings: Settings, console: Console, name: str, days: int, scale: float) -> None:
    """Two runs, so that tables have histories; between them files are merged, so that there are removed ones."""
    pipeline = loading.pipeline(settings, name)
    maker, layers = loading.maker(pipeline), list(pipeline.layer_names)
    for title, wanted, stages in (("First days", days, [*layers, "optimize"]), ("One more day", 1, layers)):
        _say(console, title)
        landed = maker.land(settings.landing / name, settings.truth / name, days=wanted, scale=scale)
        console.print(f"Landed {landed.files:,} files, up to {landed.until}.")
        for stage in stages:
            _perform(settings, console, name, stage)


def _perform(settings: Settings, console: Console, name: str, stage: str) -> None:
    started = time.monotonic()
    report = job.perform(settings, job.Request(name, stage))
    moved = sum(flow["rows_out"] or 0 for flow in report["flows"])
    console.print(f"  {stage:<20} {moved:>7,} rows {time.monotonic() - started:>6.0f} s")


def _a_member(settings: Settings, name: str) -> str:
    """Who is known by most: of those that the tables of workouts know, the one with most of them."""
    known = ledger.rows(settings, name, "completed_workouts")
    counts: dict[str, int] = {}
    for row in known:
        counts[str(row[KIND])] = counts.get(str(row[KIND]), 0) + 1
    owners = {str(row[KIND]) for row in ledger.rows(settings, name, "memberships")}
    able = [member for member in counts if member in owners]
    if not able:
        raise SluiceError("The made-up gym has no member with a device and a workout in so few days.")
    return max(able, key=lambda member: (counts[member], member))


def rows_of(settings: Settings, name: str, member: str) -> dict[str, int]:
    """How many rows each table has of a member, by the member's number and devices. What a query would return."""
    devices = {str(row["device_id"]) for row in ledger.rows(settings, name, "memberships") if str(row[KIND]) == member}
    wanted = {KIND: {member}, "device_id": devices}
    found = {}
    for entry in ledger.tables(settings, name):
        if entry["layer"] == "quarantine":
            continue
        rows = ledger.rows(settings, name, entry["table"])
        found[entry["table"]] = sum(any(str(row.get(column)) in values for column, values in wanted.items()) for row in rows)
    return found


def _ask(settings: Settings, console: Console, name: str, member: str) -> str:
    """As anybody would: the identifier by standard input, and by nothing else."""
    words = ["erase", "request", name, "--identifier", KIND]
    console.print(f"$ sluice {' '.join(words)} < identifiers.txt")
    done = subprocess.run(
        [sys.executable, "-m", "sluice.cli", *words],
        input=f"{member}\n",
        env=_environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SluiceError(f"The request was refused: {done.stderr.strip()}")
    console.print(done.stdout.rstrip(), highlight=False)
    return due.of(settings, name)[-1].request


def _environment(settings: Settings) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "SLUICE_SECRETS_GIVEN"}
    return {**inherited, **settings.spark_environment()}


def _erase(settings: Settings, console: Console, name: str, request: str) -> Mapping[str, Any]:
    from sluice.runs import erasing, summary

    started = time.monotonic()
    report = erasing.perform(settings, job.Request(name, erasing.STAGE), [request])
    for row in report["requests"]:
        console.print(f"{summary.of_request(row)} ({time.monotonic() - started:.0f} s)", highlight=False)
    return report


def _wait(console: Console, report: Mapping[str, Any]) -> None:
    """Until the bytes may go."""
    until = max(datetime.fromisoformat(row["physical_due_at"]) for row in report["requests"])
    seconds = (until - datetime.now(UTC)).total_seconds() + 1
    if seconds > 0:
        console.print(f"\nUntil then readers of earlier versions are not disturbed. Waiting for {seconds:.0f} s ...")
        time.sleep(seconds)


def _conclude(settings: Settings, console: Console, name: str, request: str) -> None:
    from sluice.erasure.proof import checking

    latest = checking.latest_verified(settings, name, request)
    if latest is None:
        raise SluiceError("No certificate was issued. What was done: sluice erase status")
    page = Path(latest.path).with_suffix(".html")
    print_certificate(console, latest.record)
    console.print(f"\nCertificate   {latest.path}", highlight=False, soft_wrap=True)
    console.print(f"To be read    {page}", highlight=False, soft_wrap=True)
    if latest.verdict != "PASS":
        raise SluiceError(f"The certificate says {latest.verdict}.")


def _say(console: Console, title: str) -> None:
    console.print(f"\n{title}", style="bold")
