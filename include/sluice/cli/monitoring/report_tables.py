"""The tables of `sluice report`: each is a node in the picture of the lineage, and a panel with its columns and versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sluice.cli.monitoring.lineage import describe_column_lineage
from sluice.cli.monitoring.report_charts import OTHER_COLOUR
from sluice.cli.printing import format_instant
from sluice.delta_log import is_delta_table
from sluice.lake import commit_history, log
from sluice.lake.pipeline_lake import PipelineLake
from sluice.printable import count_noun, format_seconds
from sluice.record_states import FAILED
from sluice.runs.run_ledger import Row
from sluice.runs.status import lineage_pictures
from sluice.runs.status.column_lineage_record import read_column_lineage
from sluice.runs.status.lineage_pictures import draw_column_lineage
from sluice.runs.summary import NOTHING_NEW

_VERSIONS = 5
_LETTERS = 25


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
