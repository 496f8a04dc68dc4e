"""A stage of a pipeline as a task: its job's arguments, how it is submitted and followed, and its report."""

from __future__ import annotations

import json
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
from orchestration.dag_run import RunRequest, reason_to_postpone_upkeep, run_identity, run_identity_arguments
from orchestration.spark_submit.chosen_spark import ClusterManager
from orchestration.spark_submit.cluster_driver import SubmittedDriver
from orchestration.spark_submit.cluster_task import ClusterTask, follow_driver, name_attempts
from orchestration.spark_submit.driver_trigger import STOP_SECONDS, DriverTrigger
from orchestration.spark_submit.hook import choose_driver_manager_by_connection, choose_spark_by_connection
from orchestration.spark_submit.job_failures import explain_failed_job, leave_to_kept_running
from orchestration.spark_submit.job_secrets import give_secrets_to_job
from orchestration.spark_submit.parent_runs import find_parent_runs
from orchestration.spark_submit.stage_job import ProcessWithoutSpark, StageJob
from orchestration.spark_submit.stop_requests import remove_earlier_stop_request
from orchestration.ui import stage_task_links
from sluice.errors import SluiceError, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import Stage
from sluice.runs import quiet
from sluice.runs.followed_job import STOPPED, JobEnd, collect_ended_jobs, find_living_job
from sluice.runs.lease import holder
from sluice.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


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
        stage: Stage,
        alert_when: Mapping[str, float] | None = None,
        conf: dict[str, str] | None = None,
        conn_id: str = "spark_default",
        deferrable: bool | None = None,
        **options: Any,
    ) -> None:
        application = Settings.current().root / "spark_jobs" / f"{stage.name}.py"
        super().__init__(
            application=str(application),
            name=f"sluice-{pipeline}-{stage.name}",
            conf=conf,
            conn_id=conn_id,
            **options,
        )
        self.pipeline = pipeline
        self.stage = stage
        self.alert_when = dict(alert_when or {})
        by_default = airflow_conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = by_default if deferrable is None else deferrable
        self._process_without_spark = ProcessWithoutSpark()
        self._cluster_task: ClusterTask | None = None
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
        arguments = self._build_job_arguments(asked, context)
        parents = find_parent_runs(settings, context)
        job = StageJob(records, self.name, self._conn_id, run, arguments, self.conf or {}, parents)
        manager = choose_driver_manager_by_connection(settings, self._conn_id)
        end = self._run_on_cluster(job, asked, manager, context) if manager else self._run_beside_task(job, asked, context)
        return self._finish_job(records, asked, run, end)

    def _run_beside_task(self, job: StageJob, asked: RunRequest | None, context: Context) -> JobEnd:
        """Run the stage without Spark, or else submit its job and wait: its driver is a process of this worker."""
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder, give_secrets_to_job(job.records) as given:
            # Airflow's secrets are in no file that could be compared.
            if asked is not None and asked.takes_what_is_new and not given and (end := self._run_without_spark(job)):
                return end
            report = Path(folder) / "report.json"
            self._hook = hook = job.make_hook(("--report", str(report)), given=given)
            self._refuse_if_killed()
            try:
                unwrap(SparkSubmitOperator.execute)(self, context)  # Airflow 2 warns if an `execute` calls another operator's
            except AirflowException:
                if not hook.exit_code:
                    raise
                return JobEnd(hook.exit_code, hook.last_line or "it wrote nothing", _read_report(report))
            except AirflowTaskTimeout:
                hook.stop_submit()
                self._alert_of_failed_job(JobEnd(SluiceError.exit_code, report=_read_report(report)), job.run)
                raise
            finally:
                hook.stop_submit()  # only after an interrupt is anything left to stop
            return JobEnd(0, report=_read_report(report))

    def _run_on_cluster(self, job: StageJob, asked: RunRequest | None, manager: ClusterManager, context: Context) -> JobEnd:
        """Run the stage without Spark, or else follow a driver on the cluster to its end; or defer the task, and follow it then."""
        attempts = name_attempts(context, self.task_id, job.arguments)
        for ended in collect_ended_jobs(job.records, attempts):  # of attempts that ended before their drivers did
            self._alert_of_failed_job(ended, job.run)
        if asked is not None and asked.takes_what_is_new and (end := self._run_without_spark(job)):
            return end
        self._cluster_task = on_cluster = ClusterTask(job, manager, attempts)
        self._refuse_if_killed()
        if driver := on_cluster.find_driver_at_work():
            self.log.info("The driver of an earlier attempt is at work. This one follows it.")
        else:
            driver = on_cluster.submit_driver(self.application, context["ti"].try_number)
        if self.deferrable:
            self.defer(
                trigger=DriverTrigger(**asdict(driver), until=_end_of(self.execution_timeout)),
                method_name=self.finish_deferred.__name__,
            )
        return on_cluster.follow_to_end(driver)

    def finish_deferred(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after a trigger has seen the end of the driver, or has given it up. Returns and raises what `execute` does."""
        asked, run = self._build_request(context), run_identity(context)
        settings = choose_spark_by_connection(Settings.current(), self._conn_id)
        manager = choose_driver_manager_by_connection(settings, self._conn_id)
        if manager is None:
            raise AirflowException(f"{self.name}: its connection no longer uses cluster mode")
        followed = follow_driver(SubmittedDriver(**event["driver"]), manager, settings)
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
        followed.forget()
        return self._finish_job(PipelineRecords(settings, self.pipeline), asked, run, end)

    def on_kill(self) -> None:
        """Stop the job: ask it first. Airflow 3 goes on with `execute` afterwards, which must not submit it then."""
        self._killed = True
        self._process_without_spark.kill()
        if self._cluster_task is not None:
            self._cluster_task.kill()
        elif self._hook is not None:
            self._hook.on_kill()

    def _run_without_spark(self, job: StageJob) -> JobEnd | None:
        """Let Python alone run the stage if the pipeline is quiet, or if this is upkeep that needs no Spark. Returns its end; None without one.

        If its process fails for any reason, the job is to be submitted. Raises AirflowException if the task was killed, or the run asked to
        stop.
        """
        if self.stage.without_spark is None and quiet.find_quiet_mark(job.records, datetime.now(UTC)) is None:
            return None
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            report = Path(folder) / "report.json"
            arguments = [*job.arguments, "--report", str(report)]
            end = self._process_without_spark.run_stage(self.stage.name, arguments, job.build_environment_without_spark())
            self._refuse_if_killed()
            if end.exit_code == STOPPED:
                raise AirflowException(f"{end.output} The next attempt goes on from there.")
            if end.exit_code:
                return None
            self.log.info("%s", end.output)
            return JobEnd(0, report=_read_report(report))

    def _refuse_unanswered_stop(self, records: PipelineRecords, context: Context) -> None:
        """Raises AirflowException if this DAG run was asked to stop and no job has obeyed that."""
        run = run_identity(context)
        request = records.stop_request(run)
        if not request.exists():
            return
        first_attempt = context["ti"].try_number == 1
        if remove_earlier_stop_request(
            request, context["dag_run"].start_date, first_attempt, lambda: _is_job_of_run_alive(records, run)
        ):
            raise AirflowException(
                f"{self.name}: sluice stop asked this run to stop, in the last batch of the task before. The next attempt goes on from there."
            )

    def _build_job_arguments(self, asked: RunRequest | None, context: Context) -> list[str]:
        """The arguments of the job's script, but for the file of its answer. A subclass whose work has no mode replaces this."""
        assert asked is not None
        return [*asked.as_job_arguments(self.pipeline), *run_identity_arguments(context)]

    def _build_request(self, context: Context) -> RunRequest | None:
        """What the run is asked for; None from a subclass whose work is no stage of a run, and so has no mode."""
        try:
            postponed = reason_to_postpone_upkeep(context) if self.stage.once_in_backfill else None
            asked = RunRequest.of(context)
        except UsageError as error:
            raise AirflowFailException(str(error)) from None
        if postponed:
            raise AirflowSkipException(postponed)
        return asked

    def _refuse_if_killed(self) -> None:
        if self._killed:
            raise AirflowException(f"{self.name}: killed before it was submitted")

    def _finish_job(self, records: PipelineRecords, asked: RunRequest | None, run: str, end: JobEnd) -> dict[str, Any] | None:
        """Send the alerts of what the job did, and return its report. Raises the exception for its exit code."""
        if end.exit_code:
            self._alert_of_failed_job(end, run)
            raise explain_failed_job(records, self.stage, self.name, asked, end) from None
        if end.report is None:
            self.log.info("No report came back; a driver on another host writes it there.")
            return None
        alerts.alert_exceeded_rules(self.pipeline, run, end.report, self.alert_when)
        return end.report

    def _alert_of_failed_job(self, end: JobEnd, run: str) -> None:
        """Send the alerts of what a job did before it failed: the next attempt finds none of it."""
        if end.report is not None:
            alerts.alert_exceeded_rules(self.pipeline, run, end.report, self.alert_when)


def _is_job_of_run_alive(records: PipelineRecords, run: str) -> bool:
    """Whether a job of this DAG run is seen to work: it holds the lease, or it is the driver on a cluster of an earlier attempt.

    That takes some seconds if a driver did not say how it ended.
    """
    return holder.does_run_hold_lease(records, run) or find_living_job(records, f"{run}-") is not None


def _read_report(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def _end_of(timeout: timedelta | None) -> float | None:
    return time.time() + timeout.total_seconds() if timeout else None
