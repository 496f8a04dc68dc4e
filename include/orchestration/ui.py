"""Sluice's part of Airflow's UI: a page about a stage's tables, and a task's links to Sluice's pages and to its Spark driver's log.

The page shows the tables' latest commits and runs, read without a JVM.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.providers.common.compat.sdk import BaseOperatorLink

from orchestration.airflow_line import airflow_line
from sluice.pipeline_records import QUARANTINE, PipelineRecords
from sluice.printable import count_noun
from sluice.settings import Settings, list_pipeline_names

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator

PAGES = "/sluice"
"""The path under which the API server serves Sluice's own pages."""
COMMITS = 20
RUNS = 20
_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2rem;color:#222;background:#fff}table{border-collapse:collapse;margin:.5rem 0 2rem}"
    "th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #ddd;vertical-align:top}"
)


class TableHistory(BaseOperatorLink):
    """A link to the page with the commits and runs of the stage's tables."""

    name = "Table history"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The page's address."""
        return f"{_airflow_ui_address()}{PAGES}/{ti_key.dag_id}/history?stage={ti_key.task_id}"


class PipelineReport(BaseOperatorLink):
    """A link to the page that shows the whole pipeline."""

    name = "Pipeline report"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The page's address."""
        return f"{_airflow_ui_address()}{PAGES}/{ti_key.dag_id}/report"


class SparkLog(BaseOperatorLink):
    """A link to the log of this attempt. spark-submit runs the driver beside the task, so the task's log is also the driver's."""

    name = "Spark log"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The log's address."""
        run = urllib.parse.quote(ti_key.run_id, safe="")
        if airflow_line() == 2:
            return f"{_airflow_ui_address()}/dags/{ti_key.dag_id}/grid?dag_run_id={run}&task_id={ti_key.task_id}&tab=logs"
        return f"{_airflow_ui_address()}/dags/{ti_key.dag_id}/runs/{run}/tasks/{ti_key.task_id}?try_number={ti_key.try_number}"


def stage_task_links() -> tuple[BaseOperatorLink, ...]:
    """The links of a stage's task."""
    return (TableHistory(), PipelineReport(), SparkLog())


def _airflow_ui_address() -> str:
    section = "webserver" if airflow_line() == 2 else "api"
    return str(conf.get(section, "base_url", fallback="")).rstrip("/")


def render_history_page(settings: Settings, pipeline: str, stage: str) -> str | None:
    """The page as HTML; None if the pipeline does not exist. stage: a layer; any other stage shows all tables."""
    from sluice.runs import run_ledger

    if pipeline not in list_pipeline_names(settings):
        return None
    records = PipelineRecords(settings, pipeline)
    tables = [entry for entry in run_ledger.list_pipeline_tables(records) if entry["layer"] != QUARANTINE]
    of_layer = [entry for entry in tables if entry["layer"] == stage]
    runs = run_ledger.read_run_ledger(records)[::-1]
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
    rows = "? rows" if entry["rows"] is None else count_noun(entry["rows"], "row")
    size = f"version {entry['version']}, {rows}, {count_noun(entry['files'], 'file')}"
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
