"""Runs one stage of one pipeline under its lease, and registers its tables: shared by job scripts, `sluice run` and kept-running processes."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.declare.interval import Interval
from sluice.errors import SluiceError, StopRequested, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import OPTIMIZE, VERIFY, describe_stage
from sluice.printable import escape_keeping_lines
from sluice.runs import due, failures, stage_recording, summary
from sluice.settings import Settings
from sluice.step_times import STARTING, WAITING, StepTimes, collect_step_times, current_step_times, measure_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.catalogs.registration import NameOutcome
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
    named = register_after_stage(records, stage)
    return {"catalog": named} if named else {}


def forget_expired_identifiers(records: PipelineRecords) -> None:
    """Removes expired identifiers from the vault.

    It keeps those of requests that are not proved yet, which could not be proved without them, and for a while those that the second scan
    needs. An entry may have no request: it is written before the request is. In a clone nothing is removed: the vault is that of the lake
    which was cloned, and so are the requests. Raises UsageError for a request's entry that cannot be read, after all others are done.
    """
    from sluice.erasure import vault
    from sluice.runs.execution import clones

    if clones.read_clone_description(records) is not None:
        return
    now = datetime.now(UTC)
    unread: list[UsageError] = []
    standings = due.read_request_standings(records)
    for one in standings:
        if one.open or (one.looked_again_until or now) > now:
            continue
        try:
            until = vault.read_vault_expiry(records, one.request)
        except UsageError as error:
            unread.append(error)
            continue
        if until and datetime.fromisoformat(until) <= now:
            vault.remove_vault_entry(records, one.request)
    vault.remove_ownerless_entries(records, {one.request for one in standings}, now)
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
    from sluice.lake.report import FlowsFailed

    at = datetime.now(UTC)
    with collect_step_times(StepTimes()), open_leased_workspace(settings, graph, request) as workspace:
        try:
            return stage_recording.record_stage_run(workspace, request, lambda: work(workspace), at, towards_quiet)
        except FlowsFailed as failed:
            first = _report_first_error(failed.errors)
            first.report = failed.report
            raise first from None


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


def _report_first_error(errors: dict[str, BaseException]) -> SluiceError:
    flow, error = next(iter(errors.items()))
    if len(errors) > 1:
        print(f"failed: {', '.join(sorted(errors))}", file=sys.stderr)
        for other, why in list(errors.items())[1:]:
            print(escape_keeping_lines(f"{other}: {failures.describe_error_without_values(why)}"), file=sys.stderr)
    if isinstance(error, SluiceError):
        return error
    return SluiceError(f"Flow '{flow}': {failures.describe_error_without_values(error)}")


def register_after_stage(records: PipelineRecords, stage: str) -> list[str]:
    """Registers what is new or changed, if a catalog is set and this is the stage for it. Returns lines for the report; none if nothing changed.

    A failure is a line too, and the next run tries again.
    """
    if records.settings.catalog is None or not describe_stage(stage).registers_names:
        return []
    from sluice.catalogs.catalog import CatalogFailed
    from sluice.catalogs.registration import register_pipeline

    try:
        graph = load_declaration_graph(records.settings, records.pipeline)
        outcomes = register_pipeline(records.settings, graph, find_running_session())
    except (CatalogFailed, SluiceError) as error:
        return [f"catalog {records.settings.catalog}: it cannot be used now; the next run registers what is missing: {error}"]
    except Exception as error:  # whatever it is, the run has done its work
        return [
            f"catalog {records.settings.catalog}: it cannot be used now; the next run registers what is missing ({type(error).__name__})"
        ]
    return describe_outcomes(records, outcomes)


def describe_outcomes(records: PipelineRecords, outcomes: Iterable[NameOutcome]) -> list[str]:
    """Returns a line for each way in which names were changed, and one for each name that was refused."""
    from sluice.catalogs.registration import CHANGES

    found = list(outcomes)
    changed = [(state, [one.name for one in found if one.state == state]) for state in CHANGES]
    lines = [f"catalog {records.settings.catalog}: {state} {', '.join(names)}" for state, names in changed if names]
    refused = [one for one in found if one.state == "refused"]
    return lines + [
        f"catalog {records.settings.catalog}: {records.pipeline}.{one.name} was refused: {one.why}" for one in refused
    ]


def find_running_session() -> SparkSession | None:
    """Returns the Spark session of this process; None if it has none, so that none starts."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
