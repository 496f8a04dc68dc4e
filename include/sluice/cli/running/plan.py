"""`sluice plan`: what a run, a backfill or a refresh would do, before anything moves."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from sluice.cli.erasure import people
from sluice.cli.printing import AsJson, PipelineName, escaping_console, format_size, print_json, print_rows
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.declare.interval import Interval
from sluice.errors import UsageError
from sluice.runs.planning import plan as plans
from sluice.runs.planning.plan import RunPlan, Staleness
from sluice.runs.planning.steps import PlannedStep
from sluice.runs.status import stale, timeliness
from sluice.runs.status.timeliness import Gap
from sluice.settings import Settings

_LISTED = 20


def plan(
    pipeline: PipelineName,
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help="A backfill's first day, or an instant.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DATE", help="Its last day, or an instant (exclusive).")] = None,
    mode: Annotated[str | None, typer.Option(help="increment, replay or refresh.")] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="A table to refresh or replay; may be given again.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a run would do. With --from and --to a backfill, with --mode refresh --table a refresh. Starts no Spark."""
    settings = Settings.current()
    graph = load_declaration_graph(settings, pipeline)
    interval = _parse_backfill_interval(start, end)
    chosen = mode or ("replay" if interval else "increment")
    if interval and chosen != "replay":
        raise UsageError(f"--from and --to belong to a backfill; mode '{chosen}' takes no interval.")
    found = plans.plan_run(settings, graph, chosen, interval, tuple(table or ()))
    open_ones = timeliness.find_schedule_gaps(settings, graph)
    requests = people.count_waiting_requests(graph.records(settings))
    if as_json:
        print_json(_plan_as_json(pipeline, found, open_ones, requests))
        return
    _print_plan_steps(pipeline, found)
    print_stale_dates(pipeline, found.stale, afterwards=chosen != "increment")
    print_schedule_gaps(pipeline, open_ones)
    notes = [*found.notes, *([f"Erasure requests that it would carry out: {requests}."] if requests else [])]
    for note in notes:
        escaping_console().print(f"\n{note}", soft_wrap=True)


def print_stale_dates(pipeline: str, found: list[Staleness], afterwards: bool = False) -> None:
    """The dates with rows by earlier code, and what would renew them."""
    if not found:
        return
    rows = [
        {"table": one.table, "dates": _format_intervals(one.now), "after this": _format_intervals(one.afterwards) or "none"}
        for one in found
    ]
    print_rows(rows, ("table", "dates", "after this") if afterwards else ("table", "dates"), title="Made by earlier code")
    if not afterwards:
        name = found[0].table
        escaping_console().print(
            f"sluice backfill {pipeline} --from DAY --to DAY renews days; "
            f"sluice run {pipeline} --mode refresh --table {name} the whole table.",
            soft_wrap=True,
        )


def print_schedule_gaps(pipeline: str, found: list[Gap]) -> None:
    """Scheduled time without a run that succeeded, and what closes it."""
    if found:
        rows = [{"scheduled": str(gap.interval), "its runs": gap.why, "closed by": gap.command(pipeline)} for gap in found]
        print_rows(rows, ("scheduled", "its runs", "closed by"), title="Gaps in the schedule")


def gap_as_json(pipeline: str, gap: Gap) -> dict[str, Any]:
    """A gap as a plain object."""
    return {**asdict(gap.interval), "why": gap.why, "command": gap.command(pipeline)}


def stale_as_json(found: Staleness) -> dict[str, Any]:
    """A stale table as a plain object; a range that has no end on one side has the first or the last date there is."""
    now, afterwards = ([asdict(one) for one in intervals] for intervals in (found.now, found.afterwards))
    return {"table": found.table, "now": now, "afterwards": afterwards}


def _parse_backfill_interval(start: str | None, end: str | None) -> Interval | None:
    if bool(start) != bool(end):
        raise UsageError("--from and --to belong together: a backfill has a first and a last day.")
    return Interval.of(start, end) if start and end else None


def _plan_as_json(pipeline: str, found: RunPlan, open_ones: list[Gap], requests: int) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "mode": found.mode,
        "interval": asdict(found.interval) if found.interval else None,
        "steps": [asdict(step) for step in found.steps],
        "recomputed": [{"table": step.table, "why": step.why} for step in found.recomputed],
        "stale": [stale_as_json(one) for one in found.stale],
        "gaps": [gap_as_json(pipeline, gap) for gap in open_ones],
        "erasure_requests": requests,
        "notes": found.notes,
    }


def _print_plan_steps(pipeline: str, found: RunPlan) -> None:
    what = {"increment": "the next run", "refresh": "a refresh"}.get(found.mode, f"a backfill of {found.interval}")
    columns = ("layer", "table", "would", "deliveries", "versions", "rows", "bytes", "why")
    print_rows([_step_as_row(step) for step in found.steps], columns, title=f"{pipeline}: {what}")
    if not any(step.moves for step in found.steps):
        escaping_console().print("Nothing would change.")
    for step in found.steps:
        if step.files:
            print_rows(step.files[:_LISTED], ("file", "state", "delivery"), title=f"{step.table}: would take")
            if len(step.files) > _LISTED:
                escaping_console().print(f"... and {len(step.files) - _LISTED:,} more; --json lists them")


def _step_as_row(step: PlannedStep) -> dict[str, Any]:
    counts = {name: getattr(step, name) or None for name in ("deliveries", "versions", "rows")}
    shown = {"layer": step.layer, "table": step.table, "would": step.does, "why": step.why}
    return {**shown, **counts, "bytes": format_size(step.bytes) if step.bytes else None}


def _format_intervals(intervals: list[Interval]) -> str:
    return ", ".join(stale.describe_stale_interval(one) for one in intervals)
