"""`sluice plan` says what a run, a backfill or a refresh would do; `sluice check` finds mistakes in declarations. Neither changes anything.

`check` tests whether declarations fit each other; with --plans, whether the transforms do what their decorators promise; with --tables,
whether the logs of tables hold no personal data.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sluice.cli.erasure import request_states
from sluice.cli.name_lookup import select_pipelines
from sluice.cli.printing import AsJson, OnePipeline, PipelineName, escaping_console, print_json, print_rows
from sluice.cli.running.run import MODE_HELP, OPTION_NAMES
from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import check_delivery_maker
from sluice.declare.interval import Interval
from sluice.erasure import prevention
from sluice.errors import SluiceError, UsageError
from sluice.lake.inventory import VacuumDecision
from sluice.lake.layout import LayoutDecision
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.printable import format_size
from sluice.run_modes import INCREMENT, REFRESH, REPLAY, check_run_mode
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
    mode: Annotated[str | None, typer.Option(help=MODE_HELP)] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="A table to refresh or replay; may be given again.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a run would do. With --from and --to a backfill, with --mode refresh --table a refresh. Starts no Spark."""
    settings = Settings.current()
    lake = load_pipeline_lake(settings, pipeline)
    interval = _parse_backfill_interval(start, end)
    chosen = mode or (REPLAY.name if interval else INCREMENT.name)
    check_run_mode(chosen, (start, end), table or (), OPTION_NAMES)
    found = plans.plan_run(lake, chosen, interval, tuple(table or ()))
    open_ones = timeliness.find_schedule_gaps(lake)
    requests = request_states.count_waiting_requests(lake.records)
    if as_json:
        print_json(_plan_as_json(pipeline, found, open_ones, requests))
        return
    _print_plan_steps(pipeline, found)
    print_stale_dates(pipeline, found.stale, afterwards=chosen != INCREMENT.name)
    print_schedule_gaps(pipeline, open_ones)
    _print_layouts(found)
    _print_vacuums(found)
    notes = [*found.notes, *([f"Erasure requests that it would carry out: {requests}."] if requests else [])]
    for note in notes:
        escaping_console().print(f"\n{note}", soft_wrap=True)


def print_stale_dates(pipeline: str, found: list[Staleness], afterwards: bool = False) -> None:
    """Print the dates with rows by earlier code, and the commands that renew them."""
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
    """Print scheduled intervals without a successful run, and the command that closes the gap."""
    if found:
        rows = [{"scheduled": str(gap.interval), "its runs": gap.why, "closed by": gap.command(pipeline)} for gap in found]
        print_rows(rows, ("scheduled", "its runs", "closed by"), title="Gaps in the schedule")


def gap_as_json(pipeline: str, gap: Gap) -> dict[str, Any]:
    """A gap as a plain object."""
    return {**asdict(gap.interval), "why": gap.why, "command": gap.command(pipeline)}


def stale_as_json(found: Staleness) -> dict[str, Any]:
    """A stale table as a plain object; a range that is open on one side gets the first or last existing date."""
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
        "layouts": [_layout_as_row(name, decision) for name, decision in found.layouts.items()],
        "vacuums": [_vacuum_as_row(name, decision) for name, decision in found.vacuums.items()],
        "notes": found.notes,
    }


def _print_layouts(found: RunPlan) -> None:
    """Print the tables whose files the stage `optimize` would rewrite."""
    rows = [_layout_as_row(name, decision) for name, decision in found.layouts.items() if decision.needed]
    if rows:
        print_rows(rows, ("table", "partitions", "why"), title="Files that would be rewritten")


def _print_vacuums(found: RunPlan) -> None:
    """Print the tables whose files the stage `vacuum` would remove, once flows that are behind have read them."""
    rows = [_vacuum_as_row(name, decision) for name, decision in found.vacuums.items() if decision.needed]
    if rows:
        print_rows(rows, ("table", "files", "why"), title="Files that would be removed")


def _vacuum_as_row(name: str, decision: VacuumDecision) -> dict[str, Any]:
    gone = decision.inventory
    return {
        "table": name,
        "needed": decision.needed,
        "files": len(gone.expired),
        "bytes": gone.expired_bytes,
        "why": decision.why,
    }


def _layout_as_row(name: str, decision: LayoutDecision) -> dict[str, Any]:
    partitions = f"{len(decision.partitions)} of {decision.of}"
    return {"table": name, "needed": decision.needed, "partitions": partitions, "why": decision.why}


def _print_plan_steps(pipeline: str, found: RunPlan) -> None:
    what = {INCREMENT.name: "the next run", REFRESH.name: "a refresh"}.get(found.mode, f"a backfill of {found.interval}")
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


