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

from sluice.cli.monitoring.report_charts import OTHER_COLOUR, draw_run_strips, draw_stage_bars
from sluice.cli.monitoring.report_sections import SECTIONS, ReportFacts, describe_last_failure
from sluice.cli.monitoring.report_tables import describe_nodes, describe_panels
from sluice.cli.monitoring.status import compute_status
from sluice.cli.name_lookup import select_pipelines
from sluice.cli.printing import AsJson, OnePipeline, escaping_console, format_instant, print_json
from sluice.declare.assembly.graph import Graph
from sluice.durable_files import PRIVATE, write_text_durably
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.printable import count_noun, escape_to_one_line, format_size
from sluice.private_files import make_private_folder
from sluice.record_states import FAILED
from sluice.runs import run_ledger
from sluice.runs.run_ledger import Row
from sluice.runs.status import lineage_pictures
from sluice.runs.status.diagnosis import diagnose_run
from sluice.runs.status.run_times import RunTimes, select_run_rows
from sluice.settings import Settings

_TEMPLATE = Path(__file__).parent / "report.html.j2"
_MOST_RUNS = 40
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
