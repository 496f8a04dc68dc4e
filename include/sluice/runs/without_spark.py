"""Runs a stage without Spark where the log of its tables says that Spark has no part in what there is to do.

Upkeep is mostly that: the files of small tables are joined by delta-rs, and VACUUM goes by the inventory of the log. To start Spark would cost
several times what the stage does. Which stages may do so, and when, is in their records (`Stage.without_spark`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sluice import delta_log
from sluice.errors import SparkNeeded, StopRequested
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import find_stage_of_pipeline
from sluice.runs import job
from sluice.runs.execution import clones
from sluice.runs.job import JobRequest
from sluice.runs.lease import lock
from sluice.settings import Settings
from sluice.spark_process import read_spark_property
from sluice.step_times import StepTimes, collect_step_times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.lake.workspace import Workspace


class _PropertiesWithoutSpark:
    """The properties of a session that does not exist: those of the profile's file, and what is set here."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._set: dict[str, str] = {}

    def get(self, name: str, default: str | None = None) -> str | None:
        return self._set.get(name) or read_spark_property(self._settings, name) or default

    def set(self, name: str, value: str) -> None:
        self._set[name] = value

    def unset(self, name: str) -> None:
        self._set.pop(name, None)


class SessionWithoutSpark:
    """Stands in for Spark's session in a workspace whose stage should need none. It keeps the mark of commits.

    Whatever else it is asked for raises SparkNeeded.
    """

    def __init__(self, settings: Settings) -> None:
        self.conf = _PropertiesWithoutSpark(settings)

    def __getattr__(self, name: str) -> NoReturn:
        raise SparkNeeded(f"Spark is needed for '{name}'.")


def run_stage_without_spark(settings: Settings, request: JobRequest) -> dict[str, Any] | None:
    """Runs a stage under the lease and records it, if that needs no Spark. Returns its report; None if a job must do it.

    The lease is not waited for. Whatever fails is left to the job, which does it again and reports why; a table that this has finished is
    done then. Raises StopRequested between two tables.
    """
    if not request.takes_what_is_new:
        return None
    try:
        lake = load_pipeline_lake(settings, request.pipeline)
        stage = find_stage_of_pipeline(lake.graph.pipeline, request.stage)
        if stage.without_spark is None:
            return None
        clones.check_stage_in_clone(lake, request.stage)
        records, run, at = PipelineRecords(settings, request.pipeline), request.run, datetime.now(UTC)
        lock.check_lake_format(records)
        from sluice.lake.restricted_tables import find_absent_restricted_tables
        from sluice.lake.workspace import Workspace
        from sluice.runs import stage_run
        from sluice.runs.execution import stages

        workspace = Workspace(settings, lake.graph, cast("SparkSession", SessionWithoutSpark(settings)), run, request.mode)
        # Before the lease, which would make folders where a worker does not see the lake, or the restricted tables.
        if not _has_any_table(workspace) or find_absent_restricted_tables(lake):
            return None
        with (
            collect_step_times(StepTimes()),
            lock.hold_lease_without_spark(records, run, "The job waits for it."),
        ):
            if not stage.without_spark(workspace):
                return None
            report = stage_run.record_stage_run(
                workspace, request, lambda: stages.run_pipeline_stage(workspace, request.stage), at, towards_quiet=True
            )
    except StopRequested:
        raise
    except Exception:
        return None
    return job.add_request_standings(records, stage, report)


def _has_any_table(workspace: Workspace) -> bool:
    """Whether jobs have made anything yet: a stage that has no table to look at has not been run by anybody."""
    return any(delta_log.is_delta_table(path) for path in workspace.lake.record_tables().values())