def check(
    pipeline: OnePipeline = None,
    plans: Annotated[bool, typer.Option("--plans", help="Also check the query plans. Starts Spark, reads no data.")] = False,
    tables: Annotated[
        bool,
        typer.Option("--tables", help="Also read the logs of all tables for personal data that no erasure reaches."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find mistakes in declarations, all at once, before anything runs. Exit code 2 if there are any."""
    settings = Settings.current()
    lakes: dict[str, PipelineLake] = {}
    mistakes: list[str] = []
    names = select_pipelines(settings, pipeline)
    for name in names:
        try:
            lakes[name] = load_pipeline_lake(settings, name)
            check_delivery_maker(lakes[name].graph.pipeline)
        except SluiceError as error:
            mistakes += str(error).splitlines()
    found = _examine_plans(settings, lakes) if plans and lakes else []
    mistakes += [mistake for plan in found for mistake in plan["mistakes"]]
    wrong = {plan["pipeline"] for plan in found if plan["mistakes"]}
    unsafe = {name: prevention.inspect_lake_logs(lake) for name, lake in lakes.items()} if tables else {}
    mistakes += [f"{name}: {finding}" for name, findings in unsafe.items() for finding in findings]
    wrong |= {name for name, findings in unsafe.items() if findings}
    rows = [_count_declarations(name, lakes[name].graph if name in lakes else None, name not in wrong) for name in names]
    _print_check_results(rows, found, mistakes, as_json)
    if mistakes:
        raise typer.Exit(2)


def _count_declarations(name: str, graph: Graph | None, fits: bool) -> dict[str, Any]:
    if graph is None:
        return {"pipeline": name, "ok": False}
    # As declared: an `auto_cdc` is one table, whatever is kept for it.
    tables = [table for table in graph.tables.values() if not table.serves]
    targets = [view for view in graph.views.values() if view.of_some]
    counts = {
        "sources": len(graph.sources),
        "tables": len(tables) + len(targets),
        "views": len(graph.views) - len(targets) + len(graph.computed),
    }
    return {"pipeline": name, **counts, "ok": fits}


def _examine_plans(settings: Settings, lakes: dict[str, PipelineLake]) -> list[dict[str, Any]]:
    from sluice.runs.planning import transforms as plans
    from sluice.session import start_spark_session

    session = start_spark_session(settings, "sluice check").newSession()
    return [{"pipeline": name, **vars(plans.examine_transforms(session, lake))} for name, lake in lakes.items()]


def _print_check_results(rows: list[dict[str, Any]], found: list[dict[str, Any]], mistakes: list[str], as_json: bool) -> None:
    if not as_json:
        shown = [{**row, "ok": "ok" if row["ok"] else "wrong"} for row in rows]
        print_rows(shown, ("pipeline", "sources", "tables", "views", "ok"))
        for plan in found:
            _print_plan_bounds(plan)
        sys.stdout.flush()
    for mistake in mistakes:
        print(f"sluice: {mistake}", file=sys.stderr, flush=True)
    if as_json:
        print_json({"ok": not mistakes, "pipelines": rows, "plans": found, "mistakes": mistakes})


def _print_plan_bounds(plan: dict[str, Any]) -> None:
    bounds = [
        {
            "view": bound["view"],
            "changes of": bound["input"],
            "recompute": "refused"
            if bound["refused"]
            else ", ".join(_describe_bound(bound["columns"], bound["joined"], bound["reach"])),
        }
        for bound in plan["bounds"]
    ]
    if bounds:
        print_rows(bounds, ("view", "changes of", "recompute"), title=f"{plan['pipeline']}: what a change recomputes")
    for note in plan["notes"]:
        escaping_console().print(f"{plan['pipeline']}: {note}")


def _describe_bound(columns: dict[str, str], joined: list[str], reach: dict[str, str] | None) -> list[str]:
    same = {column: expression.strip("`") == column for column, expression in columns.items()}
    found = [column if same[column] else f"{column} = {columns[column]}" for column in columns]
    found += [f"{column} by a join" for column in joined]
    return [*found, *([_describe_time_reach(**reach)] if reach else [])] or ["full recompute"]


def _describe_time_reach(column: str, before: str, after: str, input: str) -> str:
    """As in "day from d to d + 6 days"."""
    at = input.strip("`")
    ends = [at if end.startswith("0 ") else f"{at} {sign} {end}" for sign, end in (("-", before), ("+", after))]
    return f"{column} = {at}" if ends == [at, at] else f"{column} from {ends[0]} to {ends[1]}"
