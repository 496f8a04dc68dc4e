"""Links of a stage's task in Airflow's UI: to the history of its tables, and to the log of its Spark driver."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.providers.common.compat.sdk import BaseOperatorLink

from orchestration.line import airflow_line

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator

PAGES = "/sluice"
"""Where the API server serves Sluice's own pages."""


class TableHistory(BaseOperatorLink):
    """To the page with the commits and runs of the stage's tables."""

    name = "Table history"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The page's address."""
        return f"{_airflow_ui_address()}{PAGES}/{ti_key.dag_id}/history?stage={ti_key.task_id}"


class SparkLog(BaseOperatorLink):
    """To the log of this attempt: spark-submit runs the driver beside the task, so the task's log is the driver's."""

    name = "Spark log"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The log's address."""
        run = urllib.parse.quote(ti_key.run_id, safe="")
        if airflow_line() == 2:
            return f"{_airflow_ui_address()}/dags/{ti_key.dag_id}/grid?dag_run_id={run}&task_id={ti_key.task_id}&tab=logs"
        return f"{_airflow_ui_address()}/dags/{ti_key.dag_id}/runs/{run}/tasks/{ti_key.task_id}?try_number={ti_key.try_number}"


def stage_task_links() -> tuple[BaseOperatorLink, ...]:
    """The links of a stage's task."""
    return (TableHistory(), SparkLog())


def _airflow_ui_address() -> str:
    section = "webserver" if airflow_line() == 2 else "api"
    return str(conf.get(section, "base_url", fallback="")).rstrip("/")
