"""A stage of a pipeline as a task: what its job is told, what its exit code means, what becomes of its report."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

from orchestration import alerts
from orchestration.dag_run import RunRequest, reason_to_postpone_upkeep, run_identity
from orchestration.spark_submit import given_secrets
from orchestration.spark_submit.hook import SluiceSparkSubmitHook, choose_spark_by_connection, job_environment
from orchestration.spark_submit.job_code import job_code_to_ship
from orchestration.ui import stage_task_links
from sluice.errors import LeaseHeld, SluiceError, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import describe_stage
from sluice.runs import quiet
from sluice.runs.lease import holder
from sluice.runs.waiting_bytes import choose_session_conf
from sluice.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

LEASE_WAIT_SECONDS = 300
"""How long a job waits for another writer of the pipeline before it gives up with exit code 3."""


class SluiceSparkSubmitOperator(SparkSubmitOperator):
    """One stage of a pipeline. Returns the job's report, which Airflow keeps as the task's XCom.

    options: those of any operator. What Spark is to be told goes into conf, as {"spark.driver.memory": "4g"}.
    alert_when: how many rows may fail a rule, by "table.rule", before an alert is sent.
    Raises AirflowFailException (no retry) for exit code 2, for a form that contradicts itself and where tables differ from their recompute,
    AirflowException (retry) for any other exit code but 0, AirflowSkipException where a backfill leaves upkeep to another run.
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

    def execute(self, context: Context) -> Any:  # wider than the provider's None, as an override may be
        """Submit the job unless the pipeline is quiet, wait for it and return its report; None where no report came back."""
        asked = self._build_request(context)
        run, settings = run_identity(context), choose_spark_by_connection(Settings.current(), self._conn_id)
        records = PipelineRecords(settings, self.pipeline)
        self._leave_to_kept_running(records, asked, certain=True)
        stop_request = records.stop_request(run)
        code = job_code_to_ship(settings)
        stop_request.unlink(missing_ok=True)  # left by an attempt that was killed
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder, given_secrets.secrets_given_to_job(records) as given:
            report = Path(folder) / "report.json"
            self.application_args = arguments = self._arguments(asked, context, report)
            # Secrets of Airflow's are in no file that could be compared.
            if asked.takes_what_is_new and not given and self._is_done_without_spark(records, arguments):
                return self._kept(report, run)
            self._hook = hook = SluiceSparkSubmitHook(
                stop_request=stop_request,
                conn_id=self._conn_id,
                # What the DAG says wins.
                conf={**choose_session_conf(records, run), **(self.conf or {})},
                properties_file=str(settings.spark_properties),
                py_files=str(code) if code else None,
                name=self.name,
                application_args=self.application_args,
                given=given,
                settings=settings,
            )
            try:
                unwrap(SparkSubmitOperator.execute)(self, context)  # Airflow 2 warns of an `execute` that calls the other's
            except AirflowException as error:
                if hook.exit_code == LeaseHeld.exit_code:
                    self._leave_to_kept_running(records, asked)
                raise self._failure(hook, error) from None
            finally:
                hook.stop_submit()  # only after an interrupt is anything left to stop
            return self._kept(report, run)

    def on_kill(self) -> None:
        """Stop the job, politely at first."""
        if self._hook is not None:
            self._hook.on_kill()

    def _is_done_without_spark(self, records: PipelineRecords, arguments: list[str]) -> bool:
        """Whether nothing has changed since a run that left nothing to do; the stage is then recorded and reported by Python alone.

        That is done in a process of its own, which loads what Airflow does not. Whatever keeps it from doing so is a reason to submit.
        """
        if quiet.find_quiet_mark(records, datetime.now(UTC)) is None:
            return False
        done = subprocess.run(
            [sys.executable, "-m", "sluice.runs.quiet_run", self.stage, *arguments],
            env=job_environment(records.settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            self.log.info("%s", done.stdout.strip())
        return done.returncode == 0

    def _leave_to_kept_running(self, records: PipelineRecords, asked: RunRequest, *, certain: bool = False) -> None:
        """Raise where a process keeps the pipeline running, which does what an increment would do, and nothing else; or one stage of it.

        certain: only where it is seen to live, on this host; where the lease was refused it is clear that it does.
        """
        found = holder.find_lease_holder(records)
        if found is None or not found.kept_running or (certain and not found.here):
            return
        told = found.held(f"Pipeline '{self.pipeline}'", self.pipeline)
        if found.stage is not None:
            # The task of that stage fails, too: skipped, it would have all that follow it skipped, and nobody heard that they are not done.
            raise AirflowFailException(told)
        if asked.mode == "increment":
            raise AirflowSkipException(told)
        raise AirflowFailException(f"Mode '{asked.mode}' is none of that: {told}")

    def _failure(self, hook: SluiceSparkSubmitHook, error: AirflowException) -> AirflowException:
        code = hook.exit_code
        if not code:
            return error
        reason = hook.last_line or "it wrote nothing"
        if code == UsageError.exit_code:
            return AirflowFailException(f"{self.name}: wrong use or declaration: {reason}")
        if code == LeaseHeld.exit_code:
            return AirflowException(f"{self.name}: another job writes this pipeline: {reason}")
        if not describe_stage(self.stage).retried and code == SluiceError.exit_code:
            return AirflowFailException(f"{self.name}: {reason}")
        return AirflowException(f"{self.name}: exit code {code}: {reason}")

    def _arguments(self, asked: RunRequest, context: Context, report: Path) -> list[str]:
        return spark_job_arguments(self.pipeline, asked, context, report)

    def _build_request(self, context: Context) -> RunRequest:
        try:
            postponed = reason_to_postpone_upkeep(context) if describe_stage(self.stage).once_in_backfill else None
            asked = RunRequest.of(context)
        except UsageError as error:
            raise AirflowFailException(str(error)) from None
        if postponed:
            raise AirflowSkipException(postponed)
        return asked

    def _kept(self, path: Path, run: str) -> dict[str, Any] | None:
        if not path.exists():
            self.log.info("No report came back; a driver on another host writes it there.")
            return None
        report: dict[str, Any] = json.loads(path.read_text())
        alerts.alert_exceeded_rules(self.pipeline, run, report, self.alert_when)
        return report


def spark_job_arguments(pipeline: str, asked: RunRequest, context: Context, report: Path) -> list[str]:
    """The job's arguments, each a text. The interval is half-open, as two instants."""
    days = asked.interval
    optional = {
        "--from": days.start.isoformat() if days else "",
        "--to": days.end.isoformat() if days else "",
        "--tables": ",".join(asked.tables),
        "--verify": "all" if asked.verify_all else "",
        "--optimize-now": ",".join(asked.optimize_now),
    }
    return [
        *("--pipeline", pipeline, "--mode", asked.mode),
        *(part for name, value in optional.items() if value for part in (name, value)),
        *run_identity_arguments(context, report),
    ]


def run_identity_arguments(context: Context, report: Path) -> list[str]:
    """The arguments that say to any job which run it is of, how long it may wait and where its report goes."""
    run = run_identity(context)
    return [
        *("--run-id", run, "--airflow-run", f"{run}-{context['ti'].try_number}"),
        *("--wait", str(LEASE_WAIT_SECONDS), "--report", str(report)),
    ]
