"""Records what a stage did: its rows in the run ledger, the events of its lineage, and whether the pipeline is quiet after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import Graph
from sluice.errors import SparkNeeded, StopRequested
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import list_stage_names
from sluice.record_states import DONE, FAILED
from sluice.runs import failures, ledger, open_lineage, quiet, summary
from sluice.settings import Settings
from sluice.step_times import STARTING, StepTimes, collect_step_times, current_step_times
from sluice.work_progress import FollowedSubject, show_progress

if TYPE_CHECKING:
    from sluice.lake.report import FlowReport
    from sluice.lake.workspace import Workspace
    from sluice.runs.job import JobRequest


def record_stage_run(
    workspace: Workspace,
    request: JobRequest,
    work: Callable[[], list[FlowReport]],
    at: datetime | None = None,
    towards_quiet: bool = False,
) -> dict[str, Any]:
    """Does something under the lease that is held, and records it as a run of the request's stage. at: when it began; by default now.

    towards_quiet: see `sluice.runs.job.run_under_lease`.

    Returns the report when everything written is on the disk. Raises DamagedLog before anything is done, FlowsFailed, and whatever else
    `work` raises; each of them once it is recorded, if it can be.
    """
    from sluice import durable_files
    from sluice.lake import pipeline_paths, spark_counters
    from sluice.lake.report import FlowsFailed
    from sluice.runs.execution import quiet_marking

    at = at or datetime.now(UTC)
    times, jobs = current_step_times() or StepTimes(), spark_counters.count_started_jobs(workspace.session)
    cpu = 0.0 if times.seconds.get(STARTING) else spark_counters.measure_cpu_seconds(workspace.session)

    def noted(reports: list[FlowReport], failed: Mapping[str, BaseException]) -> dict[str, Any]:
        seconds = (datetime.now(UTC) - at).total_seconds()
        tags = {one.flow: one.job_tags for one in reports if one.job_tags}
        counted = spark_counters.count_jobs_by_flow(workspace.session, tags, jobs) if tags else {}
        for one in reports:
            one.spark = _add_what_there_is(workspace, one, counted.get(one.flow, {})) if one.job_tags else {}
        report = summary.summarize_run(workspace.run, request.pipeline, request.stage, request.mode, seconds, reports, failed)
        report[ledger.STAGE_STEPS] = times.rounded_seconds()
        used = spark_counters.measure_cpu_seconds(workspace.session)
        report[ledger.STAGE_CPU] = None if used is None or cpu is None else round(used - cpu, 2)
        _append_run_record(workspace.settings, workspace.graph, request, report, at, failed)
        open_lineage.send_stage_end(workspace.settings, workspace.graph, told, report["flows"], bool(failed), failed)
        durable_files.flush_run_output(workspace.settings)
        return report

    subject = FollowedSubject(request.stage, times, (spark_counters.session_job_tag(workspace.session),))
    count_tasks = partial(spark_counters.count_running_tasks, workspace.session)
    parent = open_lineage.find_parent_run(lambda name: workspace.session.conf.get(name, None))
    told = open_lineage.StageIdentity(request.pipeline, request.stage, workspace.run, at, parent)
    open_lineage.send_stage_start(workspace.settings, told)
    mark = quiet_marking.begin_stage(workspace, request.stage) if towards_quiet else None
    try:
        pipeline_paths.check_stage_logs(workspace.settings, workspace.graph, request.stage)
        with collect_step_times(times), show_progress(request.pipeline, subject, count_tasks):
            reports = work()
    except SparkNeeded:  # nothing failed: a job does it, and what leads to a quiet pipeline stands
        open_lineage.send_stage_abort(workspace.settings, told)
        raise
    except BaseException as error:
        quiet.remove_quiet_mark(workspace.records)
        if isinstance(error, FlowsFailed):
            error.report = noted(error.reports, error.errors)
        else:
            if _is_failed_stage(workspace.graph, request.stage, error):
                with suppress(Exception):  # what ended the stage may prevent it, too, and is the error to tell
                    _append_whole_stage_row(workspace, request, at, times, error)
            open_lineage.send_stage_end(workspace.settings, workspace.graph, told, [], failed=True)
        raise
    report = noted(reports, {})
    if ledger.has_failed_as_whole(workspace.records, request.stage):
        _append_whole_stage_row(workspace, request, at, times)
    if mark is not None:
        quiet_marking.end_stage(workspace, request.stage, mark, reports)
    return report


def _is_failed_stage(graph: Graph, stage: str, error: BaseException) -> bool:
    """Whether a stage of a run has failed, and not a command that was refused, or a run that was stopped."""
    return isinstance(error, Exception) and not isinstance(error, StopRequested) and stage in list_stage_names(graph.pipeline)


def _append_whole_stage_row(
    workspace: Workspace, request: JobRequest, at: datetime, times: StepTimes, error: BaseException | None = None
) -> None:
    """Records that a stage failed outside its flows; without an error, that it succeeded after such a failure."""
    from sluice.lake.report import FlowReport

    failed = {} if error is None else {ledger.WHOLE_STAGE: error}
    reports, seconds = [FlowReport(flow=ledger.WHOLE_STAGE, layer=request.stage)], (datetime.now(UTC) - at).total_seconds()
    report = summary.summarize_run(workspace.run, request.pipeline, request.stage, request.mode, seconds, reports, failed)
    report[ledger.STAGE_STEPS] = times.rounded_seconds()
    _append_run_record(workspace.settings, workspace.graph, request, report, at, failed)


def _add_what_there_is(workspace: Workspace, report: FlowReport, counted: dict[str, float]) -> dict[str, float]:
    """Adds to Spark's counts of a flow the numbers needed to judge them: cores, and the bytes of its inputs and its table. Empty stays empty."""
    if not counted or report.flow not in workspace.graph.stored:
        return counted
    from sluice.lake import log

    tables = {report.flow, *workspace.graph[report.flow].reads}
    states = [log.read_table_state(path) for path in {workspace.path(name) for name in tables}]
    there = sum(state.bytes for state in states if state is not None)
    return {**counted, "cores": workspace.session.sparkContext.defaultParallelism, "tables_bytes": there}


