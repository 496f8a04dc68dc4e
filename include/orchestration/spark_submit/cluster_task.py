"""A task whose driver a cluster starts: it finds the driver of an earlier attempt or submits one, follows it, and stops it if it is killed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException

from orchestration.dag_run import digest_job_arguments, run_identity
from orchestration.spark_submit.chosen_spark import ClusterManager
from orchestration.spark_submit.cluster_driver import (
    POLL_SECONDS,
    DriverFollower,
    SubmittedDriver,
    driver_submit_options,
    read_driver_name,
)
from orchestration.spark_submit.hook import SluiceSparkSubmitHook
from orchestration.spark_submit.stage_job import StageJob
from sluice.durable_files import remove_file_durably
from sluice.pipeline_records import PipelineRecords
from sluice.runs.followed_job import (
    JobEnd,
    JobLost,
    find_living_job,
    locate_followed_job,
    remove_old_followed_jobs,
)
from sluice.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

KILLED_SECONDS = 3.0
"""How many seconds a killed task waits for a driver on a cluster that it asked to stop: Airflow gives it 5."""


def name_attempts(context: Context, task_id: str, arguments: Sequence[str]) -> str:
    """How the ids of all attempts of a task begin that are asked for the same: a run that is backfilled again may be asked for something else.

    arguments: of the job, but for the file of its answer.
    """
    task = re.sub("[^A-Za-z0-9]", "_", task_id)
    return f"{run_identity(context)}-{task}-{digest_job_arguments(arguments, context)}-"


def follow_driver(driver: SubmittedDriver, manager: ClusterManager, settings: Settings) -> DriverFollower:
    """Follow a driver from any process. settings: as `choose_spark_by_connection` returns them."""
    records = PipelineRecords(settings, driver.pipeline)
    hook = SluiceSparkSubmitHook(
        stop_request=records.stop_request(driver.run), conn_id=driver.conn_id, settings=settings, on_cluster=manager
    )
    return DriverFollower(driver, hook, manager, settings)


class ClusterTask:
    """One attempt of a task. attempts: of `name_attempts`. `kill` may come from another thread, or from a signal's handler, at any time."""

    def __init__(self, job: StageJob, manager: ClusterManager, attempts: str) -> None:
        self._job, self._manager, self._attempts = job, manager, attempts
        self._hook: SluiceSparkSubmitHook | None = None
        self._followed: DriverFollower | None = None
        self._killed = False

    def find_driver_at_work(self) -> SubmittedDriver | None:
        """The driver of an earlier attempt that is asked for the same and still works; None without one."""
        remove_old_followed_jobs(self._job.records)
        living = find_living_job(self._job.records, self._attempts)
        self._refuse_if_killed()
        return self._describe_driver(living.stem, name="") if living else None

    def submit_driver(self, script: str, try_number: int) -> SubmittedDriver:
        """Let the cluster start a driver for this attempt. script: the job script's path in this checkout."""
        attempt = f"{self._attempts}{try_number}"
        answer = locate_followed_job(self._job.records, attempt)
        remove_file_durably(answer)  # of this attempt, before a user cleared it
        options = driver_submit_options(self._job.records.settings, self._manager, script)
        application = options.pop("application")
        self._hook = hook = self._job.make_hook(("--followed-at", str(answer)), self._manager, **options)
        self._refuse_if_killed()
        try:
            hook.submit(application)
        except (AirflowException, RuntimeError):
            reason = hook.last_line or "it wrote nothing"
            raise AirflowException(f"{self._job.name}: the cluster did not take the driver: {reason}") from None
        finally:
            hook.stop_submit()
        return self._describe_driver(attempt, read_driver_name(hook, self._manager))

    def follow_to_end(self, driver: SubmittedDriver) -> JobEnd:
        """Wait until the driver says how it ended. Raises AirflowException if it is lost."""
        self._followed = followed = follow_driver(driver, self._manager, self._job.records.settings)
        if self._killed:  # while it was looked for
            followed.stop(KILLED_SECONDS)
            raise AirflowException(f"{self._job.name}: killed before it was followed")
        try:
            while (end := followed.look()) is None:
                time.sleep(POLL_SECONDS)
        except JobLost as error:
            followed.stop(0)  # or it would begin when the cluster has room, and nobody would follow it
            raise AirflowException(f"{self._job.name}: {error}") from None
        followed.forget()
        return end

    def kill(self) -> None:
        """Stop what has been started: ask the driver, or the process that submits it, first."""
        self._killed = True
        if self._followed is not None:
            self._followed.stop(KILLED_SECONDS)
        elif self._hook is not None:
            self._hook.on_kill()

    def _describe_driver(self, attempt: str, name: str) -> SubmittedDriver:
        return SubmittedDriver(
            conn_id=self._job.conn_id,
            pipeline=self._job.records.pipeline,
            run=self._job.run,
            attempt=attempt,
            name=name,
            submitted_at=time.time(),
        )

    def _refuse_if_killed(self) -> None:
        if self._killed:
            raise AirflowException(f"{self._job.name}: killed before it was submitted")
