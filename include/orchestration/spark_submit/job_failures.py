"""What a stage's exit code means to Airflow: whether the task is tried again, fails for good, or leaves its work to a process that does it."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException

from orchestration.dag_run import RunRequest
from sluice.errors import LeaseHeld, SluiceError, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import OPTIMIZE, VERIFY, Stage, is_demanded
from sluice.run_modes import find_run_mode
from sluice.runs.followed_job import RETRY_HELPS, JobEnd
from sluice.runs.lease import holder


def explain_failed_job(
    records: PipelineRecords, stage: Stage, task: str, asked: RunRequest | None, end: JobEnd
) -> AirflowException:
    """The exception for an exit code other than 0. task: as its log names it. Raises what `leave_to_kept_running` does, if that is the cause."""
    if end.exit_code == UsageError.exit_code:
        return AirflowFailException(f"{task}: wrong use or declaration: {end.reason}")
    if end.exit_code == LeaseHeld.exit_code:
        leave_to_kept_running(records, asked)
        return AirflowException(f"{task}: another job writes this pipeline: {end.reason}")
    if end.exit_code == SluiceError.exit_code and end.report is not None and end.report.get(RETRY_HELPS) is False:
        return AirflowFailException(f"{task}: {end.reason}")
    return AirflowException(f"{task}: exit code {end.exit_code}: {end.reason}")


def leave_to_kept_running(records: PipelineRecords, asked: RunRequest | None, *, certain: bool = False) -> None:
    """Raise if a process keeps the pipeline running, which does what an increment would do and nothing else, or only one stage.

    Nothing is left to a process that was asked to stop: the job waits for its lease. asked: None for work that is no stage of a run.
    certain: raise only if the process is seen to live on this host. If the lease was refused, it certainly lives.
    """
    found = holder.find_lease_holder(records)
    if found is None or not found.kept_running or (certain and not found.here):
        return
    if records.stop_request(found.run).exists():
        return
    told = found.held(f"Pipeline '{records.pipeline}'", records.pipeline)
    if found.stage is not None:
        # The task of that stage fails too: if it were skipped, all later tasks would be, and nobody would learn that they are not done.
        raise AirflowFailException(told)
    if asked is None:
        raise AirflowFailException(f"This task cannot be left to that process: {told}")
    if not find_run_mode(asked.mode).left_to_kept_running:
        raise AirflowFailException(f"A run in mode '{asked.mode}' cannot be left to that process: {told}")
    # The first task that is skipped takes all later ones with it, so each fails for what one of them is asked.
    for one in (VERIFY, OPTIMIZE):
        if is_demanded(one.name, asked.verify, asked.optimize_now):
            raise AirflowFailException(f"What the form asks of '{one.name}' cannot be left to that process: {told}")
    raise AirflowSkipException(told)
