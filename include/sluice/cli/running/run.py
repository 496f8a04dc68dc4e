"""`sluice run`: stages of a pipeline, one after the other, in one Spark session, without Airflow."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, print_json
from sluice.cli.running import kept
from sluice.cli.running.interrupts import as_stop_requests
from sluice.declare.interval import Interval
from sluice.errors import StopRequested, UsageError
from sluice.runs.keep_running.triggers import trigger
from sluice.settings import Settings, known_pipeline

if TYPE_CHECKING:
    from sluice.runs import job

_FROM = "For --mode replay: the first day, or an instant (UTC)."
_TO = "For --mode replay: the last day, or an instant that is not included (UTC)."
_TRIGGER = "available-now, once, or processing-time=10s, which keeps running."


def run(
    pipeline: PipelineName,
    stage: Annotated[str | None, typer.Option(help="One stage; otherwise all, in order.")] = None,
    mode: Annotated[str, typer.Option(help="increment, replay or refresh.")] = "increment",
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help=_FROM)] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DATE", help=_TO)] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="A table to refresh or replay; may be given again.")] = None,
    when: Annotated[str | None, typer.Option("--trigger", metavar="TRIGGER", help=_TRIGGER)] = None,
    keep_running: Annotated[bool, typer.Option("--keep-running", help="Look again every 10 seconds, until stopped.")] = False,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the lease.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Bring a pipeline's tables up to date. Stops at the first failure. Ctrl-C ends it at the next batch's boundary."""
    settings = Settings.current()
    known_pipeline(settings, pipeline)
    interval, looks = _interval(mode, start, end), trigger(when, keep_running)
    # Spark's modules only now: a wrong name is answered at once.
    from sluice.declare.assembly.loading import load
    from sluice.runs import job, modes

    graph = load(settings, pipeline)
    wanted = [stage] if stage else modes.names(graph)
    for name in wanted:
        modes.check(graph, name, mode, table or (), interval)
    if looks.every is not None:
        kept.check(graph, stage, mode, bool(table))
    asked = job.Request(pipeline, "", mode, tuple(table or ()), uuid.uuid4().hex[:12], wait=wait, interval=interval)
    if looks.note:
        print(f"sluice: {looks.note}", flush=True)
    with as_stop_requests(settings, asked, f"sluice {pipeline} run"):
        if looks.every is not None:
            kept.run(settings, graph, replace(asked, stage=stage or ""), looks.every, as_json)
        else:
            _run_once(settings, wanted, asked, as_json)


def _run_once(settings: Settings, wanted: list[str], asked: job.Request, as_json: bool) -> None:
    reports: list[dict[str, Any]] = []
    try:
        _perform(settings, wanted, asked, reports)
    finally:
        if as_json:
            print_json({"pipeline": asked.pipeline, "done": len(reports) == len(wanted), "reports": reports})


def _perform(settings: Settings, wanted: list[str], asked: job.Request, reports: list[dict[str, Any]]) -> None:
    """Run the stages under one run id, so that one request stops them all; add each report as it comes."""
    from sluice.runs import job, summary

    for stage in wanted:
        if settings.stop_request(asked.pipeline, asked.run).exists():
            raise StopRequested(f"stopped on request, before stage '{stage}'; the next run goes on from there")
        reports.append(job.perform(settings, replace(asked, stage=stage)))
        print(summary.shown(reports[-1]) + "\n", flush=True)


def _interval(mode: str, start: str | None, end: str | None) -> Interval | None:
    if mode != "replay" and (start or end):
        raise UsageError(f"--from and --to belong to --mode replay; mode '{mode}' takes no interval.")
    if mode == "replay" and not (start and end):
        raise UsageError("--mode replay needs --from and --to: which days to take again.")
    return Interval.of(start, end) if start and end else None
