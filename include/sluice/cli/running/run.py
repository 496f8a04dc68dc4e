"""`sluice run`: runs stages of a pipeline one after the other, in one Spark session, without Airflow. `sluice stop` ends it from outside.

Ctrl-C and SIGTERM are requests to stop too: the first one ends a run before its next batch, the second one at once. `--keep-running`
prints a line for each look that changed something.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import typer

from orchestration.stopping import end_process_and_jvm, is_process_alive
from sluice.cli.printing import AsJson, LeaseWait, PipelineName, escaping_console, print_json
from sluice.declare.interval import Interval
from sluice.durable_files import write_text_durably
from sluice.errors import SluiceError, UsageError
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import find_stage_of_pipeline, list_stage_names
from sluice.printable import count_noun
from sluice.run_modes import INCREMENT, OptionNames, RunMode, check_run_mode, name_all_modes
from sluice.runs.execution.stages import StageOptions, check_tables_of_mode
from sluice.runs.lease import holder
from sluice.runs.lease.holder import LeaseHolder
from sluice.runs.triggers import parse_trigger
from sluice.settings import Settings, require_known_pipeline

if TYPE_CHECKING:
    from sluice.declare.assembly.graph import Graph
    from sluice.runs import job
    from sluice.runs.keep_running.keeping import LookReport

MODE_HELP = f"{name_all_modes()}."
OPTION_NAMES = OptionNames(mode="--mode {}", days="--from and --to", tables="--table TABLE", left_out="Leave out {}")
_FROM = "For --mode replay: the first day, or an instant (UTC)."
_TO = "For --mode replay: the last day, or an instant (UTC, not included)."
_TRIGGER = "available-now, once, or processing-time=10s, which keeps running."
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
WITHIN = 60.0
_LOOK_AGAIN = 0.2
_BETWEEN_STAGES = 0.5
"""Seconds after which a run of one process has begun its next stage."""
_NEXT_JOB_STARTS = 30.0
"""The same for a run whose next stage is another job, of Airflow or `sluice backfill --local`: its JVM starts first."""
_PATIENCE = 10.0
"""Seconds between SIGTERM and SIGKILL, as for a job of Airflow's."""


def run(
    pipeline: PipelineName,
    stage: Annotated[str | None, typer.Option(help="One stage; otherwise all, in order.")] = None,
    mode: Annotated[str, typer.Option(help=MODE_HELP)] = INCREMENT.name,
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help=_FROM)] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DATE", help=_TO)] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="A table to refresh or replay; may be given again.")] = None,
    when: Annotated[str | None, typer.Option("--trigger", metavar="TRIGGER", help=_TRIGGER)] = None,
    keep_running: Annotated[bool, typer.Option("--keep-running", help="Look again every 10 seconds, until stopped.")] = False,
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Bring a pipeline's tables up to date. Stops at the first failure. Ctrl-C ends it before its next batch."""
    settings = Settings.current()
    require_known_pipeline(settings, pipeline)
    chosen = check_run_mode(mode, (start, end), table or (), OPTION_NAMES)
    interval = Interval.of(start, end) if start and end else None
    looks = parse_trigger(when, keep_running)
    # Spark's modules are imported only now, so that a wrong name is reported at once.
    from sluice.runs import job

    lake = load_pipeline_lake(settings, pipeline)
    wanted = [stage] if stage else list_stage_names(lake.graph.pipeline)
    for name in wanted:
        find_stage_of_pipeline(lake.graph.pipeline, name)
    check_tables_of_mode(lake.graph, mode, table or ())
    if looks.every is not None:
        check_keep_running_options(lake.graph, stage, chosen)
    asked = job.JobRequest(pipeline, "", mode, wait=wait, interval=interval, options=StageOptions(tuple(table or ())))
    if looks.note:
        print(f"sluice: {looks.note}", flush=True)
    if stage is None and looks.every is None and run_and_report_without_spark(settings, wanted, asked, as_json):
        return
    with signals_as_stop_requests(settings, asked, f"sluice {pipeline} run", long_lived=looks.every is not None):
        if looks.every is not None:
            keep_running_and_report(lake, replace(asked, stage=stage or ""), looks.every, as_json)
        else:
            _run_once(settings, wanted, asked, as_json)


