"""A run of a stage under the lease that is held: its rows in the run ledger, its lineage events, and whether it leaves the pipeline quiet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sluice import durable_files
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import Graph
from sluice.errors import SparkNeeded, StopRequested
from sluice.lake import log, pipeline_lake, spark_counters
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import list_stage_names
from sluice.runs import failures, open_lineage, quiet, run_ledger, summary
from sluice.runs.execution import quiet_marking
from sluice.runs.quiet import QuietMark
from sluice.step_times import STARTING, StepTimes, collect_step_times, current_step_times
from sluice.work_progress import FollowedSubject, show_progress

if TYPE_CHECKING:
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
    run = StageRun(workspace, request, at or datetime.now(UTC))
    run.begin_recording(towards_quiet)
    try:
        reports = run.carry_out(work)
    except SparkNeeded:  # nothing failed: a job does it, and what leads to a quiet pipeline stands
        run.tell_that_spark_is_needed()
        raise
    except FlowsFailed as failed:
        failed.report = run.record_failed_flows(failed)
        raise
    except BaseException as error:
        run.record_failed_stage(error)
        raise
    return run.record_success(reports)


class StageRun:
    """One run of a request's stage in a workspace: it begins, is carried out, and is recorded in one of three ways."""

    def __init__(self, workspace: Workspace, request: JobRequest, began: datetime) -> None:
        self._workspace, self._request, self._began = workspace, request, began
        self._times = current_step_times() or StepTimes()
        self._jobs = spark_counters.count_started_jobs(workspace.session)
        self._cpu = 0.0 if self._times.seconds.get(STARTING) else spark_counters.measure_cpu_seconds(workspace.session)
        parent = open_lineage.find_parent_run(lambda name: workspace.session.conf.get(name, None))
        self._identity = open_lineage.StageIdentity(request.pipeline, request.stage, workspace.run, began, parent)
        self._mark: QuietMark | None = None

    def begin_recording(self, towards_quiet: bool) -> None:
        """Tells of the run's start, and looks at what a quiet pipeline is compared with, if the run may leave it quiet."""
        open_lineage.send_stage_start(self._workspace.settings, self._identity)
        self._mark = quiet_marking.begin_stage(self._workspace, self._request.stage) if towards_quiet else None

    def carry_out(self, work: Callable[[], list[FlowReport]]) -> list[FlowReport]:
        """Does the work, and takes its time and shows its progress meanwhile. Raises DamagedLog before, and what it raises."""
        subject = FollowedSubject(self._request.stage, self._times, (spark_counters.session_job_tag(self._workspace.session),))
        count_tasks = partial(spark_counters.count_running_tasks, self._workspace.session)
        pipeline_lake.check_stage_logs(self._workspace.lake, self._request.stage)
        with collect_step_times(self._times), show_progress(self._request.pipeline, subject, count_tasks):
            return work()

    def record_success(self, reports: list[FlowReport]) -> dict[str, Any]:
        """Records that all flows succeeded. Returns the run's report."""
        report = self._record_flows(reports, {})
        if run_ledger.has_failed_as_whole(self._workspace.records, self._request.stage):
            self._append_whole_stage_row()
        if self._mark is not None:
            quiet_marking.end_stage(self._workspace, self._request.stage, self._mark, reports)
        return report

    def record_failed_flows(self, failed: FlowsFailed) -> dict[str, Any]:
        """Records that flows failed, and what the others did. Returns the run's report."""
        quiet.remove_quiet_mark(self._workspace.records)
        return self._record_flows(failed.reports, failed.errors)

    def record_failed_stage(self, error: BaseException) -> None:
        """Records that the stage ended outside its flows, as far as what ended it allows."""
        quiet.remove_quiet_mark(self._workspace.records)
        if _is_failed_stage(self._workspace.graph, self._request.stage, error):
            with suppress(Exception):  # what ended the stage may prevent it, too, and is the error to tell
                self._append_whole_stage_row(error)
        open_lineage.send_stage_end(self._workspace.lake, self._identity, [], failed=True)

    def tell_that_spark_is_needed(self) -> None:
        """Tells that this run of the stage is given up. A job begins it anew, and the run ledger has nothing of this one."""
        open_lineage.send_stage_abort(self._workspace.settings, self._identity)

    def _record_flows(self, reports: list[FlowReport], failed: Mapping[str, BaseException]) -> dict[str, Any]:
        """Records what flows did, a row and an event each. Returns the run's report when all that was written is on the disk."""
        workspace = self._workspace
        tags = {one.flow: one.job_tags for one in reports if one.job_tags}
        counted = spark_counters.count_jobs_by_flow(workspace.session, tags, self._jobs) if tags else {}
        for one in reports:
            one.spark = _add_cores_and_bytes(workspace, one, counted.get(one.flow, {})) if one.job_tags else {}
        report = self._summarize_flows(reports, failed)
        used = spark_counters.measure_cpu_seconds(workspace.session)
        report[run_ledger.STAGE_CPU] = None if used is None or self._cpu is None else round(used - self._cpu, 2)
        self._append_run_rows(report, failed)
        open_lineage.send_stage_end(workspace.lake, self._identity, report["flows"], bool(failed), failed)
        durable_files.flush_run_output(workspace.settings)
        return report

    def _append_whole_stage_row(self, error: BaseException | None = None) -> None:
        """Records that the stage failed outside its flows; without an error, that it succeeded after such a failure."""
        failed = {} if error is None else {run_ledger.WHOLE_STAGE: error}
        reports = [FlowReport(flow=run_ledger.WHOLE_STAGE, layer=self._request.stage)]
        self._append_run_rows(self._summarize_flows(reports, failed), failed)

    def _summarize_flows(self, reports: list[FlowReport], failed: Mapping[str, BaseException]) -> dict[str, Any]:
        request, seconds = self._request, (datetime.now(UTC) - self._began).total_seconds()
        report = summary.summarize_run(
            self._workspace.run, request.pipeline, request.stage, request.mode, seconds, reports, failed
        )
        report[run_ledger.STAGE_STEPS] = self._times.rounded_seconds()
        return report

    def _append_run_rows(self, report: dict[str, Any], failed: Mapping[str, BaseException]) -> None:
        graph = self._workspace.graph
        code = {(item.name, graph.layer(item)): compute_declaration_fingerprint(item) for item in graph.datasets.values()}
        kinds = {flow: failures.name_failure(error) for flow, error in failed.items()}
        run_ledger.append_report_rows(self._workspace.records, self._request, report, self._began, kinds, code)


def _is_failed_stage(graph: Graph, stage: str, error: BaseException) -> bool:
    """Whether a stage of a run has failed, and not a command that was refused, or a run that was stopped."""
    return isinstance(error, Exception) and not isinstance(error, StopRequested) and stage in list_stage_names(graph.pipeline)


def _add_cores_and_bytes(workspace: Workspace, report: FlowReport, counted: dict[str, float]) -> dict[str, float]:
    """Adds to Spark's counts of a flow the numbers needed to judge them: cores, and the bytes of its inputs and its table. Empty stays empty."""
    if not counted or report.flow not in workspace.graph.stored:
        return counted
    tables = {report.flow, *workspace.graph[report.flow].reads}
    states = [log.read_table_state(path) for path in {workspace.path(name) for name in tables}]
    there = sum(state.bytes for state in states if state is not None)
    return {**counted, "cores": workspace.session.sparkContext.defaultParallelism, "tables_bytes": there}
