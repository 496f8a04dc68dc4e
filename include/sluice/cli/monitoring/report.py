"""`sluice report`: one HTML file about a pipeline, made from the lake's own records, without a JVM.

It holds names of tables, columns and rules, ids and counts: no value of a cell, no name of a file, and nothing that is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from jinja2 import Environment, StrictUndefined

from sluice.cli.monitoring.lineage import describe_column_lineage
from sluice.cli.monitoring.report_charts import OTHER_COLOUR, draw_run_strips, draw_stage_bars
from sluice.cli.monitoring.report_sections import SECTIONS, ReportFacts, describe_last_failure
from sluice.cli.monitoring.status import compute_status
from sluice.cli.name_lookup import select_pipelines
from sluice.cli.printing import AsJson, OnePipeline, escaping_console, format_instant, print_json
from sluice.declare.assembly.graph import Graph
from sluice.delta_log import is_delta_table
from sluice.durable_files import PRIVATE, write_text_durably
from sluice.lake import commit_history, log
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.printable import count_noun, escape_to_one_line, format_seconds, format_size
from sluice.private_files import make_private_folder
from sluice.record_states import FAILED
from sluice.runs import run_ledger
from sluice.runs.run_ledger import Row
from sluice.runs.status import lineage_pictures
from sluice.runs.status.column_lineage_record import read_column_lineage
from sluice.runs.status.diagnosis import diagnose_run
from sluice.runs.status.lineage_pictures import draw_column_lineage
from sluice.runs.status.run_times import RunTimes, select_run_rows
from sluice.runs.summary import NOTHING_NEW
from sluice.settings import Settings

_TEMPLATE = Path(__file__).parent / "report.html.j2"
_MOST_RUNS = 40
_VERSIONS = 5
_LETTERS = 25
_COLOURS = ("low", "middle", "high")
"""The colours of the layers, from the lowest layer up, as the page's style names them."""


