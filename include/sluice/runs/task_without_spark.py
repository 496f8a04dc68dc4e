"""Runs the stages of a task without Spark, if they need none: those of a quiet pipeline, and those where the logs of the tables say so.

Upkeep is mostly that: the files of small tables are joined by delta-rs, and VACUUM goes by the inventory of the log. To start Spark would cost
several times what the stage does. Which stages may do so, and when, is in their records (`Stage.without_spark`).

Airflow's tasks call it as `python -m sluice.runs.task_without_spark TASK`, with the arguments of the task's job script, before they submit that
script. The exit code `SPARK_IS_NEEDED` means that a run may find something to do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sluice import delta_log, durable_files
from sluice.declare.assembly.fingerprint import digest_declarations
from sluice.declare.assembly.loading import load_declaration_graph, load_pipeline_declaration
from sluice.errors import SluiceError, SparkNeeded, StopRequested
from sluice.lake.flow_report import FlowReport
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import Stage, find_stage_of_pipeline, list_stages_of_task
from sluice.printable import library_texts_withheld
from sluice.runs import job, quiet, run_ledger, script, summary
from sluice.runs.execution import clones
from sluice.runs.followed_job import SPARK_IS_NEEDED, STOPPED
from sluice.runs.job import JobRequest
from sluice.runs.lease import lock
from sluice.runs.quiet import QuietMark
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


def _run_quiet_stage(settings: Settings, request: JobRequest) -> dict[str, Any] | None:
    """Records and reports a stage of a quiet pipeline. Returns None, and writes nothing, if the pipeline is not known to be quiet."""
    records = PipelineRecords(settings, request.pipeline)
    at = datetime.now(UTC)
    if not request.takes_what_is_new or quiet.find_quiet_mark(records, at) is None:
        return None
    try:
        graph = load_declaration_graph(settings, request.pipeline)
        with lock.hold_lease_without_spark(records, request.run, "The job waits for it."):
            mark = quiet.find_quiet_mark(records, at, leased=True)  # again, now that nobody else writes
            if mark is None or mark.declared != digest_declarations(graph):
                return None
            return _record_quiet_stage(records, request, find_stage_of_pipeline(graph.pipeline, request.stage), mark, at)
    except (SluiceError, OSError):
        return None  # the job waits for the lease and reports what is wrong


def run_stages_without_spark(settings: Settings, request: JobRequest, stages: Sequence[str]) -> list[dict[str, Any]] | None:
    """Runs, records and reports stages that need no Spark. Returns None if one of them does, which then runs them all. Raises StopRequested."""
    reports: list[dict[str, Any]] = []
    for stage in stages:
        asked = replace(request, stage=stage)
        report = _run_quiet_stage(settings, asked) or run_stage_without_spark(settings, asked)
        if report is None:
            return None
        reports.append(report)
    return reports


def _record_quiet_stage(
    records: PipelineRecords, request: JobRequest, stage: Stage, mark: QuietMark, at: datetime
) -> dict[str, Any]:
    tables = mark.tables.get(request.stage, [])
    reports = [
        FlowReport(
            one["flow"],
            request.stage,
            version_before=one["version"],
            version_after=one["version"],
            table_rules=one["table_rules"],
        )
        for one in tables
    ]
    seconds = (datetime.now(UTC) - at).total_seconds()
    report = summary.summarize_run(request.run, request.pipeline, request.stage, request.mode, seconds, reports)
    report = job.add_request_standings(records, stage, {**report, "quiet_since": mark.run})
    code = {(one["flow"], request.stage): one["fingerprint"] for one in tables}
    run_ledger.append_report_rows(records, request, report, at, {}, code)
    durable_files.flush_run_output(records.settings)
    return report


def run_script_without_spark() -> None:
    """The body of `python -m sluice.runs.task_without_spark`: exits 0 with the report written and printed, or `SPARK_IS_NEEDED`."""
    task = sys.argv.pop(1)
    arguments = script.build_stage_parser(task).parse_args()
    try:
        with library_texts_withheld():
            settings = Settings.current()
            stages = list_stages_of_task(load_pipeline_declaration(settings, arguments.pipeline), task)
            reports = run_stages_without_spark(settings, script.read_stage_request(arguments), stages)
    except StopRequested as error:
        print(f"sluice {task}: {error}", flush=True)
        sys.exit(STOPPED)
    except Exception as error:
        print(f"sluice {task}: {type(error).__name__}; a job finds out", file=sys.stderr, flush=True)
        reports = None
    if reports is None:
        sys.exit(SPARK_IS_NEEDED)
    script.write_task_report(arguments.report, summary.join_stage_reports(task, reports))
    for report in reports:
        print(summary.format_run_summary(report), flush=True)


if __name__ == "__main__":
    run_script_without_spark()
