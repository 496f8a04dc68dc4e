"""Runs the stages of a task without Spark, if they need none: those of a quiet pipeline, and upkeep that delta-rs does.

Airflow's tasks call it as `python -m sluice.runs.task_without_spark TASK`, with the arguments of the task's job script, before they submit that
script. The exit code `SPARK_IS_NEEDED` means that a run may find something to do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sluice import durable_files
from sluice.declare.assembly.fingerprint import digest_declarations
from sluice.declare.assembly.loading import load_declaration_graph, load_pipeline_declaration
from sluice.errors import SluiceError, StopRequested
from sluice.lake.flow_report import FlowReport
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import Stage, find_stage_of_pipeline, list_stages_of_task
from sluice.printable import library_texts_withheld
from sluice.runs import job, quiet, run_ledger, script, summary
from sluice.runs.followed_job import SPARK_IS_NEEDED, STOPPED
from sluice.runs.job import JobRequest
from sluice.runs.lease import lock
from sluice.runs.quiet import QuietMark
from sluice.runs.without_spark import run_stage_without_spark
from sluice.settings import Settings


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
