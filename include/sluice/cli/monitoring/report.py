"""`sluice report`: one HTML file about a pipeline, to look at, to keep and to mail; made of the lake's own records, without a JVM.

It holds names of tables, columns and rules, ids and counts: no value of a cell, no name of a file, and nothing that is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from jinja2 import Environment, StrictUndefined

from sluice.cli.monitoring.lineage import describe_column_lineage
from sluice.cli.monitoring.status import compute_status
from sluice.cli.places import select_pipelines
from sluice.cli.printing import AsJson, OnePipeline, escaping_console, format_instant, print_json
from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.durable_files import write_text_durably
from sluice.flow_counts import ALERT_COUNTS
from sluice.lake import log
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import OPTIMIZE, VACUUM
from sluice.printable import escape_to_one_line, format_size
from sluice.private_files import make_private_folder
from sluice.runs import due, ledger
from sluice.runs.ledger import Row
from sluice.runs.status import lineage
from sluice.runs.status.column_lineage import read_column_lineage
from sluice.runs.status.diagnosis import diagnose_run
from sluice.runs.status.run_times import RunTimes, select_run_rows
from sluice.settings import Settings

_TEMPLATE = Path(__file__).parent / "report.html.j2"
_MOST_RUNS = 40
_BARS_HIGH = 130
_COLOURS, _OTHER_COLOUR = ("low", "middle", "high"), "other"
"""Of the layers, from the lowest, and of all other stages, as the page's style calls them."""
_SPARKS = "▁▂▃▄▅▆▇█"
_MODE = 0o600


