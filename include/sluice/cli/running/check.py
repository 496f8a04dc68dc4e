"""`sluice check`: do declarations fit each other; with --plans, are the transforms what their decorators promise; with --tables, are the tables."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any

import typer

from sluice.cli.places import select_pipelines
from sluice.cli.printing import AsJson, escaping_console, print_json, print_rows
from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.erasure import prevention
from sluice.errors import SluiceError
from sluice.settings import Settings


def check(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; otherwise all.")] = None,
    plans: Annotated[bool, typer.Option("--plans", help="Also check the query plans. Starts Spark, reads no data.")] = False,
    tables: Annotated[
        bool,
        typer.Option("--tables", help="Also read the logs of all tables for personal data that no erasure reaches."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find mistakes in declarations. All at once, before anything is run; exit code 2 where there are some."""
    settings = Settings.current()
    graphs: dict[str, Graph] = {}
    mistakes: list[str] = []
    names = select_pipelines(settings, pipeline)
    for name in names:
        try:
            graphs[name] = load_declaration_graph(settings, name)
        except SluiceError as error:
            mistakes += str(error).splitlines()
        except Exception as error:
            mistakes.append(f"Pipeline '{name}': {_describe_load_error(error, name)}")
    found = _examine_plans(settings, graphs) if plans and graphs else []
    mistakes += [mistake for plan in found for mistake in plan["mistakes"]]
    wrong = {plan["pipeline"] for plan in found if plan["mistakes"]}
    unsafe = {name: prevention.inspect_lake_logs(settings, graph) for name, graph in graphs.items()} if tables else {}
    mistakes += [f"{name}: {finding}" for name, findings in unsafe.items() for finding in findings]
    wrong |= {name for name, findings in unsafe.items() if findings}
    rows = [_count_declarations(name, graphs.get(name), name not in wrong) for name in names]
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


def _examine_plans(settings: Settings, graphs: dict[str, Graph]) -> list[dict[str, Any]]:
    from sluice.runs.planning import transforms as plans
    from sluice.session import start_spark_session

    session = start_spark_session(settings, "sluice check").newSession()
    return [{"pipeline": name, **vars(plans.examine_transforms(session, settings, graph))} for name, graph in graphs.items()]


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
            "recompute": ", ".join(_describe_bound(bound["columns"], bound["reach"])),
        }
        for bound in plan["bounds"]
    ]
    if bounds:
        print_rows(bounds, ("view", "changes of", "recompute"), title=f"{plan['pipeline']}: what a change makes anew")
    for note in plan["notes"]:
        escaping_console().print(f"{plan['pipeline']}: {note}")


def _describe_bound(columns: dict[str, str], reach: dict[str, str] | None) -> list[str]:
    same = {column: expression.strip("`") == column for column, expression in columns.items()}
    found = [column if same[column] else f"{column} = {columns[column]}" for column in columns]
    return [*found, *([_describe_time_reach(**reach)] if reach else [])] or ["full recompute"]


def _describe_time_reach(column: str, before: str, after: str, input: str) -> str:
    """As in "day from d to d + 6 days"."""
    at = input.strip("`")
    ends = [at if end.startswith("0 ") else f"{at} {sign} {end}" for sign, end in (("-", before), ("+", after))]
    return f"{column} = {at}" if ends == [at, at] else f"{column} from {ends[0]} to {ends[1]}"


def _describe_load_error(error: Exception, name: str) -> str:
    """What a pipeline's own code raised while it was loaded, and where."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if f"pipelines/{name}/" in frame.filename]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
