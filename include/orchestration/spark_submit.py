"""spark-submit that is asked before it is killed, whose exit code has a meaning, whose report is kept."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

from orchestration import stopping
from sluice.errors import LeaseHeld, UsageError
from sluice.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

LEASE_WAIT_SECONDS = 300
"""How long a job waits for another writer of the pipeline before it gives up with exit code 3."""

_NOISE = re.compile(r"WARNING: Using incubator modules|Picked up \w*JAVA\w*OPTIONS|\{\"run\":|\s*$")


class SluiceSparkSubmitHook(SparkSubmitHook):
    """Submits in client mode, in a process group of its own, and stops what it started in steps.

    stop_request: the file whose presence asks the job to stop before its next batch.
    ask_seconds, terminate_seconds: how long to wait after asking, and then after SIGTERM, before SIGKILL.
    Raises AirflowFailException where the connection is missing: the provider would go on with YARN.
    """

    def __init__(
        self,
        *,
        stop_request: Path,
        conn_id: str,
        ask_seconds: float = 20,
        terminate_seconds: float = 10,
        **options: Any,
    ) -> None:
        try:
            self.get_connection(conn_id)
        except AirflowNotFoundException:
            raise AirflowFailException(
                f"There is no Airflow connection '{conn_id}'. It names the Spark master; "
                f"set AIRFLOW_CONN_{conn_id.upper()} or create it under Admin, Connections."
            ) from None
        super().__init__(conn_id=conn_id, **options)
        self._stop_request = stop_request
        self._patience = (ask_seconds, terminate_seconds)
        self.last_line = ""

    @property
    def exit_code(self) -> int | None:
        """The exit code of spark-submit; None before its end."""
        return self._submit_sp.poll() if self._submit_sp else None

    def submit(self, application: str = "", **options: Any) -> str | None:
        """Run spark-submit to its end, in a group that Airflow's signals to the task's group do not reach."""
        try:
            return super().submit(application, **{"process_group": 0, **options})
        finally:
            if self._submit_sp is not None:
                self._submit_sp.stdout.close()  # the provider leaves it open

    def on_kill(self) -> None:
        """Stop the job in steps, then what the provider knows of beside it, such as a driver on a cluster."""
        self.stop_submit()
        super().on_kill()

    def stop_submit(self) -> None:
        """Ask the job to stop, wait, SIGTERM, wait, SIGKILL. Nothing happens where it has ended.

        Airflow gives a killed task 5 seconds. So another process, outside of the task's group, does it;
        this one waits for that as long as it may.
        """
        if self._submit_sp is None or self._submit_sp.poll() is not None:
            return
        self.log.info("Asking the job to stop before its next batch.")
        try:
            self._stop_request.parent.mkdir(parents=True, exist_ok=True)
            self._stop_request.touch()
        except OSError as error:
            self.log.warning("The stop request could not be written (%s).", error.strerror)
        stopper = subprocess.Popen(
            [sys.executable, stopping.__file__, str(self._submit_sp.pid), *map(str, self._patience)],
            process_group=0,
        )
        stopper.wait()
        self._stop_request.unlink(missing_ok=True)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._worth_reading(itr))

    def _worth_reading(self, lines: Iterator[Any]) -> Iterator[Any]:
        for line in lines:
            if not _NOISE.match(line):
                self.last_line = line.strip()
                yield line


class SluiceSparkSubmitOperator(SparkSubmitOperator):
    """One stage of a pipeline. Returns the job's report, which Airflow keeps as the task's XCom.

    options: those of any operator. What Spark is to be told goes into conf, as {"spark.driver.memory": "4g"}.
    Raises AirflowFailException (no retry) for exit code 2, AirflowException (retry) for any other but 0.
    """

    def __init__(
        self,
        *,
        pipeline: str,
        stage: str,
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

    def execute(self, context: Context) -> Any:  # wider than the provider's None, as an override may be
        """Submit the job, wait for it and return its report; None where no report came back."""
        run = run_identity(context)
        stop_request = Settings.current().stop_request(self.pipeline, run)
        stop_request.unlink(missing_ok=True)  # left by an attempt that was killed
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            report = Path(folder) / "report.json"
            self.application_args = job_arguments(self.pipeline, context, report)
            self._hook = hook = SluiceSparkSubmitHook(
                stop_request=stop_request,
                conn_id=self._conn_id,
                conf=self.conf,
                properties_file=str(Settings.current().spark_properties),
                name=self.name,
                application_args=self.application_args,
            )
            try:
                super().execute(context)
            except AirflowException as error:
                raise self._failure(hook, error) from None
            finally:
                hook.stop_submit()  # only after an interrupt is anything left to stop
            return self._kept(report, context)

    def on_kill(self) -> None:
        """Stop the job, politely at first."""
        if self._hook is not None:
            self._hook.on_kill()

    def _failure(self, hook: SluiceSparkSubmitHook, error: AirflowException) -> AirflowException:
        code = hook.exit_code
        if not code:
            return error
        reason = hook.last_line or "it wrote nothing"
        if code == UsageError.exit_code:
            return AirflowFailException(f"{self.name}: wrong use or declaration: {reason}")
        if code == LeaseHeld.exit_code:
            return AirflowException(f"{self.name}: another job writes this pipeline: {reason}")
        return AirflowException(f"{self.name}: exit code {code}: {reason}")

    def _kept(self, path: Path, context: Context) -> dict[str, Any] | None:
        if not path.exists():
            self.log.info("No report came back; a driver on another host writes it there.")
            return None
        report: dict[str, Any] = json.loads(path.read_text())
        flows = {flow["flow"]: flow for flow in report.get("flows", [])}
        for asset in self.outlets:
            flow = flows.get(asset.uri.rpartition("/")[2])
            if flow:
                context["outlet_events"][asset].extra = {"version": flow.get("version_after")}
        return report


def run_identity(context: Context) -> str:
    """How jobs and ledgers name this DAG run: a hash, since a run id may hold text that a user typed."""
    run = context["dag_run"]
    return "af-" + hashlib.md5(f"{run.dag_id}{run.run_id}".encode(), usedforsecurity=False).hexdigest()[:12]


def job_arguments(pipeline: str, context: Context, report: Path) -> list[str]:
    """The job's arguments. A backfill replays its interval; other runs do what the trigger form says."""
    params, run_type = context["params"], context["dag_run"].run_type
    mode, start, end = params["mode"], params["from_date"], params["to_date"]
    if getattr(run_type, "value", run_type) == "backfill":
        # Other runs may have no interval at all: a manual run of Airflow 3 has no logical date.
        mode, start, end = "replay", context["data_interval_start"], context["data_interval_end"]
    run = run_identity(context)
    optional = {"--from": _text(start), "--to": _text(end), "--tables": ",".join(params["tables"] or ())}
    return [
        *("--pipeline", pipeline, "--mode", mode),
        *(part for name, value in optional.items() if value for part in (name, value)),
        *("--run-id", run, "--airflow-run", f"{run}-{context['ti'].try_number}"),
        *("--wait", str(LEASE_WAIT_SECONDS), "--report", str(report)),
    ]


def _text(moment: Any) -> str:
    return "" if moment is None else moment if isinstance(moment, str) else moment.isoformat()
