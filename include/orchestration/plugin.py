"""Sluice's plugin for Airflow: pages for users who may see a DAG, one writer at a time on SQLite, an audit log without identifiers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from html import escape
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from orchestration.airflow_line import airflow_line
from orchestration.erasure.ids import RequestIdsOnly
from orchestration.server import sqlite
from orchestration.ui import PAGES, render_history_page, stage_task_links
from sluice.settings import Settings, list_pipeline_names

_REPORT_SECONDS = 120


def render_report_page(settings: Settings, pipeline: str) -> str | None:
    """The page that `sluice report` writes, as HTML; None if the pipeline does not exist.

    A separate process makes it, with packages that Airflow does not load. If that fails, the page says why.
    """
    # Imported only now: every process of Airflow loads its plugins.
    from orchestration.spark_submit.chosen_spark import build_job_environment

    if pipeline not in list_pipeline_names(settings):
        return None
    done = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "report", pipeline, "--to", "-"],
        env=build_job_environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_REPORT_SECONDS,
    )
    if done.returncode == 0:
        return done.stdout
    return f"<!doctype html><title>{escape(pipeline)}</title><p>There is no report: {escape(done.stderr.strip()[-500:])}</p>"


@cache
def _make_history_application() -> Any:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import HTMLResponse

    application = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    # Airflow does not protect the application of a plugin, which has to check access itself.
    allowed = [Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE))]

    def answer(page: str | None) -> HTMLResponse:
        if page is None:
            raise HTTPException(404, "There is no such pipeline.")
        return HTMLResponse(page, headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"})

    @application.get("/{dag_id}/history", dependencies=allowed)
    def history(dag_id: str, stage: str = "") -> HTMLResponse:
        return answer(render_history_page(Settings.current(), dag_id, stage))

    @application.get("/{dag_id}/report", dependencies=allowed)
    def report(dag_id: str) -> HTMLResponse:
        return answer(render_report_page(Settings.current(), dag_id))

    return application


async def _serve_history_pages(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    # Built at the first request: every process of Airflow loads its plugins, but only one of them serves pages.
    await _make_history_application()(scope, receive, send)


def _api_server_middlewares() -> list[dict[str, Any]]:
    one_writer = [{"name": "one writer on SQLite", "middleware": sqlite.OneWriter}] if sqlite.is_sqlite_used() else []
    return [*one_writer, {"name": "ids of erasure requests only", "middleware": RequestIdsOnly}]


def _make_history_blueprint() -> Any:
    from airflow.www.auth import has_access_dag  # type: ignore[import-not-found]  # Airflow 2 alone has it
    from flask import Blueprint, abort, request

    blueprint = Blueprint("sluice", __name__, url_prefix=PAGES)

    @blueprint.get("/<dag_id>/history")
    @has_access_dag("GET")  # type: ignore[untyped-decorator]
    def history(dag_id: str) -> Any:
        return render_history_page(Settings.current(), dag_id, request.args.get("stage", "")) or abort(404)

    @blueprint.get("/<dag_id>/report")
    @has_access_dag("GET")  # type: ignore[untyped-decorator]
    def report(dag_id: str) -> Any:
        return render_report_page(Settings.current(), dag_id) or abort(404)

    return blueprint


LINKS = list(stage_task_links())


class SluicePlugin(AirflowPlugin):
    """Airflow finds this class through the entry point `airflow.plugins`."""

    name = "sluice"
    operator_extra_links = LINKS
    fastapi_apps = [{"name": "sluice", "app": _serve_history_pages, "url_prefix": PAGES}] if airflow_line() == 3 else []
    fastapi_root_middlewares = _api_server_middlewares() if airflow_line() == 3 else []
    flask_blueprints = [_make_history_blueprint()] if airflow_line() == 2 else []
