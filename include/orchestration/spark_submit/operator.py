"""A stage of a pipeline as a task: its job's arguments, how it is submitted and followed, and its report."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from airflow.providers.common.compat.sdk import (
    conf as airflow_conf,
)

from orchestration import alerts
from orchestration.dag_run import RunRequest, reason_to_postpone_upkeep, run_identity
from orchestration.spark_submit.chosen_spark import ClusterManager, build_job_environment
from orchestration.spark_submit.cluster_driver import (
    POLL_SECONDS,
    DriverFollower,
    SubmittedDriver,
    driver_submit_options,
    read_driver_name,
)
from orchestration.spark_submit.driver_trigger import STOP_SECONDS, DriverTrigger
from orchestration.spark_submit.hook import (
    SluiceSparkSubmitHook,
    choose_driver_manager_by_connection,
    choose_spark_by_connection,
)
from orchestration.spark_submit.job_arguments import digest_job_arguments, spark_job_arguments
from orchestration.spark_submit.job_code import job_code_to_ship
from orchestration.spark_submit.job_failures import explain_failed_job, leave_to_kept_running
from orchestration.spark_submit.job_secrets import give_secrets_to_job
from orchestration.spark_submit.parent_runs import ParentRuns, find_parent_runs
from orchestration.spark_submit.process_without_spark import ProcessWithoutSpark
from orchestration.spark_submit.stop_requests import remove_earlier_stop_request
from orchestration.ui import stage_task_links
from sluice.durable_files import remove_file_durably
from sluice.errors import SluiceError, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import describe_stage
from sluice.runs import quiet
from sluice.runs.followed_job import (
    JobEnd,
    JobLost,
    collect_ended_jobs,
    find_living_job,
    locate_followed_job,
    remove_old_followed_jobs,
)
from sluice.runs.waiting_bytes import choose_session_conf
from sluice.settings import Settings
from sluice.spark_process import find_spark_properties_file

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

KILLED_SECONDS = 3.0
"""How many seconds a killed task waits for a driver on a cluster that it asked to stop: Airflow gives it 5."""


class SluiceSparkSubmitOperator(SparkSubmitOperator):
    """One stage of a pipeline. Returns the job's report, which Airflow keeps as the task's XCom.

    options: those of any operator. Spark's properties go into conf, such as {"spark.driver.memory": "4g"}.
    alert_when: how many rows may fail a rule, by "table.rule", before an alert is sent. deferrable: whether a task in cluster mode leaves
    its worker while the driver works; by default Airflow's `[operators] default_deferrable`.
    Raises AirflowFailException (no retry) for exit code 2, for a form that contradicts itself and if tables differ from their recompute,
    AirflowException (retry) for any other exit code but 0, AirflowSkipException if a backfill leaves upkeep to another run.
    """

    operator_extra_links = stage_task_links()

    def __init__(
        self,
        *,
        pipeline: str,
        stage: str,
        alert_when: Mapping[str, float] | None = None,
        conf: dict[str, str] | None = None,
        conn_id: str = "spark_default",
        deferrable: bool | None = None,
        **options: Any,
    ) -> None:
        application = Settings.current().root / "spark_jobs" / f"{stage}.py"
        super().__init__(
            application=str(application),
            name=f"sluice-{pipeline}-{stage}",
            conf=conf,
            conn_id=conn_id,
            **options,
        )
        self.pipeline = pipeline
        self.stage = stage
        self.alert_when = dict(alert_when or {})
        by_default = airflow_conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = by_default if deferrable is None else deferrable
        self._followed: DriverFollower | None = None
        self._process_without_spark = ProcessWithoutSpark()
        self._killed = False

    def execute(self, context: Context) -> Any:  # wider than the provider's None, as an override may be
        """Submit the job unless the pipeline is quiet, wait for it and return its report; None if no report came back.

        In cluster mode a deferrable task leaves its worker instead of waiting, and `finish_deferred` goes on.
        """
        asked = self._build_request(context)
        run, settings = run_identity(context), choose_spark_by_connection(Settings.current(), self._conn_id)
        records = PipelineRecords(settings, self.pipeline)
        leave_to_kept_running(records, asked, certain=True)
        # Before the process without Spark too: it obeys a request, but takes none away.
        self._refuse_unanswered_stop(records, context)
        manager = choose_driver_manager_by_connection(settings, self._conn_id)
        if manager is not None:
            return self._run_on_cluster(asked, context, records, manager)
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder, give_secrets_to_job(records) as given:
            report = Path(folder) / "report.json"
            self.application_args = self._arguments(asked, context, ("--report", str(report)))
            # Airflow's secrets are in no file that could be compared.
            parents = find_parent_runs(settings, context)
            if asked.takes_what_is_new and not given and self._is_done_without_spark(records, self.application_args, parents):
                return self._alert_and_return(_read_report(report), run)
            self._hook = hook = self._make_hook(records, run, given=given, conf=parents.as_spark_conf() if parents else {})
            try:
                unwrap(SparkSubmitOperator.execute)(self, context)  # Airflow 2 warns if an `execute` calls another operator's
            except AirflowException:
                if not hook.exit_code:
                    raise
                end = JobEnd(hook.exit_code, hook.last_line or "it wrote nothing", _read_report(report))
                self._alert_of_failed_job(end, run)
                raise explain_failed_job(records, self.stage, self.name, asked, end) from None
            except AirflowTaskTimeout:
                hook.stop_submit()
                self._alert_of_failed_job(JobEnd(SluiceError.exit_code, report=_read_report(report)), run)
                raise
            finally:
                hook.stop_submit()  # only after an interrupt is anything left to stop
            return self._alert_and_return(_read_report(report), run)

    def _run_on_cluster(self, asked: RunRequest, context: Context, records: PipelineRecords, manager: ClusterManager) -> Any:
        """Let the cluster start the driver, unless that of an earlier attempt does the same, and follow it; or defer the task, and follow it then."""
        run, task = run_identity(context), re.sub("[^A-Za-z0-9]", "_", self.task_id)
        # A run that is backfilled again may be asked for something else.
        attempts = f"{run}-{task}-{digest_job_arguments(self._arguments(asked, context, ('', '')), context)}"
        for ended in collect_ended_jobs(records, f"{attempts}-"):  # of attempts that ended before their drivers did
            self._alert_of_failed_job(ended, run)
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            report = Path(folder) / "report.json"
            arguments = self._arguments(asked, context, ("--report", str(report)))
            parents = find_parent_runs(records.settings, context)
            if asked.takes_what_is_new and self._is_done_without_spark(records, arguments, parents):
                return self._alert_and_return(_read_report(report), run)
        remove_old_followed_jobs(records)
        if living := find_living_job(records, f"{attempts}-"):
            self.log.info("The driver of an earlier attempt is at work. This one follows it.")
            driver = SubmittedDriver(self._conn_id, self.pipeline, run, living.stem, "", time.time())
            self._hook = self._make_hook(records, run, manager)
        else:
            driver = self._submit_to_cluster(asked, context, records, manager, f"{attempts}-{context['ti'].try_number}")
        if self.deferrable:
            self.defer(
                trigger=DriverTrigger(**asdict(driver), until=_end_of(self.execution_timeout)),
                method_name=self.finish_deferred.__name__,
            )
        assert isinstance(self._hook, SluiceSparkSubmitHook)
        self._followed = DriverFollower(driver, self._hook, manager, records.settings)
        if self._killed:  # while it was looked for
            self._followed.stop(KILLED_SECONDS)
            raise AirflowException(f"{self.name}: killed before it was followed")
        try:
            while (end := self._followed.look()) is None:
                time.sleep(POLL_SECONDS)
        except JobLost as error:
            self._followed.stop(0)  # or it would begin when the cluster has room, and nobody would follow it
            raise AirflowException(f"{self.name}: {error}") from None
        return self._finish_on_cluster(records, asked, self._followed, end)

    def _submit_to_cluster(
        self, asked: RunRequest, context: Context, records: PipelineRecords, manager: ClusterManager, attempt: str
    ) -> SubmittedDriver:
        run = run_identity(context)
        followed_at = locate_followed_job(records, attempt)
        remove_file_durably(followed_at)  # of this attempt, before a user cleared it
        self.application_args = self._arguments(asked, context, ("--followed-at", str(followed_at)))
        options = driver_submit_options(records.settings, manager, self.application)
        if parents := find_parent_runs(records.settings, context):
            options["conf"] = {**options.get("conf", {}), **parents.as_spark_conf()}
        application = options.pop("application")
        self._hook = hook = self._make_hook(records, run, manager, **options)
        try:
            hook.submit(application)
        except (AirflowException, RuntimeError):
            reason = hook.last_line or "it wrote nothing"
            raise AirflowException(f"{self.name}: the cluster did not take the driver: {reason}") from None
        finally:
            hook.stop_submit()
        return SubmittedDriver(self._conn_id, self.pipeline, run, attempt, read_driver_name(hook, manager), time.time())

    def finish_deferred(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after a trigger has seen the end of the driver, or has given it up. Returns and raises what `execute` does."""
        asked, run = self._build_request(context), run_identity(context)
        settings = choose_spark_by_connection(Settings.current(), self._conn_id)
        records = PipelineRecords(settings, self.pipeline)
        manager = choose_driver_manager_by_connection(settings, self._conn_id)
        if manager is None:
            raise AirflowException(f"{self.name}: its connection no longer uses cluster mode")
        driver = SubmittedDriver(**event["driver"])
        followed = DriverFollower(driver, self._make_hook(records, run, manager), manager, settings)
        if "lost" in event:
            followed.stop(0)
            raise AirflowException(f"{self.name}: {event['lost']}")
        if "too_long" in event:
            if end := followed.stop(STOP_SECONDS):
                self._alert_of_failed_job(end, run)
            raise AirflowException(f"{self.name}: it took longer than its execution_timeout, so it was stopped.")
        end = followed.look()
        if end is None:
            raise AirflowException(f"{self.name}: the file in which the driver reported how it ended is gone.")
        return self._finish_on_cluster(records, asked, followed, end)

    def _finish_on_cluster(self, records: PipelineRecords, asked: RunRequest, followed: DriverFollower, end: JobEnd) -> Any:
        followed.forget()
        if end.exit_code:
            self._alert_of_failed_job(end, followed.run)
            raise explain_failed_job(records, self.stage, self.name, asked, end)
        return self._alert_and_return(end.report, followed.run)

    def _make_hook(
        self, records: PipelineRecords, run: str, on_cluster: ClusterManager | None = None, **options: Any
    ) -> SluiceSparkSubmitHook:
        if self._killed:
            raise AirflowException(f"{self.name}: killed before it was submitted")
        code = job_code_to_ship(records.settings)
        return SluiceSparkSubmitHook(
            stop_request=records.stop_request(run),
            conn_id=self._conn_id,
            # What the DAG says wins.
            conf={**choose_session_conf(records, run), **options.pop("conf", {}), **(self.conf or {})},
            properties_file=str(find_spark_properties_file(records.settings)),
            py_files=str(code) if code else None,
            name=self.name,
            application_args=self.application_args,
            settings=records.settings,
            on_cluster=on_cluster,
            **options,
        )

    def _refuse_unanswered_stop(self, records: PipelineRecords, context: Context) -> None:
        """Raises AirflowException if this DAG run was asked to stop and no job has obeyed that."""
        request = records.stop_request(run_identity(context))
        if not request.exists():
            return
        if remove_earlier_stop_request(request, context["dag_run"].start_date, context["ti"].try_number == 1):
            raise AirflowException(
                f"{self.name}: sluice stop asked this run to stop, in the last batch of the task before. The next attempt goes on from there."
            )

    def on_kill(self) -> None:
        """Stop the job: ask it first. Airflow 3 goes on with `execute` afterwards, which must not submit it then."""
        self._killed = True
        self._process_without_spark.kill()
        if self._followed is not None:
            self._followed.stop(KILLED_SECONDS)
        elif self._hook is not None:
            self._hook.on_kill()

    def _is_done_without_spark(self, records: PipelineRecords, arguments: list[str], parents: ParentRuns | None) -> bool:
        """Whether Python alone has run the stage: the pipeline is quiet, or this is upkeep that needs no Spark.

        If its process fails for any reason, the job is submitted. parents: the runs above the job. Raises AirflowException if the task
        was killed, or the run asked to stop.
        """
        if not describe_stage(self.stage).without_spark and quiet.find_quiet_mark(records, datetime.now(UTC)) is None:
            return False
        environment = build_job_environment(records.settings) | (parents.as_environment() if parents else {})
        end = self._process_without_spark.run_stage(self.stage, arguments, environment)
        if self._killed:
            raise AirflowException(f"{self.name}: killed before it was submitted")
        if end.exit_code == quiet.STOPPED:
            raise AirflowException(f"{end.output} The next attempt goes on from there.")
        if end.exit_code == 0:
            self.log.info("%s", end.output)
        return end.exit_code == 0

    def _arguments(self, asked: RunRequest, context: Context, answer: tuple[str, str]) -> list[str]:
        """The arguments of the job's script, which a subclass may replace. answer: as in `spark_job_arguments`."""
        return spark_job_arguments(self.pipeline, asked, context, answer)

    def _build_request(self, context: Context) -> RunRequest:
        try:
            postponed = reason_to_postpone_upkeep(context) if describe_stage(self.stage).once_in_backfill else None
            asked = RunRequest.of(context)
        except UsageError as error:
            raise AirflowFailException(str(error)) from None
        if postponed:
            raise AirflowSkipException(postponed)
        return asked

    def _alert_of_failed_job(self, end: JobEnd, run: str) -> None:
        """Send the alerts of what a job did before it failed: the next attempt finds none of it."""
        if end.report is not None:
            alerts.alert_exceeded_rules(self.pipeline, run, end.report, self.alert_when)

    def _alert_and_return(self, report: dict[str, Any] | None, run: str) -> dict[str, Any] | None:
        if report is None:
            self.log.info("No report came back; a driver on another host writes it there.")
            return None
        alerts.alert_exceeded_rules(self.pipeline, run, report, self.alert_when)
        return report


def _read_report(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def _end_of(timeout: timedelta | None) -> float | None:
    return time.time() + timeout.total_seconds() if timeout else None
