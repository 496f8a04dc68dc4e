"""What a stage's exit code means to Airflow: whether the task is tried again, fails for good, or leaves its work to a process that does it."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException

from orchestration.dag_run import RunRequest
from sluice.errors import LeaseHeld, SluiceError, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import describe_stage
from sluice.run_modes import INCREMENT
from sluice.runs.followed_job import JobEnd
from sluice.runs.lease import holder


def explain_failed_job(records: PipelineRecords, stage: str, task: str, asked: RunRequest, end: JobEnd) -> AirflowException:
    """The exception for an exit code other than 0. task: as its log names it. Raises what `leave_to_kept_running` does, if that is the cause."""
    if end.exit_code == UsageError.exit_code:
        return AirflowFailException(f"{task}: wrong use or declaration: {end.reason}")
    if end.exit_code == LeaseHeld.exit_code:
        leave_to_kept_running(records, asked)
        return AirflowException(f"{task}: another job writes this pipeline: {end.reason}")
    if not describe_stage(stage).retried and end.exit_code == SluiceError.exit_code:
        return AirflowFailException(f"{task}: {end.reason}")
    return AirflowException(f"{task}: exit code {end.exit_code}: {end.reason}")


def leave_to_kept_running(records: PipelineRecords, asked: RunRequest, *, certain: bool = False) -> None:
    """Raise if a process keeps the pipeline running, which does what an increment would do and nothing else, or only one stage.

    certain: raise only if the process is seen to live on this host. If the lease was refused, it certainly lives.
    """
    found = holder.find_lease_holder(records)
    if found is None or not found.kept_running or (certain and not found.here):
        return
    told = found.held(f"Pipeline '{records.pipeline}'", records.pipeline)
    if found.stage is not None:
        # The task of that stage fails too: if it were skipped, all later tasks would be, and nobody would learn that they are not done.
        raise AirflowFailException(told)
    if asked.mode == INCREMENT.name:
        raise AirflowSkipException(told)
    raise AirflowFailException(f"A run in mode '{asked.mode}' cannot be left to that process: {told}")