def run_and_report_without_spark(settings: Settings, wanted: list[str], asked: job.JobRequest, as_json: bool) -> bool:
    """If the stages need no Spark, run, record and report them. Returns whether that is so."""
    from sluice.runs import summary, task_without_spark

    reports = task_without_spark.run_stages_without_spark(settings, asked, wanted)
    if reports is None:
        return False
    for report in reports:
        print(summary.format_run_summary(report) + "\n", flush=True)
    if as_json:
        print_json({"pipeline": asked.pipeline, "done": True, "reports": reports})
    return True


def _run_once(settings: Settings, wanted: list[str], asked: job.JobRequest, as_json: bool) -> None:
    reports: list[dict[str, Any]] = []
    try:
        _run_stages(settings, wanted, asked, reports)
    finally:
        if as_json:
            print_json({"pipeline": asked.pipeline, "done": len(reports) == len(wanted), "reports": reports})


def _run_stages(settings: Settings, wanted: list[str], asked: job.JobRequest, reports: list[dict[str, Any]]) -> None:
    """Run the stages; print each report as it comes, and add it."""
    from sluice.runs import job, summary

    for report in job.run_stages_in_turn(settings, asked, wanted):
        reports.append(report)
        print(summary.format_run_summary(report) + "\n", flush=True)


@contextmanager
def signals_as_stop_requests(settings: Settings, asked: job.JobRequest, name: str, long_lived: bool = False) -> Iterator[None]:
    """Start the process's Spark session and take both signals as requests to stop this run, as `sluice stop` writes them.

    The request is removed when the run has ended. long_lived: the process does not end by itself.
    """
    from sluice import session
    from sluice.runs.lease import lock
    from sluice.runs.waiting_bytes import choose_session_conf
    from sluice.spark_process import session_conf_with_all_compilers

    records = PipelineRecords(settings, asked.pipeline)
    request = records.stop_request(asked.run)

    def heard(number: int, frame: Any) -> None:
        if request.exists():
            # Not an exception, which would wait for the flows' threads. The next run continues from whatever a killed one leaves.
            os._exit(128 + number)
        request.parent.mkdir(parents=True, exist_ok=True)
        request.touch()
        print("Stopping before the next batch. Once more ends it at once.", file=sys.stderr, flush=True)

    lock.check_lake_format(records)
    # It has a handler of its own, which is replaced here.
    conf = session_conf_with_all_compilers(settings) if long_lived else choose_session_conf(records, asked.run)
    session.start_spark_session(settings, name, conf)
    ours = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, heard) for number in _SIGNALS} if ours else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        request.unlink(missing_ok=True)


def check_keep_running_options(graph: Graph, stage: str | None, mode: RunMode) -> None:
    """Raises UsageError for options that a process that is kept running does not support."""
    if not mode.left_to_kept_running:
        raise UsageError(
            f"A process that is kept running takes what is new; --mode {mode.name} runs once, without --keep-running and processing-time."
        )
    layers = graph.pipeline.layer_names
    if stage and stage not in layers:
        raise UsageError(f"Stage '{stage}' is not kept running; layers are: {', '.join(layers)}.")


def keep_running_and_report(lake: PipelineLake, asked: job.JobRequest, every: float, as_json: bool) -> None:
    """Keep a pipeline running until somebody asks it to stop. Raises SluiceError as `keep` does."""
    from sluice.runs.keep_running import keeping

    def begun() -> None:
        what = f"{asked.pipeline} {asked.stage}".strip()
        if not as_json:
            ending = f"Ctrl-C ends it, or: sluice stop {asked.pipeline}"
            print(f"{what} is kept running: it looks every {every:g} s, run {asked.run}. {ending}", flush=True)

    def heard(round_: LookReport) -> None:
        if as_json:
            print_json({**vars(round_), "at": datetime.now(UTC).isoformat(timespec="seconds")})
        else:
            _print_round(round_, lake.graph.pipeline.layer_names[0])

    did = keeping.run_until_stopped(lake, asked, every, heard, begun)
    if as_json:
        print_json({"pipeline": asked.pipeline, "run": asked.run, "stopped": True, "rounds": did})
    else:
        print(
            f"{asked.pipeline} was stopped on request; {count_noun(did, 'look')} did something. The next run goes on from there.",
            flush=True,
        )


