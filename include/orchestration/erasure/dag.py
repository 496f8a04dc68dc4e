"""The DAG `erasure`: what is due of the requests to erase people, of every pipeline, daily and when somebody asks.

Only ids of requests are in a run's conf, its XCom, its rendered fields and its logs.

The form of the DAG `erasure`: ids of requests, and nothing that could be an identifier.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, TaskGroup, chain
from airflow.timetables.interval import CronDataIntervalTimetable

from orchestration.erasure.ids import DAG_ID, REQUEST
from orchestration.erasure.tasks import NOW, UNAPPROVED, DueOperator, EraseOperator
from orchestration.line import airflow_line
from orchestration.medallion import FIRST_DAY, TASK_DEFAULTS
from orchestration.server.home import airflow_pool_name
from sluice.settings import Settings, list_pipeline_names

_ERASE = (
    "Takes the rows out of every table and every place beside, removes the bytes of those whose retention is over, scans what is left, "
    "and issues certificates."
)


def erasure_dag(schedule: str = "0 5 * * *", owner: str = "sluice") -> DAG:
    """The DAG, with a group of tasks for each pipeline. It knows their names only: a broken pipeline.py stops nobody's erasure.

    Runs may overlap: one whose approval waits must not keep the next day's work from being done. The pools keep jobs apart.
    """
    settings = Settings.current()
    with DAG(
        dag_id=DAG_ID,
        description="Erases people who asked for it, and proves it.",
        doc_md=__doc__ + _DOCUMENTATION,
        schedule=CronDataIntervalTimetable(schedule, timezone="UTC"),
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=3,
        params=erasure_form_fields(),
        tags=["sluice", "erasure"],
        default_args={**TASK_DEFAULTS, "retries": 1, "owner": owner},
    ) as dag:
        for pipeline in list_pipeline_names(settings):
            with TaskGroup(pipeline, tooltip=f"The erasures of {pipeline}"):
                _add_erasure_tasks(pipeline, settings.erasure_approval)
    return dag


def _add_erasure_tasks(pipeline: str, asks_first: bool) -> None:
    due = DueOperator(
        task_id="due",
        task_display_name=f"{pipeline}: what is due",
        pipeline=pipeline,
        execution_timeout=timedelta(minutes=5),
        doc_md="Looks at the requests, and tells of those whose deadline is near. Skips the rest where nothing is due.",
    )
    chain(due, _erase_task(pipeline, "erase", "erase and certify", NOW, due.task_id))
    if asks_first and airflow_line() == 3:
        from orchestration.erasure.approval import ApprovalStep

        approve = ApprovalStep(
            task_id="approve",
            task_display_name=f"{pipeline}: approve",
            pipeline=pipeline,
            due=due.task_id,
            doc_md="Waits for somebody to approve. Rejected, or without an answer for 23 hours: asked again by the next run.",
        )
        chain(due, approve, _erase_task(pipeline, "erase_approved", "erase what was approved", UNAPPROVED, due.task_id))


def _erase_task(pipeline: str, name: str, title: str, which: str, due: str) -> EraseOperator:
    options: dict[str, Any] = {"pool": airflow_pool_name(pipeline), "doc_md": _ERASE, "execution_timeout": timedelta(hours=12)}
    return EraseOperator(
        task_id=name, task_display_name=f"{pipeline}: {title}", pipeline=pipeline, which=which, due=due, **options
    )


_DOCUMENTATION = """
A request is made with `sluice erase request PIPELINE`, which reads identifiers from a file or from standard input: never from this form, which
Airflow would keep. Trigger this DAG with the request's id, or with none for all that is due.

The rows leave every table at once (*logically erased*). The bytes go when the pipeline's retention time is over (*physically erased*), and a scan
of every byte below the roots then gives the certificate. It scans once more 30 days later.
"""


def erasure_form_fields() -> dict[str, Param]:
    """The fields by name."""
    return {
        "requests": Param(
            [],
            type="array",
            items={"type": "string", "pattern": REQUEST},
            uniqueItems=True,
            maxItems=1000,
            title="Requests",
            description="Ids of requests (`sluice erase list`), one a line. None: all that is due. Never write an identifier here.",
        )
    }
