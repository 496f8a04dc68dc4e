"""Runs spark-submit, asks it to stop before killing it, and passes on none of Airflow's own variables."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowNotFoundException

from orchestration import stopping
from orchestration.spark_submit.chosen_spark import ClusterManager, build_job_environment, choose_driver_manager, choose_spark
from orchestration.spark_submit.secret_back_ends import require_answers
from orchestration.spark_submit.stop_requests import ask_killed_job_to_stop
from sluice.errors import UsageError
from sluice.settings import Settings

_FRAME = re.compile(r"\s*at [\w.$/]+\(")
_NOISE = re.compile(r"WARNING: Using incubator modules|Picked up \w*JAVA\w*OPTIONS|\{\"run\":|\s*$")


class SluiceSparkSubmitHook(SparkSubmitHook):
    """Submits in a process group of its own, and stops what it started in steps.

    stop_request: the file whose presence asks the job to stop before its next batch.
    ask_seconds, terminate_seconds: how long to wait after asking, and then after SIGTERM, before SIGKILL.
    given: the variables of `give_secrets_to_job`. settings: with the Spark of the connection, as `choose_spark_by_connection` returns them; those
    of this process unless given. on_cluster: in cluster mode, the manager that starts the driver. The driver then runs on after the submit,
    and `cluster_driver` follows and stops it.
    Raises AirflowFailException if the connection is missing: the provider would use YARN instead.
    """

    def __init__(
        self,
        *,
        stop_request: Path,
        conn_id: str,
        ask_seconds: float = 20,
        terminate_seconds: float = 10,
        given: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        on_cluster: ClusterManager | None = None,
        **options: Any,
    ) -> None:
        extra = _require_connection(conn_id).extra_dejson
        super().__init__(conn_id=conn_id, **(on_cluster.tracking_options(extra) if on_cluster else {}), **options)
        self._settings = settings or Settings.current()
        self._stop_request = stop_request
        self._patience = (ask_seconds, terminate_seconds)
        self._killed = False
        self._given = dict(given or {})
        self.last_line = ""

    @property
    def exit_code(self) -> int | None:
        """The exit code of spark-submit; None before its end."""
        return self._submit_sp.poll() if self._submit_sp else None

    def submit(self, application: str = "", **options: Any) -> str | None:
        """Run spark-submit to its end, with Sluice's settings and without Airflow's secrets.

        It has a process group of its own, which signals to the task's group do not reach.
        """
        if self._killed:
            raise AirflowException("killed before it was submitted")
        told = build_job_environment(self._settings) | self._given
        # The task's standard input is its connection to its supervisor, which waits until nobody holds it.
        try:
            return super().submit(application, **{"process_group": 0, "env": told, "stdin": subprocess.DEVNULL, **options})
        finally:
            if self._submit_sp is not None:
                self._submit_sp.stdout.close()  # the provider leaves it open

    def on_kill(self) -> None:
        """Stop the job in steps, then whatever else the provider knows of, such as a driver on a cluster."""
        self._killed = True
        self.stop_submit()
        super().on_kill()

    def stop_submit(self) -> None:
        """Ask the job to stop, wait, SIGTERM, wait, SIGKILL. Does nothing if it has ended.

        Airflow gives a killed task 5 seconds. So another process, outside of the task's group, does the work;
        this one waits for it as long as it may.
        """
        if self._submit_sp is None or self._submit_sp.poll() is not None:
            return
        self.log.info("Asking the job to stop before its next batch.")
        try:
            ask_killed_job_to_stop(self._stop_request)
        except OSError as error:
            self.log.warning("The stop request could not be written (%s).", error.strerror)
        stopper = subprocess.Popen(
            [sys.executable, stopping.__file__, str(self._submit_sp.pid), *map(str, self._patience)],
            process_group=0,
        )
        stopper.wait()
        self._stop_request.unlink(missing_ok=True)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        if self._killed:  # while it was started: then there was nothing to stop yet
            self.stop_submit()
        super()._process_spark_submit_log(self._worth_reading(itr))

    def _worth_reading(self, lines: Iterator[Any]) -> Iterator[Any]:
        for line in lines:
            if not _NOISE.match(line):
                if not _FRAME.match(line):
                    self.last_line = line.strip()
                yield line


def choose_spark_by_connection(settings: Settings, conn_id: str) -> Settings:
    """The settings with the Spark that a connection of Airflow names.

    Raises AirflowFailException if the connection is missing or `choose_spark` refuses it: no retry would help.
    """
    connection = _require_connection(conn_id)
    # The provider knows how host, port and type make the master.
    master = SparkSubmitHook(conn_id=conn_id)._connection["master"]
    try:
        return choose_spark(settings, conn_id, master, connection.extra_dejson)
    except UsageError as error:
        raise AirflowFailException(str(error)) from None


def choose_driver_manager_by_connection(settings: Settings, conn_id: str) -> ClusterManager | None:
    """The manager that starts the driver according to the connection; None if the driver runs beside the task.

    settings: as `choose_spark_by_connection` returns them.
    """
    return choose_driver_manager(settings, conn_id, _require_connection(conn_id).extra_dejson)


def _require_connection(conn_id: str) -> Any:
    """Returns the connection. Raises AirflowFailException if there is none, and what `require_answers` raises."""
    try:
        return SparkSubmitHook.get_connection(conn_id)
    except AirflowNotFoundException:
        require_answers("connection", conn_id)
        raise AirflowFailException(
            f"There is no Airflow connection '{conn_id}'. It names the Spark master; "
            f"set AIRFLOW_CONN_{conn_id.upper()} or create it under Admin, Connections."
        ) from None