def _print_round(round_: LookReport, lowest: str) -> None:
    at = f"{datetime.now(UTC):%H:%M:%S}"
    if said := list(_describe_flow_changes(round_.reports, lowest)):
        print(f"{at}  {', '.join(said)}; {round_.seconds:.1f} s", flush=True)
    for name, why in round_.errors.items():
        again = f"failed {count_noun(round_.failures, 'time')} in a row, again in {max(round_.again, 0):.0f} s"
        print(f"{at}  {name} {again}: {why}", file=sys.stderr, flush=True)
    for name, why in round_.differing.items():
        print(f"{at}  {name} differs: {why}", file=sys.stderr, flush=True)


def _describe_flow_changes(reports: list[dict[str, Any]], lowest: str) -> Iterator[str]:
    """The change of each table, as "readings +120 (2 deliveries)" or "device_day +3 ~2 -1"."""
    for report in reports:
        for flow in report["flows"]:
            rows = [f"{sign}{flow[of]}" for sign, of in (("+", "inserted"), ("~", "updated"), ("-", "deleted")) if flow[of]]
            if not rows and flow["rows_out"]:
                rows = [f"+{flow['rows_out']}"]
            aside = [f"{flow[of]} {of}" for of in ("quarantined", "suppressed") if flow[of]]
            aside += [count_noun(flow["deliveries"], "delivery")] if flow["deliveries"] and report["stage"] == lowest else []
            told = " ".join([*rows, *([f"({', '.join(aside)})"] if aside else [])])
            yield f"{flow['flow']} {told or report['stage']}"


def stop(
    pipeline: PipelineName,
    within: Annotated[
        float, typer.Option("--within", min=0, metavar="SECONDS", help="How long to wait for the end of the run; 0: not at all.")
    ] = WITHIN,
    force: Annotated[
        bool, typer.Option("--force", help="Then end the run by SIGTERM and SIGKILL. Works only on the run's own host.")
    ] = False,
) -> None:
    """Ask a pipeline's run to stop before its next batch, and wait until it has. The next run continues from there."""
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    found = _find_holder_between_stages(records, max(within, _BETWEEN_STAGES))
    if found is None:
        escaping_console().print(f"Nothing runs on '{pipeline}'.")
        return
    process = _find_run_process(found)
    request = records.stop_request(found.run)
    request.parent.mkdir(parents=True, exist_ok=True)
    write_text_durably(request, "")  # also over that of a task that Airflow killed, which would count for that task alone
    escaping_console().print(f"Asked {found} to stop. It does so before its next batch; what is committed stays.", soft_wrap=True)
    started = time.monotonic()
    while not _has_run_ended(records, found) and time.monotonic() - started < within:
        time.sleep(_LOOK_AGAIN)
    if _has_run_ended(records, found):
        escaping_console().print(f"It has ended, after {time.monotonic() - started:.0f} s. The next run goes on from there.")
    elif force:
        _force_run_end(found, process, within)
    elif within:
        raise SluiceError(
            f"It has not ended within {within:g} s, because its batch has not ended. The request stays valid. Wait longer with --within, or end it "
            f"now: sluice stop {pipeline} --within 0 --force"
        )


def _find_holder_between_stages(records: PipelineRecords, seconds: float) -> LeaseHolder | None:
    """Who holds the lease. While a run starts its next stage nobody does, so if one released it just now, this waits; at most these seconds."""
    released = holder.find_lease_release(records)
    left = 0.0 if released is None else _NEXT_JOB_STARTS - abs((datetime.now(UTC) - released).total_seconds())
    until = time.monotonic() + min(seconds, max(left, _BETWEEN_STAGES))
    while (found := holder.find_lease_holder(records)) is None and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN)
    return found


def _find_run_process(found: LeaseHolder) -> psutil.Process | None:
    """The run's process, looked up before the wait, since another process may get its id afterwards. None if it is on another host."""
    for number in (found.pid, found.jvm) if found.here else ():
        if number is not None and holder.is_process_of_holder(found, number):
            return psutil.Process(number)
    return None


def _has_run_ended(records: PipelineRecords, found: LeaseHolder) -> bool:
    """Whether the run has released the lease, or is gone. A run that was asked to stop takes no further lease."""
    now = holder.find_lease_holder(records)
    return now is None or now.run != found.run


def _force_run_end(found: LeaseHolder, process: psutil.Process | None, within: float) -> None:
    if process is None or not is_process_alive(process):
        raise SluiceError(f"It has not ended within {within:g} s, and it runs on {found.host}: use --force there.")
    end_process_and_jvm(process, _PATIENCE)
    escaping_console().print("The run was ended. The next run repeats what was not committed.")
