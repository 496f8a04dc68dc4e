"""The tasks of the DAG `erasure`: which requests are due, and the job that works at them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, BaseOperator

from orchestration import alerts
from orchestration.dag_run.request import RunRequest
from orchestration.spark_submit.operator import SluiceSparkSubmitOperator, run_identity_arguments
from orchestration.ui.links import SparkLog
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords, list_pipeline_records
from sluice.pipeline_stages import ERASE
from sluice.runs import due
from sluice.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

NOW, UNAPPROVED = "now", "unapproved"
"""What a job works at: all that may be worked at, or what somebody has just approved of."""
BY_DATA = "asked_by_data"
"""Whether rows may ask that nobody has looked at: then the job works at all that is due, with whom it finds."""


class DueOperator(BaseOperator):
    """Which of a pipeline's requests are due, by what is due of them: lists of ids, which Airflow keeps as the task's XCom.

    With whether rows may ask that nobody has looked at.

    Sends an alert for each open request whose deadline is near or over. Raises AirflowSkipException where nothing is due, and
    AirflowFailException (no retry) for an id in the form that no pipeline's request has.
    """

    def __init__(self, *, pipeline: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, list[str] | bool]:
        """Look at the requests' files."""
        records, now = PipelineRecords(Settings.current(), self.pipeline), datetime.now(UTC)
        asked = frozenset(context["params"].get("requests") or ())
        standings = due.read_request_standings(records)
        if asked:
            _refuse_unknown_request_ids(records.settings, asked)
        for one in standings:
            if one.open and one.due_at is not None and one.due_at - now <= due.ALERTED_BEFORE:
                alerts.alert_open_erasure(self.pipeline, one.request, one.state, one.due_at, now)
        found = due.find_due_requests(standings, now, asked)
        for name, ids in found.as_lists().items():
            self.log.info("%s: %s", name, ", ".join(ids) or "none")
        by_data = not asked and due.may_hold_unseen_requests(records)
        if (asked and not asked & {one.request for one in standings}) or not (found.now or found.unapproved or by_data):
            raise AirflowSkipException(f"Nothing is due of the erasures of {self.pipeline}.")
        return {**found.as_lists(), NOW: list(found.now), BY_DATA: by_data}


class EraseOperator(SluiceSparkSubmitOperator):
    """The job that erases and certifies, for the requests that the task `due` names. Returns its report, as every job's task.

    which: `now` or `unapproved`, an entry of that task's XCom. Raises AirflowSkipException where that is empty, and no rows ask.
    """

    operator_extra_links = (SparkLog(),)

    def __init__(self, *, which: str, due: str, **options: Any) -> None:
        super().__init__(stage=ERASE, **options)
        self.which = which
        self.due = due
        self._requests: list[str] = []

    def execute(self, context: Context) -> Any:
        """Submit the job for what is due."""
        found = context["ti"].xcom_pull(task_ids=self.due) or {}
        everything = self.which == NOW and found.get(BY_DATA)
        self._requests = [] if everything else found.get(self.which) or []
        if not self._requests and not everything:
            raise AirflowSkipException("Nothing of that kind is due.")
        return super().execute(context)

    def _build_request(self, context: Context) -> RunRequest:
        return RunRequest(ERASE)

    def _arguments(self, asked: RunRequest, context: Context, report: Path) -> list[str]:
        approved = ["--approved"] if self.which == UNAPPROVED else []
        return [
            "--pipeline",
            self.pipeline,
            "--requests",
            ",".join(self._requests),
            *approved,
            *run_identity_arguments(context, report),
        ]


def _refuse_unknown_request_ids(settings: Settings, asked: frozenset[str]) -> None:
    """Every pipeline's task looks for the ids in all pipelines: none of them would miss one that is nobody's."""
    try:
        due.check_requests_exist(
            [one for records in list_pipeline_records(settings) for one in due.read_request_standings(records)], asked
        )
    except UsageError as error:
        raise AirflowFailException(str(error)) from None