def report(
    pipeline: OnePipeline = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="The file to write, of one pipeline, - for standard output; otherwise .sluice/reports/PIPELINE.html."
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
        print(render_report(settings, load_declaration_graph(settings, names[0])), flush=True)
        return
    written = [write_report(settings, name, to) for name in names]
    if as_json:
        print_json({"files": [str(path) for path in written]})
        return
    for path in written:
        escaping_console().print(str(path), soft_wrap=True)


def write_report(settings: Settings, pipeline: str, to: Path | None = None) -> Path:
    """Write a pipeline's report, readable for its owner only. to: the file; otherwise one in .sluice/reports. Returns the file."""
    graph = load_declaration_graph(settings, pipeline)
    path = to or settings.state / "reports" / f"{pipeline}.html"
    if to is None:
        make_private_folder(path.parent)
    return write_text_durably(path, render_report(settings, graph), mode=_MODE)


def render_report(settings: Settings, graph: Graph, at: datetime | None = None) -> str:
    """The report as HTML. at: when it says that it was made; now unless given."""
    records = graph.records(settings)
    state, rows = compute_status(records), ledger.read_run_ledger(records)
    runs = _select_latest_runs(rows)
    picture = lineage.draw_lineage(graph)
    colours = dict(zip(graph.pipeline.layer_names, _COLOURS, strict=False))
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return page.render(
        pipeline=graph.pipeline.name,
        description=escape_to_one_line(graph.pipeline.description),
        at=format_instant(at or datetime.now(UTC)),
        cards=_make_cards(state, runs),
        problems=_list_problems(state),
        picture=picture,
        nodes=_describe_nodes(settings, graph, picture, state, rows, colours),
        traced=_describe_traced_tables(records, picture),
        width=lineage.WIDTH,
        height=lineage.HEIGHT,
        bars=_draw_run_bars(runs, colours),
        legend=[*colours.items(), ("other stages", _OTHER_COLOUR)],
        findings=diagnose_run(runs[-1]) if runs else [],
        sections=[
            _section_of_tables(state, rows),
            _section_of_rows_apart(rows, runs),
            _section_of_rules(rows),
            _section_of_upkeep(rows),
            _section_of_failures(rows),
            _section_of_erasures(records),
        ],
    )


def _select_latest_runs(rows: Sequence[Row]) -> list[RunTimes]:
    names = list(dict.fromkeys(row["run"] for row in reversed(rows)))[:_MOST_RUNS][::-1]
    return [run for name in names if (run := select_run_rows(rows, name)) is not None]


def _make_cards(state: Mapping[str, Any], runs: Sequence[RunTimes]) -> list[dict[str, str]]:
    tables = state["tables"]
    waiting = sum(flow["deliveries"] or 0 for flow in state["flows"])
    late = [table["table"] for table in state["freshness"] if table["late"]]
    failed = bool(runs) and any(stage["state"] == "failed" for stage in runs[-1].stages)
    cards = [
        ("last run", (f"failed, {runs[-1].seconds} s" if failed else f"{runs[-1].seconds} s") if runs else "none", "bad" if failed else "good"),
        ("tables", f"{len(tables)}", ""),
        ("rows", f"{sum(table['rows'] or 0 for table in tables):,}", ""),
        ("on disk", format_size(sum(table["bytes"] for table in tables)), ""),
        ("deliveries waiting", f"{waiting:,}", "late" if waiting else "good"),
        ("records", "add up" if state["adds_up"] else "differ", "good" if state["adds_up"] else "bad"),
        ("late tables", f"{len(late)}", "late" if late else "good"),
    ]  # fmt: skip
    return [{"title": title, "value": value, "mood": mood} for title, value, mood in cards]


def _list_problems(state: Mapping[str, Any]) -> list[str]:
    """What `sluice status` would say that is not as it should be, without names of files."""
    found = [escape_to_one_line(problem) for problem in state["problems"]]
    found += [f"{flow['table']}: its flow is stuck; sluice status says why" for flow in state["flows"] if flow["stuck"]]
    found += [f"{table['table']}: the latest data is older than its target" for table in state["freshness"] if table["late"]]
    found += [f"{one['table']}: made by earlier code for {one['shown']}" for one in state["stale"]]
    found += [f"{one['table']}: restored to version {one['version']}" for one in state["restored"]]
    found += [f"no run for the scheduled interval {gap['scheduled']}" for gap in state["gaps"]]
    if state["missed"]:
        found.append(f"{len(state['missed'])} files could not be read; every run tries them again: sluice ledger --state missed")
    wrong = [one["source"] for one in state["accounts"] if not one["adds_up"]]
    found += [f"{source}: its records do not add up; sluice status says by how many" for source in wrong]
    return found


def _describe_nodes(
    settings: Settings,
    graph: Graph,
    picture: lineage.LineagePicture,
    state: Mapping[str, Any],
    rows: Sequence[Row],
    colours: Mapping[str, str],
) -> list[dict[str, Any]]:
    """The nodes with what is known of their tables."""
    flows = {flow["table"]: flow for flow in state["flows"]}
    late = {table["table"] for table in state["freshness"] if table["late"]}
    last = {(row["flow"], row["stage"]): row for row in rows}
    found = []
    for node in picture.nodes.values():
        flow, row = flows.get(node.name), last.get((node.name, node.layer))
        waits = flow is not None and bool(flow["deliveries"] or flow["versions"])
        failed = row is not None and row["state"] == "failed"
        count = _describe_table_size(settings, graph, node)
        note = "failed" if failed else "waits" if waits else _describe_last_work(row)
        found.append({
            "name": node.name,
            "x": node.x,
            "y": node.y,
            "colour": colours.get(node.layer, _OTHER_COLOUR),
            "shown": node.name if len(node.name) <= 25 else f"{node.name[:24]}…",
            "below": f"{count}{', ' if note else ''}{note}",
            "mood": "bad" if failed else "late" if waits or node.name in late else "",
            "about": f"{node.name} ({node.kind}{', ' if node.layer else ''}{node.layer}): {count}. {(row or {}).get('recomputed') or ''}",
        })
    return found


def _describe_traced_tables(records: PipelineRecords, picture: lineage.LineagePicture) -> list[dict[str, Any]]:
    """The tables of the picture whose columns are known, with where these come from, in the picture's order."""
    known = read_column_lineage(records)
    return [describe_column_lineage(known, known[name], known[name].columns) for name in picture.nodes if name in known]


def _describe_table_size(settings: Settings, graph: Graph, node: lineage.LineageNode) -> str:
    if node.name not in graph.stored:
        return "computed when read"
    if (table := graph.table_of(node.name)) != node.name:
        return f"into {table}"
    state = log.read_table_state(graph.location(settings, node.name))
    return "no table yet" if state is None else "rows not known" if state.rows is None else f"{state.rows:,} rows"


def _describe_last_work(row: Row | None) -> str:
    """What the last run did to a table, in a few letters."""
    if row is None or not row["seconds"]:
        return ""
    moved = [f"{sign}{row[name]:,}" for sign, name in (("+", "inserted"), ("~", "updated"), ("-", "deleted")) if row[name]]
    return " ".join(moved) or (f"+{row['rows_out']:,}" if row["rows_out"] else "nothing new")


def _draw_run_bars(runs: Sequence[RunTimes], colours: Mapping[str, str]) -> dict[str, Any]:
    most = max((run.seconds for run in runs), default=0.0)
    bars = []
    for place, run in enumerate(runs):
        top, parts = _BARS_HIGH, []
        for stage in run.stages:
            height = int(_BARS_HIGH * float(stage["seconds"]) / most) if most else 0
            top -= height
            parts.append({"colour": colours.get(stage["stage"], _OTHER_COLOUR), "y": top, "height": height})
        stages = ", ".join(f"{stage['stage']} {stage['seconds']} s" for stage in run.stages)
        bars.append({
            "x": 4 + place * 22,
            "parts": parts,
            "failed": any(stage["state"] == "failed" for stage in run.stages),
            "about": f"{run.run}, {format_instant(run.rows[0]['started_at'])}: {run.seconds} s. {stages}",
        })
    return {"runs": bars, "most": most, "width": 10 + 22 * len(runs)}


def _make_section(
    title: str, about: str, columns: Iterable[tuple[str, str, bool]], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """columns: name in the rows, title, whether it is a number."""
    named = [{"name": name, "title": shown, "number": number} for name, shown, number in columns]
    return {"title": title, "about": about, "columns": named, "rows": rows}


def _section_of_tables(state: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    last = {row["flow"]: row for row in rows if row["steps"]}
    found = [
        {
            **table,
            "name": ledger.sql_name(table),
            "size": format_size(table["bytes"]),
            "seconds": last.get(table["table"], {}).get("seconds"),
            "task_seconds": last.get(table["table"], {}).get("spark", {}).get("task_seconds"),
            "written_by": last.get(table["table"], {}).get("written_by"),
            "recomputed": last.get(table["table"], {}).get("recomputed"),
        }
        for table in state["tables"]
    ]
    columns = [("layer", "layer", False), ("name", "table", False), ("rows", "rows", True), ("files", "files", True)]
    columns += [("size", "size", True), ("version", "version", True), ("seconds", "seconds, last time", True)]
    columns += [
        ("task_seconds", "of Spark's tasks", True),
        ("written_by", "written by", False),
        ("recomputed", "recomputed", False),
    ]
    return _make_section("Sizes and costs", "Seconds are those of the last run that did anything to the table.", columns, found)


def _section_of_rows_apart(rows: Sequence[Row], runs: Sequence[RunTimes]) -> dict[str, Any]:
    """Rows that were set aside or came late, over the runs."""
    counts = (*ALERT_COUNTS, "late")
    names = {run.run for run in runs}
    found = []
    for flow in dict.fromkeys(row["flow"] for row in rows):
        ours = [row for row in rows if row["flow"] == flow and row["run"] in names]
        sums = {name: sum(row[name] or 0 for row in ours) for name in counts}
        if any(sums.values()):
            found.append({
                "flow": flow,
                **{name: count or None for name, count in sums.items()},
                "trend": _draw_trend(ours, counts),
            })
    columns = [("flow", "table", False), *((name, name, True) for name in counts), ("trend", "by run", False)]
    return _make_section("Rows that went another way", f"Sums of the last {len(runs)} runs.", columns, found)


def _draw_trend(rows: Sequence[Row], counts: Sequence[str]) -> str:
    sums = [sum(row[name] or 0 for name in counts) for row in rows if row["seconds"]][-24:]
    most = max(sums, default=0)
    return "".join(_SPARKS[int((len(_SPARKS) - 1) * number / most)] for number in sums) if most else ""


def _section_of_rules(rows: Sequence[Row]) -> dict[str, Any]:
    """Expectations that rows of the last looked at runs did not meet."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        for rule, count in row["rules"].items():
            known = last.get((row["flow"], rule), {"total": 0})
            last[row["flow"], rule] = {
                "flow": row["flow"],
                "rule": rule,
                "rows": count,
                "total": known["total"] + count,
                "text": "",
            }
        for rule, told in row["table_rules"].items():
            if told["met"] is False:
                last[row["flow"], rule] = {
                    "flow": row["flow"],
                    "rule": rule,
                    "rows": told["count"],
                    "total": None,
                    "text": "on the whole table",
                }
            else:
                last.pop((row["flow"], rule), None)  # fmt: skip
    columns = [
        ("flow", "table", False),
        ("rule", "expectation", False),
        ("rows", "rows, last time", True),
        ("total", "in all runs", True),
    ]
    columns += [("text", "", False)]
    about = "Rows that did not meet an expectation, whatever became of them."
    return _make_section("Expectations that were not met", about, columns, list(last.values()))


def _section_of_upkeep(rows: Sequence[Row]) -> dict[str, Any]:
    stages = {OPTIMIZE.name, VACUUM.name}
    found = [
        {"at": format_instant(row["ended_at"]), **{name: row[name] for name in ("stage", "flow", "note", "written_by")}}
        for row in reversed(rows)
        if row["stage"] in stages and row["version_before"] != row["version_after"]
    ]
    columns = [("at", "at (UTC)", False), ("stage", "stage", False), ("flow", "table", False), ("note", "what", False)]
    return _make_section(
        "Upkeep", "The last rewrites and removals of files.", [*columns, ("written_by", "by", False)], found[:15]
    )


def _section_of_failures(rows: Sequence[Row]) -> dict[str, Any]:
    found = [
        {"at": format_instant(row["ended_at"]), **{name: row[name] for name in ("run", "stage", "flow")}}
        for row in reversed(rows)
        if row["state"] == "failed"
    ]
    columns = [("at", "at (UTC)", False), ("run", "run", False), ("stage", "stage", False), ("flow", "table", False)]
    return _make_section("Failures", "The last ones; the log of the run says why.", columns, found[:10])


def _section_of_erasures(records: PipelineRecords) -> dict[str, Any]:
    found = [
        {
            "request": one.request,
            "state": one.state,
            "due": format_instant(one.due_at),
            "physical": format_instant(one.physical_due_at),
            "certified": format_instant(one.certified[-1]) if one.certified else None,
        }
        for one in due.read_request_standings(records)[::-1]
    ]
    columns = [("request", "request", False), ("state", "state", False), ("due", "to be proved by", False)]
    columns += [("physical", "bytes may go from", False), ("certified", "certificate", False)]
    return _make_section("Erasures", "Requests by their ids; nobody is named.", columns, found[:30])
