"""A page with what became of a stage's tables: their latest commits and runs, read without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from sluice.pipeline_records import PipelineRecords
from sluice.settings import QUARANTINE, Settings, list_pipeline_names

COMMITS = 20
RUNS = 20

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2rem;color:#222;background:#fff}table{border-collapse:collapse;margin:.5rem 0 2rem}"
    "th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #ddd;vertical-align:top}"
)


def render_history_page(settings: Settings, pipeline: str, stage: str) -> str | None:
    """The page as HTML; None where there is no such pipeline. stage: a layer; any other stage shows all tables."""
    from sluice.runs import ledger

    if pipeline not in list_pipeline_names(settings):
        return None
    records = PipelineRecords(settings, pipeline)
    tables = [entry for entry in ledger.list_pipeline_tables(records) if entry["layer"] != QUARANTINE]
    of_layer = [entry for entry in tables if entry["layer"] == stage]
    runs = ledger.read_run_ledger(records)[::-1]
    parts = [_render_table_history(entry, runs) for entry in of_layer or tables]
    body = "".join(parts) or "<p>There are no tables yet.</p>"
    title = escape(f"{pipeline}: {stage}" if of_layer else pipeline)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1>{body}</html>"
    )


def _render_table_history(entry: dict[str, Any], runs: Sequence[dict[str, Any]]) -> str:
    name = entry["table"]
    mine = [run for run in runs if run["flow"] == name][:RUNS]
    commits = _read_latest_commits(entry["path"])
    size = f"version {entry['version']}, {entry['rows'] if entry['rows'] is not None else '?'} rows, {entry['files']} files"
    shown = (
        "started_at",
        "run",
        "stage",
        "mode",
        "state",
        "rows_in",
        "rows_out",
        "quarantined",
        "version_after",
        "seconds",
        "note",
    )
    return (
        f"<h2>{escape(name)}</h2><p>{escape(size)}</p><h3>Commits</h3>"
        + _render_html_table(("version", "at", "operation"), commits)
        + "<h3>Runs</h3>"
        + _render_html_table(shown, [[run.get(column) for column in shown] for run in mine])
    )


def _read_latest_commits(path: str) -> list[list[object]]:
    from deltalake import DeltaTable

    found = DeltaTable(path).history(COMMITS)
    return [
        [entry.get("version"), datetime.fromtimestamp(entry["timestamp"] / 1000, UTC), entry.get("operation")] for entry in found
    ]


def _render_html_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}" for name in header)
    return (
        f"<table><tr>{head}"
        + "".join(f"<tr>{''.join(f'<td>{_render_html_cell(cell)}' for cell in row)}" for row in rows)
        + "</table>"
    )


def _render_html_cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return "" if value is None else escape(str(value))
