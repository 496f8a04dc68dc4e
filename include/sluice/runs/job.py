"""Runs one stage of one pipeline under its lease and records it: shared by job scripts, `sluice run` and kept-running processes."""

from __future__ import annotations

import json
import os
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sluice import error_conditions
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.declare.interval import Interval
from sluice.errors import SluiceError, StopRequested, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import OPTIMIZE, VERIFY, describe_stage, list_stage_names
from sluice.runs import catalog_names, due, failures, ledger, open_lineage, quiet, summary
from sluice.settings import Settings
from sluice.step_times import STARTING, WAITING, StepTimes, collect_step_times, current_step_times, measure_step
from sluice.work_progress import FollowedSubject, show_progress

if TYPE_CHECKING:
    from sluice.lake.report import FlowReport
    from sluice.lake.workspace import Workspace


@dataclass(frozen=True)
class JobRequest:
    """The request for a job. wait: seconds to wait for the lease. airflow_run: an id of Airflow's run, never a user's text.

    interval: what a replay takes; for a scheduled run it is only recorded, because an increment takes whatever is new. verified: the tables that
    the stage `verify` compares, empty for all; None: the next one in turn. optimized: the tables whose files the stage `optimize` rewrites
    whether or not they need it.
    """

    pipeline: str
    stage: str
    mode: str = "increment"
    tables: tuple[str, ...] = ()
    run: str = ""
    airflow_run: str = ""
    wait: float = 0.0
    interval: Interval | None = None
    verified: tuple[str, ...] | None = None
    optimized: tuple[str, ...] = ()

    @property
    def takes_what_is_new(self) -> bool:
        """Whether it asks for no more than a plain run does. Which tables are verified or optimized concerns only those stages."""
        demands = {VERIFY.name: self.verified is not None, OPTIMIZE.name: bool(self.optimized)}
        return self.mode == "increment" and not self.tables and not demands.get(self.stage)


def run_recorded_stage(settings: Settings, request: JobRequest) -> dict[str, Any]:
    """Runs a stage under the lease and records it. Returns its report. Raises SluiceError, or what Spark raised."""
    from sluice.runs import modes
    from sluice.runs.execution import clones, stages

    graph = load_declaration_graph(settings, request.pipeline)
    modes.check_run_mode(graph, request.stage, request.mode, request.tables, request.interval)
    modes.check_demanded_tables(graph, request.optimized)
    clones.check_stage_in_clone(settings, graph, request.stage)
    report = run_under_lease(
        settings,
        graph,
        request,
        lambda workspace: stages.run_pipeline_stage(
            workspace, request.stage, request.tables, verified=request.verified, optimized=request.optimized
        ),
        towards_quiet=request.takes_what_is_new,
    )
    return add_request_standings(settings, request, report)