def report(
    pipeline: OnePipeline = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="The file to write, for one pipeline; - for standard output. By default .sluice/reports/PIPELINE.html."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file that shows a pipeline's tables, runs, rules, upkeep and erasures. It needs no server and no network."""
    settings = Settings.current()
    names = select_pipelines(settings, pipeline)
    if to is not None and len(names) > 1:
        raise typer.BadParameter("--to is for one pipeline; name it.")
    if str(to) == "-":
        print(render_report(load_pipeline_lake(settings, names[0])), flush=True)
        return
    written = [write_report(settings, name, to) for name in names]
    if as_json:
        print_json({"files": [str(path) for path in written]})
        return
    for path in written:
        escaping_console().print(str(path), soft_wrap=True)


def write_report(settings: Settings, pipeline: str, to: Path | None = None) -> Path:
    """Write a pipeline's report, readable for its owner only. to: the file; otherwise one in .sluice/reports. Returns the file."""
    lake = load_pipeline_lake(settings, pipeline)
    path = to or settings.reports / f"{pipeline}.html"
    if to is None:
        make_private_folder(path.parent)
    return write_text_durably(path, render_report(lake), mode=PRIVATE)


def render_report(lake: PipelineLake, at: datetime | None = None) -> str:
    """The report as HTML. at: the time of making that the page shows; now unless given."""
    at, records = at or datetime.now(UTC), lake.records
    state, rows = compute_status(records), run_ledger.read_run_ledger(records)
    runs = _select_latest_runs(rows)
    facts = ReportFacts(records, lake.graph, state, rows, runs)
    picture = lineage_pictures.draw_lineage(lake.graph)
    colours = dict(zip(lake.graph.pipeline.layer_names, _COLOURS, strict=False))
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return page.render(
        pipeline=lake.graph.pipeline.name,
        description=escape_to_one_line(lake.graph.pipeline.description),
        at=format_instant(at),
        cards=_make_cards(lake.graph, state, runs),
        problems=_list_problems(state),
        failure=describe_last_failure(rows, lake.graph.stored),
        picture=picture,
        nodes=describe_nodes(lake, picture, state, rows, colours, at),
        panels=describe_panels(lake, picture),
        node_size=(lineage_pictures.WIDTH, lineage_pictures.HEIGHT),
        column_size=(lineage_pictures.COLUMN_WIDTH, lineage_pictures.COLUMN_HEIGHT),
        bars=draw_stage_bars(runs, colours),
        strips=draw_run_strips(lake.graph, rows, runs),
        legend=[*colours.items(), ("other stages", OTHER_COLOUR)],
        findings=diagnose_run(runs[-1]) if runs else [],
        sections=[make(facts) for make in SECTIONS],
    )


def _select_latest_runs(rows: Sequence[Row]) -> list[RunTimes]:
    names = list(dict.fromkeys(row["run"] for row in reversed(rows)))[:_MOST_RUNS][::-1]
    return [run for name in names if (run := select_run_rows(rows, name)) is not None]


def _make_cards(graph: Graph, state: Mapping[str, Any], runs: Sequence[RunTimes]) -> list[dict[str, str]]:
    tables = state["tables"]
    waiting = _count_waiting_deliveries(graph, state["flows"])
    late = [table["table"] for table in state["freshness"] if table["late"]]
    failed = bool(runs) and any(stage["state"] == FAILED for stage in runs[-1].stages)
    cards = [
        ("last run", (f"failed, {runs[-1].seconds} s" if failed else f"{runs[-1].seconds} s") if runs else "none", "bad" if failed else "good"),
        ("CPU seconds of it", f"{runs[-1].cpu_seconds:,}" if runs and runs[-1].cpu_seconds is not None else "not known", ""),
        ("tables", f"{len(tables)}", ""),
        ("rows", f"{sum(table['rows'] or 0 for table in tables):,}", ""),
        ("on disk", format_size(sum(table["bytes"] for table in tables)), ""),
        ("deliveries waiting", f"{waiting:,}", "late" if waiting else "good"),
        ("records", *_ADDING_UP[state["adds_up"]]),
        ("late tables", f"{len(late)}", "late" if late else "good"),
    ]  # fmt: skip
    return [{"title": title, "value": value, "mood": mood} for title, value, mood in cards]


_ADDING_UP = {True: ("add up", "good"), False: ("differ", "bad"), None: ("not known", "late")}


def _count_waiting_deliveries(graph: Graph, flows: Sequence[Mapping[str, Any]]) -> int:
    """Deliveries that wait for anybody, each once: several silver tables may wait for the same ones of a bronze table."""
    waiting: dict[tuple[str, ...], int] = {}
    for flow in flows:
        declared = graph[flow["table"]]
        waited_for = tuple(declared.reads) or (declared.name, "files")
        waiting[waited_for] = max(waiting.get(waited_for, 0), flow["deliveries"] or 0)
    return sum(waiting.values())


def _describe_lateness(table: Mapping[str, Any]) -> str:
    return "the latest data is older than its target" if table["data_at"] else "it never had data, for longer than its target"


def _list_problems(state: Mapping[str, Any]) -> list[str]:
    """The problems that `sluice status` would print, without file names."""
    found = [escape_to_one_line(problem) for problem in state["problems"]]
    found += [f"{flow['table']}: its flow is stuck; sluice status says why" for flow in state["flows"] if flow["stuck"]]
    found += [f"{table['table']}: {_describe_lateness(table)}" for table in state["freshness"] if table["late"]]
    found += [f"{one['table']}: made by earlier code for {one['shown']}" for one in state["stale"]]
    found += [f"{one['table']}: restored to version {one['version']}" for one in state["restored"]]
    found += [f"no run for the scheduled interval {gap['scheduled']}" for gap in state["gaps"]]
    if state["missed"]:
        found.append(
            f"{count_noun(len(state['missed']), 'file')} could not be read; every run tries them again: sluice ledger --state missed"
        )
    wrong = [one["source"] for one in state["accounts"] if not one["adds_up"]]
    found += [f"{source}: its records do not add up; sluice status says by how many" for source in wrong]
    return found


def describe_nodes(
    lake: PipelineLake,
    picture: lineage_pictures.LineagePicture,
    state: Mapping[str, Any],
    rows: Sequence[Row],
    colours: Mapping[str, str],
    at: datetime,
) -> list[dict[str, Any]]:
    """The nodes with their tables' number of rows, age of the latest data, last run, and state."""
    flows = {flow["table"]: flow for flow in state["flows"]}
    late = {table["table"] for table in state["freshness"] if table["late"]}
    last = {(row["flow"], row["stage"]): row for row in rows}
    found = []
    for node in picture.nodes.values():
        flow, row = flows.get(node.name), last.get((node.name, node.layer))
        waits = flow is not None and bool(flow["deliveries"] or flow["versions"])
        failed = row is not None and row["state"] == FAILED
        count = _describe_table_size(lake, node)
        work = "failed" if failed else "waits" if waits else _describe_last_work(row)
        found.append({
            "name": node.name,
            "x": node.x,
            "y": node.y,
            "colour": colours.get(node.layer, OTHER_COLOUR),
            "shown": node.name if len(node.name) <= _LETTERS else f"{node.name[: _LETTERS - 1]}…",
            "below": [f"{count}{', ' if work else ''}{work}", _describe_age(lake, node.name, at, node.name in late)],
            "mood": "bad" if failed else "late" if waits or node.name in late else "",
            "about": f"{node.name} ({node.kind}{', ' if node.layer else ''}{node.layer}): {count}. {(row or {}).get('recomputed') or ''}",
        })
    return found


def describe_panels(lake: PipelineLake, picture: lineage_pictures.LineagePicture) -> list[dict[str, Any]]:
    """What a click on each table shows: what it reads and what reads it, its columns with where these come from, its last versions."""
    known = read_column_lineage(lake.records)
    found = []
    for node in picture.nodes.values():
        traced = known.get(node.name)
        columns = describe_column_lineage(known, traced, traced.columns) if traced else {"columns": [], "rows_by": []}
        found.append({
            **columns,
            "table": node.name,
            "kind": f"{node.kind}{', ' if node.layer else ''}{node.layer}",
            "reads": [start for start, end in picture.edges if end == node.name],
            "read_by": [end for start, end in picture.edges if start == node.name],
            "picture": draw_column_lineage(known, traced) if traced else None,
            "versions": _list_last_versions(lake, node.name),
        })
    return found


def _list_last_versions(lake: PipelineLake, name: str) -> list[dict[str, Any]]:
    if name not in lake.graph.stored or not is_delta_table(path := lake.path(name)):
        return []
    names = ("version", "operation", "writer")
    return [
        {**{name: commit[name] for name in names}, "at": format_instant(commit["at"])}
        for commit in commit_history.read_commit_history(path, _VERSIONS)
    ]


def _describe_table_size(lake: PipelineLake, node: lineage_pictures.LineageNode) -> str:
    if node.name not in lake.graph.stored:
        return "computed when read"
    if (table := lake.graph.table_of(node.name)) != node.name:
        return f"into {table}"
    state = log.read_table_state(lake.path(node.name))
    return "no table yet" if state is None else "rows not known" if state.rows is None else count_noun(state.rows, "row")


def _describe_age(lake: PipelineLake, name: str, at: datetime, late: bool) -> str:
    """The age of a table's latest data, and whether it is more than the target."""
    if name not in lake.graph.stored or lake.graph.table_of(name) != name:
        return ""
    changed = commit_history.find_last_data_change(lake.path(name))
    if changed is None:
        return ""
    return f"data {format_seconds((at - changed).total_seconds())} old{', late' if late else ''}"


def _describe_last_work(row: Row | None) -> str:
    """The changes of the last run to a table, in a few characters."""
    if row is None or not row["seconds"]:
        return ""
    moved = [f"{sign}{row[name]:,}" for sign, name in (("+", "inserted"), ("~", "updated"), ("-", "deleted")) if row[name]]
    return " ".join(moved) or (f"+{row['rows_out']:,}" if row["rows_out"] else NOTHING_NEW)
