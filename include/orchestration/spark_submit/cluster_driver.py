"""A job whose driver a cluster starts: its options of spark-submit, how it is followed through the lake, and how it is stopped.

The task that submitted the driver follows it, or a trigger after the task was deferred, both by `DriverFollower`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from orchestration.spark_submit.chosen_spark import ClusterManager
from orchestration.spark_submit.job_code import is_code_shipped, write_driver_files_zip
from orchestration.spark_submit.stop_requests import ask_killed_job_to_stop
from sluice.durable_files import remove_file_durably
from sluice.pipeline_records import PipelineRecords
from sluice.runs.followed_job import BEAT_SECONDS, JobEnd, JobLost, JobWatch, locate_followed_job
from sluice.settings import Settings

POLL_SECONDS = 5.0
"""Seconds between two looks at a driver's file."""
START_SECONDS = 1800.0
"""How long a cluster may take to start a driver before the task gives up: it may be full for a while."""
_MANAGER_EVERY = 30.0
"""Seconds between two questions to the cluster's manager, which knows of a driver that failed before it could write its file."""
_UNPACKED = "checkout"
"""The folder in a driver's working folder into which the zip of `write_driver_files_zip` is unpacked."""


@dataclass(frozen=True)
class SubmittedDriver:
    """All that is needed to find a driver again, from any process. attempt: of `locate_followed_job`. name: the manager's; "" if unknown.

    submitted_at: in seconds since 1970. Holds only ids and times.
    """

    conn_id: str
    pipeline: str
    run: str
    attempt: str
    name: str
    submitted_at: float


def driver_submit_options(settings: Settings, manager: ClusterManager, script: str) -> dict[str, Any]:
    """The arguments that the provider's hook gets in addition to those of client mode: `conf`, `archives`, `files`; and `application`.

    script: the job script's path in this checkout.
    """
    python = settings.executor_python or settings.driver_environment()["PYSPARK_PYTHON"]
    variables = settings.driver_environment() | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    options: dict[str, Any] = {"application": script}
    if is_code_shipped(settings):
        options["archives"] = f"{write_driver_files_zip(settings)}#{_UNPACKED}"
        # In the working folder, which is first on the class path, so that messages that may quote rows are withheld there too.
        options["files"] = str(settings.spark_conf / "log4j2.properties")
        variables["SLUICE_ROOT"] = _UNPACKED
    else:
        options["application"] = f"local://{script}"
    options["conf"] = {
        **manager.driver_conf,
        **{f"{manager.driver_variable}{name}": value for name, value in variables.items()},
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": python,
    }
    return options


class DriverFollower:
    """Follows one driver, from any process. hook: the one whose connection submitted it.

    It asks the manager only if the hook can do that (`ClusterManager.tracking_options`).
    """

    def __init__(
        self,
        driver: SubmittedDriver,
        hook: SparkSubmitHook,
        manager: ClusterManager,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = PipelineRecords(settings, driver.pipeline)
        self._driver, self._clock = driver, clock
        patience = START_SECONDS - max(0.0, time.time() - driver.submitted_at)
        self._watch = JobWatch(locate_followed_job(self._records, driver.attempt), max(patience, 3 * BEAT_SECONDS), clock)
        self._provider = _ask_by_provider(hook, manager, driver.name) if driver.name and _is_tracked(hook, manager) else None
        self._asked_at = clock()
        self._ended_as = ""

    def look(self) -> JobEnd | None:
        """Return how the driver ended; None while it works or may yet start. Raises JobLost."""
        end = self._watch.look()
        if end is None and self._provider is not None and self._clock() - self._asked_at >= _MANAGER_EVERY:
            self._asked_at = self._clock()
            before, self._ended_as = self._ended_as, self._find_end_at_manager()
            if before and self._ended_as:  # twice in a row: a driver writes how it ended just before its manager learns it
                raise JobLost(
                    f"The cluster says that {self._driver.name} is {self._ended_as}, and the driver did not say how it ended: it was killed, "
                    "or failed before it began. Its own log is with the cluster."
                )
        return end

    def stop(self, ask_seconds: float) -> JobEnd | None:
        """Ask the job to stop before its next batch, wait for that, and then ask its manager to kill it. Does not wait for the kill.

        Returns how it ended; None if it did not say so in time.

        A driver whose batch takes longer finds the request at the end of that batch. The next attempt of the task removes it.
        """
        request = self._records.stop_request(self._driver.run)
        ask_killed_job_to_stop(request)
        with suppress(JobLost):
            deadline = self._clock() + ask_seconds
            while self._clock() < deadline:
                if end := self._watch.look():
                    request.unlink(missing_ok=True)
                    return end
                time.sleep(0.5)
        if self._provider is not None:
            self._provider.on_kill()
        return None

    def forget(self) -> None:
        """Remove the driver's file once its end is known, and any partial file of a driver that was killed while it wrote."""
        remove_file_durably(locate_followed_job(self._records, self._driver.attempt))

    def _find_end_at_manager(self) -> str:
        assert self._provider is not None
        try:
            status = self._provider.get_job_status(self._driver.name, {})
        except Exception:  # no answer from the manager says nothing about the driver
            return self._ended_as
        return "" if self._provider.is_job_active(status) else status


def read_driver_name(hook: SparkSubmitHook, manager: ClusterManager) -> str:
    """The manager's name for the driver that the hook submitted, as the provider writes it; "" if the provider saw none."""
    name = getattr(hook, manager.driver_field, None) or ""
    namespace = hook._connection.get("namespace")
    return f"{namespace}:{name}" if name and namespace else name


def _is_tracked(hook: SparkSubmitHook, manager: ClusterManager) -> bool:
    return bool(manager.tracked_by and getattr(hook, f"_{manager.tracked_by}"))


def _ask_by_provider(hook: SparkSubmitHook, manager: ClusterManager, name: str) -> SparkSubmitOperator:
    """The provider's operator, which can ask each manager and have it kill a driver. It belongs to no DAG."""
    setattr(hook, manager.driver_field, name.rpartition(":")[2])
    asking = SparkSubmitOperator(task_id="asking", conn_id=hook._conn_id)
    asking._hook = hook
    return asking
