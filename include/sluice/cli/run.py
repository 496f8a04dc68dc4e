"""`sluice run`: stages of a pipeline, one after the other, in one Spark session, without Airflow."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, print_json
from sluice.errors import StopRequested, UsageError
from sluice.settings import Settings, known_pipeline

_DATE = "A date or instant, for --mode replay."


def run(
    pipeline: PipelineName,
    stage: Annotated[str | None, typer.Option(help="One stage; otherwise all, in order.")] = None,
    mode: Annotated[str, typer.Option(help="increment, replay or refresh.")] = "increment",
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help=_DATE)] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DATE", help=_DATE)] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="A table to refresh; may be given again.")] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the lease.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Bring a pipeline's tables up to date. Stops at the first failure."""
    settings = Settings.current()
    known_pipeline(settings, pipeline)
    _check_interval(mode, start, end)
    # Spark's modules only now: a wrong name is answered at once.
    from sluice.declare.loading import load
    from sluice.runs import stages

    graph = load(settings, pipeline)
    wanted = [stage] if stage else stages.names(graph)
    for name in wanted:
        stages.check(graph, name, mode, table or ())
    reports: list[dict[str, Any]] = []
    try:
        _perform(settings, pipeline, wanted, mode, tuple(table or ()), wait, reports)
    finally:
        if as_json:
            print_json({"pipeline": pipeline, "done": len(reports) == len(wanted), "reports": reports})


def _perform(
    settings: Settings,
    pipeline: str,
    wanted: list[str],
    mode: str,
    tables: tuple[str, ...],
    wait: float,
    reports: list[dict[str, Any]],
) -> None:
    """Run the stages under one run id, so that one request stops them all; add each report as it comes."""
    from sluice.runs import job, summary

    identity = uuid.uuid4().hex[:12]
    for stage in wanted:
        if settings.stop_request(pipeline, identity).exists():
            raise StopRequested(f"stopped on request, before stage '{stage}'; the next run goes on from there")
        reports.append(job.perform(settings, job.Request(pipeline, stage, mode, tables, identity, wait=wait)))
        print(summary.shown(reports[-1]) + "\n", flush=True)


def _check_interval(mode: str, start: str | None, end: str | None) -> None:
    first, last = _instant("--from", start), _instant("--to", end)
    if (first or last) and mode != "replay":
        raise UsageError(f"--from and --to belong to --mode replay; mode '{mode}' takes no interval.")
    if first and last and first >= last:
        raise UsageError("--from must lie before --to.")


def _instant(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} '{text[:40]}' is no date. Write it as 2026-11-21 or 2026-11-21T02:00.") from None
    return found.replace(tzinfo=None) if found.tzinfo is None else found.astimezone().replace(tzinfo=None)