def run_stages_in_turn(settings: Settings, request: JobRequest, stages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Runs stages in this process, one after the other, under one run id. Yields each one's report when it is done.

    Raises StopRequested before a stage if the run is asked to stop, and what `run_recorded_stage` raises.
    """
    request = replace(request, run=request.run or uuid.uuid4().hex[:12])
    stop_request = PipelineRecords(settings, request.pipeline).stop_request(request.run)
    for stage in stages:
        if stop_request.exists():
            raise StopRequested(f"stopped on request, before stage '{stage}'; the next run goes on from there")
        yield run_recorded_stage(settings, replace(request, stage=stage))


def add_request_standings(settings: Settings, request: JobRequest, report: dict[str, Any]) -> dict[str, Any]:
    """Returns a successful stage's report with the work that followed it, and the state of erasure requests if the stage may change it."""
    records = PipelineRecords(settings, request.pipeline)
    report = report | clean_up_after_stage(records, request.stage)
    standing = due.summarize_erasure_requests(records) if describe_stage(request.stage).moves_erasures else []
    return {**report, "requests": standing} if standing else report


def clean_up_after_stage(records: PipelineRecords, stage: str) -> dict[str, Any]:
    """Does the work that follows a successful stage, whoever ran it. Returns additions to the stage's report."""
    if describe_stage(stage).moves_erasures:
        forget_expired_identifiers(records)
    named = catalog_names.register_after_stage(records, stage)
    return {"catalog": named} if named else {}


def forget_expired_identifiers(records: PipelineRecords) -> None:
    """Removes expired identifiers from the vault.

    It keeps those of requests that are not proved yet, which could not be proved without them, and for a while those that the second scan
    needs. Raises UsageError for an entry that cannot be read, after all others are done.
    """
    from sluice.erasure import vault

    now = datetime.now(UTC)
    unread: list[UsageError] = []
    for one in due.read_request_standings(records):
        if one.open or (one.looked_again_until or now) > now:
            continue
        try:
            until = vault.read_vault_expiry(records, one.request)
        except UsageError as error:
            unread.append(error)
            continue
        if until and datetime.fromisoformat(until) <= now:
            vault.remove_vault_entry(records, one.request)
    if unread:
        raise unread[0]


def empty_run_report(request: JobRequest) -> dict[str, Any]:
    """Returns the report of a run that had nothing to do and started no Spark."""
    return summary.summarize_run(request.run or uuid.uuid4().hex[:12], request.pipeline, request.stage, request.mode, 0.0, [])


def run_under_lease(
    settings: Settings,
    graph: Graph,
    request: JobRequest,
    work: Callable[[Workspace], list[FlowReport]],
    towards_quiet: bool = False,
) -> dict[str, Any]:
    """Does something under a pipeline's lease and records it as a run of the request's stage. Returns and raises what `run_recorded_stage` does.

    towards_quiet: whether this is all that the stage has to do, so that a run of all stages may leave the pipeline quiet.
    """
    from sluice.runs.execution import stages

    at = datetime.now(UTC)
    with collect_step_times(StepTimes()), open_leased_workspace(settings, graph, request) as workspace:
        try:
            return record_stage_run(workspace, request, lambda: work(workspace), at, towards_quiet)
        except stages.FlowsFailed as failed:
            raise _report_first_error(failed.errors) from None


@contextmanager
def open_leased_workspace(
    settings: Settings, graph: Graph, request: JobRequest, kept_running: bool = False
) -> Iterator[Workspace]:
    """Holds a pipeline's lease and opens the workspace in the process's session. kept_running: tells others that this process does not end by itself.

    If the request is for one stage alone, others are told that too.
    """
    from sluice import session as sessions
    from sluice.lake.workspace import Workspace
    from sluice.runs.lease import lock

    records = PipelineRecords(settings, request.pipeline)
    lock.check_lake_format(records)
    run = request.run or uuid.uuid4().hex[:12]
    session = sessions.start_spark_session(settings, f"sluice {request.pipeline} {request.stage}".strip())
    if (times := current_step_times()) is not None:
        times.seconds[STARTING] = sessions.take_start_up_seconds()
    alone = request.stage or None if kept_running else None
    with ExitStack() as held:
        with measure_step(WAITING):
            held.enter_context(lock.hold_writer_lease(records, session, run, request.wait, kept_running, alone))
        lock.write_lake_format(records)
        yield Workspace(settings, graph, session, run, request.mode, request.interval if request.mode == "replay" else None)


def record_stage_run(
    workspace: Workspace,
    request: JobRequest,
    work: Callable[[], list[FlowReport]],
    at: datetime | None = None,
    towards_quiet: bool = False,
) -> dict[str, Any]:
    """Does something under the lease that is held, and records it as a run of the request's stage. at: when it began; by default now.

    towards_quiet: see `run_under_lease`.

    Returns the report when everything written is on the disk. Raises DamagedLog before anything is done, stages.FlowsFailed, and whatever else
    `work` raises; each of them once it is recorded, if it can be.
    """
    from sluice.lake import durability, places, spark_counters
    from sluice.runs.execution import quiet_marking, stages

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
        open_lineage.send_stage_end(workspace.settings, workspace.graph, told, report["flows"], bool(failed))
        durability.flush_run_output(workspace.settings)
        return report

    subject = FollowedSubject(request.stage, times, (spark_counters.session_job_tag(workspace.session),))
    count_tasks = partial(spark_counters.count_running_tasks, workspace.session)
    parent = open_lineage.find_parent_run(lambda name: workspace.session.conf.get(name, None))
    told = open_lineage.StageIdentity(request.pipeline, request.stage, workspace.run, at, parent)
    open_lineage.send_stage_start(workspace.settings, told)
    mark = quiet_marking.begin_stage(workspace, request.stage) if towards_quiet else None
    try:
        places.check_stage_logs(workspace.settings, workspace.graph, request.stage)
        with collect_step_times(times), show_progress(request.pipeline, subject, count_tasks):
            reports = work()
    except BaseException as error:
        quiet.remove_quiet_mark(workspace.records)
        if isinstance(error, stages.FlowsFailed):
            noted(error.reports, error.errors)
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


def describe_error_without_values(error: BaseException) -> str:
    """Returns why it failed, without a cell's value. For Spark's own errors that is only their condition, because their text may quote data."""
    if os.environ.get("SLUICE_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, SluiceError):
        return str(error)
    if known := failures.explain_failure(error):
        return known
    from pyspark.errors import AnalysisException, PySparkException

    if isinstance(error, AnalysisException):
        return error_conditions.explain_refused_query(error)
    condition = error_conditions.last_error_condition(str(error))
    if isinstance(error, PySparkException) or condition:
        return f"Spark failed with {condition or type(error).__name__}. SLUICE_DEBUG=1 shows where (and may show data)."
    return f"{type(error).__name__} in Sluice itself. SLUICE_DEBUG=1 shows where (and may show data)."


def _report_first_error(errors: dict[str, BaseException]) -> BaseException:
    flow, error = next(iter(errors.items()))
    if len(errors) > 1:
        print(f"failed: {', '.join(sorted(errors))}; the first:", file=sys.stderr)
    if isinstance(error, SluiceError):
        return error
    return SluiceError(f"Flow '{flow}': {describe_error_without_values(error)}")


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
    common = {"run": report["run"], "pipeline": request.pipeline, "stage": request.stage, "mode": request.mode}
    common |= {"airflow_run": request.airflow_run, "started_at": at, "ended_at": datetime.now(UTC)}
    common |= {ledger.STAGE_STEPS: json.dumps(report.get(ledger.STAGE_STEPS, {})), ledger.STAGE_CPU: report.get(ledger.STAGE_CPU)}
    if request.interval:
        common |= {"interval_start": request.interval.start, "interval_end": request.interval.end}
    rows = [
        {
            **common,
            **flow,
            "state": "failed" if flow["flow"] in failed else "done",
            "failure": failed.get(flow["flow"]),
            **{name: json.dumps(flow[name]) for name in ledger.FLOW_OBJECTS},
            "fingerprint": fingerprints.get((flow["flow"], flow["layer"])),
        }
        for flow in report["flows"]
    ]
    if rows:
        ledger.append_run_rows(PipelineRecords(settings, request.pipeline), rows)
