"""The DAG `erasure`: carries out what is due of erasure requests, for every pipeline, daily and when triggered.

A run's conf, its XCom, its rendered fields and its logs hold ids of requests, and nothing that could be an identifier.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowFailException,
    AirflowSkipException,
    BaseOperator,
    Param,
    TaskGroup,
    chain,
)
from airflow.timetables.interval import CronDataIntervalTimetable

from orchestration import alerts
from orchestration.airflow_line import airflow_line
from orchestration.dag_run import RunRequest, run_identity_arguments
from orchestration.erasure.ids import DAG_ID, REQUEST
from orchestration.medallion import FIRST_DAY, TASK_DEFAULTS, build_list_field
from orchestration.server.home import airflow_pool_name
from orchestration.spark_submit.operator import SluiceSparkSubmitOperator
from orchestration.ui import SparkLog
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords, list_pipeline_records
from sluice.pipeline_stages import ERASE
from sluice.runs import due_requests
from sluice.settings import Settings, list_pipeline_names

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

NOW, UNAPPROVED = "now", "unapproved"
"""Which requests a job carries out: all that may be carried out, or those that somebody has just approved."""
BY_DATA = "asked_by_data"
"""Whether there may be unread rows that are requests: then the job carries out all that is due, including those that it finds."""


class DueOperator(BaseOperator):
    """Lists a pipeline's due requests, by what is due: ids, which Airflow keeps as the task's XCom.

    Also says whether there may be unread rows that are requests. Sends an alert for each open request whose deadline is near or over.
    Raises AirflowSkipException if nothing is due, and AirflowFailException (no retry) for an id in the form that no request has.
    """

    def __init__(self, *, pipeline: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, list[str] | bool]:
        """Read the requests' files."""
        records, now = PipelineRecords(Settings.current(), self.pipeline), datetime.now(UTC)
        asked = frozenset(context["params"].get("requests") or ())
        if asked:
            _refuse_unknown_request_ids(records.settings, asked)
        for one in due_requests.find_requests_to_alert(records, now):
            alerts.alert_open_erasure(self.pipeline, one.request, one.state, one.deadline, now)
        found = due_requests.find_due_requests(records, now, asked)
        for name, ids in found.as_lists().items():
            self.log.info("%s: %s", name, ", ".join(ids) or "none")
        by_data = not asked and due_requests.may_hold_unseen_requests(records)
        if not (found.now or found.unapproved or by_data):
            raise AirflowSkipException(f"Nothing is due of the erasures of {self.pipeline}.")
        return {**found.as_lists(), NOW: list(found.now), BY_DATA: by_data}


class EraseOperator(SluiceSparkSubmitOperator):
    """Runs the job that erases and certifies, for the requests that the task `due` lists. Returns the job's report.

    which: `now` or `unapproved`, an entry of that task's XCom. listed_by: that task's id. Raises AirflowSkipException if the entry is empty
    and there are no unread rows.
    """

    operator_extra_links = (SparkLog(),)

    def __init__(self, *, which: str, listed_by: str, **options: Any) -> None:
        super().__init__(stage=ERASE, **options)
        self.which = which
        self.listed_by = listed_by
        self._requests: list[str] = []

    def execute(self, context: Context) -> Any:
        """Submit the job for what is due."""
        found = context["ti"].xcom_pull(task_ids=self.listed_by) or {}
        everything = self.which == NOW and found.get(BY_DATA)
        self._requests = [] if everything else found.get(self.which) or []
        if not self._requests and not everything:
            raise AirflowSkipException("Nothing of that kind is due.")
        return super().execute(context)

    def _build_request(self, context: Context) -> None:
        return None

    def _build_job_arguments(self, asked: RunRequest | None, context: Context) -> list[str]:
        approved = ["--approved"] if self.which == UNAPPROVED else []
        return [
            "--pipeline",
            self.pipeline,
            "--requests",
            ",".join(self._requests),
            *approved,
            *run_identity_arguments(context),
        ]


def _refuse_unknown_request_ids(settings: Settings, asked: frozenset[str]) -> None:
    """Raises for an id that no request has. Each pipeline's task searches all pipelines: otherwise no task would report an unknown id."""
    try:
        due_requests.check_requests_exist(list_pipeline_records(settings), asked)
    except UsageError as error:
        raise AirflowFailException(str(error)) from None


def erasure_dag(schedule: str = "0 5 * * *", owner: str = "sluice") -> DAG:
    """The DAG, with a group of tasks for each pipeline. It knows only their names, so a broken pipeline.py stops no erasure.

    Runs may overlap: one that waits for approval must not hold up the next day's. The pools keep jobs apart.
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
    listing = DueOperator(
        task_id="due",
        task_display_name=f"{pipeline}: what is due",
        pipeline=pipeline,
        execution_timeout=timedelta(minutes=5),
        doc_md="Reads the requests, and alerts about those whose deadline is near. Skips the rest if nothing is due.",
    )
    chain(listing, _erase_task(pipeline, ERASE.name, ERASE.title, NOW, listing.task_id))
    if asks_first and airflow_line() == 3:
        from orchestration.erasure.approval import ApprovalStep

        approve = ApprovalStep(
            task_id="approve",
            task_display_name=f"{pipeline}: approve",
            pipeline=pipeline,
            listed_by=listing.task_id,
            doc_md="Waits for somebody to approve. After a rejection, or without an answer for 23 hours, the next run asks again.",
        )
        chain(listing, approve, _erase_task(pipeline, "erase_approved", "erase what was approved", UNAPPROVED, listing.task_id))


def _erase_task(pipeline: str, name: str, title: str, which: str, listed_by: str) -> EraseOperator:
    options: dict[str, Any] = {
        "pool": airflow_pool_name(pipeline),
        "doc_md": ERASE.documentation,
        "execution_timeout": timedelta(hours=12),
    }
    return EraseOperator(
        task_id=name, task_display_name=f"{pipeline}: {title}", pipeline=pipeline, which=which, listed_by=listed_by, **options
    )


_DOCUMENTATION = """
A request is made with `sluice erase request PIPELINE`, which reads identifiers from a file or from standard input: never from this form, which
Airflow would keep. Trigger this DAG with the request's id, or with none for all that is due.

The rows leave every table at once (*logically erased*). The bytes go when the pipeline's retention time is over (*physically erased*), and a scan
of every byte below the roots then gives the certificate. A second scan follows 30 days later.
"""


def erasure_form_fields() -> dict[str, Param]:
    """The fields by name."""
    return {
        "requests": build_list_field(
            "Requests",
            REQUEST,
            "Ids of requests (`sluice erase list`), one a line. None: all that is due. Never write an identifier here.",
            most=1000,
        )
    }