def _append_run_record(
    settings: Settings,
    graph: Graph,
    request: JobRequest,
    report: dict[str, Any],
    at: datetime,
    failed: Mapping[str, BaseException],
) -> None:
    code = {(item.name, graph.layer(item)): compute_declaration_fingerprint(item) for item in graph.datasets.values()}
    kinds = {flow: failures.name_failure(error) for flow, error in failed.items()}
    append_report_rows(settings, request, report, at, kinds, code)


def append_report_rows(
    settings: Settings,
    request: JobRequest,
    report: dict[str, Any],
    at: datetime,
    failed: Mapping[str, str],
    fingerprints: Mapping[tuple[str, str], str | None],
) -> None:
    """Appends a report to the run ledger, one row per flow.

    at: when the run began. failed: by flow, which kind of error it ended with. fingerprints: those of declarations, by flow and layer.
    """
    of_stage: ledger.RunRow = {
        "run": report["run"],
        "pipeline": request.pipeline,
        "stage": request.stage,
        "mode": request.mode,
        "airflow_run": request.airflow_run,
        "started_at": at,
        "ended_at": datetime.now(UTC),
        ledger.STAGE_STEPS: report.get(ledger.STAGE_STEPS, {}),
        ledger.STAGE_CPU: report.get(ledger.STAGE_CPU),
    }
    if request.interval:
        of_stage |= {"interval_start": request.interval.start, "interval_end": request.interval.end}
    rows: list[ledger.Row] = []
    for flow in report["flows"]:
        ended: ledger.RunRow = {
            "state": FAILED if flow["flow"] in failed else DONE,
            "failure": failed.get(flow["flow"]),
            "fingerprint": fingerprints.get((flow["flow"], flow["layer"])),
        }
        rows.append({**of_stage, **flow, **ended})
    if rows:
        ledger.append_run_rows(PipelineRecords(settings, request.pipeline), rows)
