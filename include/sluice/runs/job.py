"""Runs one stage of one pipeline under its lease, and does what follows it: shared by job scripts, `sluice run` and kept-running processes."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.declare.interval import Interval
from sluice.errors import SluiceError, StopRequested
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import Stage, find_stage_of_pipeline, is_demanded
from sluice.printable import escape_keeping_lines
from sluice.run_modes import INCREMENT, REPLAY, OptionNames, check_run_mode
from sluice.runs import due_requests, failures, summary, vault_expiry
from sluice.runs.execution.stages import SCHEDULED, StageOptions
from sluice.settings import Settings
from sluice.step_times import STARTING, WAITING, StepTimes, collect_step_times, current_step_times, measure_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.catalogs.registration import NameOutcome
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace

ARGUMENT_NAMES = OptionNames(mode="mode '{}'", days="--from and --to", tables="--tables", left_out="Leave out {}")


def make_run_id() -> str:
    """Returns a new id, for a run that nobody has named."""
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True)
class JobRequest:
    """The request for a job. wait: seconds to wait for the lease. airflow_run: an id of Airflow's run, never a user's text.

    interval: what a replay takes; for a scheduled run it is only recorded, because an increment takes whatever is new.
    """

    pipeline: str
    stage: str
    mode: str = INCREMENT.name
    run: str = field(default_factory=make_run_id)
    airflow_run: str = ""
    wait: float = 0.0
    interval: Interval | None = None
    options: StageOptions = SCHEDULED

    @property
    def replay_interval(self) -> Interval | None:
        """The interval that a replay takes; None in any other mode."""
        return self.interval if self.mode == REPLAY.name else None

    @property
    def takes_what_is_new(self) -> bool:
        """Whether it asks for no more than a plain run does. Options of `verify` and `optimize` count only for these stages."""
        demanded = is_demanded(self.stage, self.options.verify, self.options.optimize_now)
        return self.mode == INCREMENT.name and not self.options.tables and not demanded


def run_recorded_stage(settings: Settings, request: JobRequest) -> dict[str, Any]:
    """Runs a stage under the lease and records it. Returns its report. Raises SluiceError, or what Spark raised."""
    from sluice.runs.execution import clones, stages

    lake = load_pipeline_lake(settings, request.pipeline)
    stage = find_stage_of_pipeline(lake.graph.pipeline, request.stage)
    # A scheduled run takes whatever is new: its interval is no demand.
    check_run_mode(
        request.mode, [request.interval if request.mode != INCREMENT.name else None], request.options.tables, ARGUMENT_NAMES
    )
    stages.check_tables_of_mode(lake.graph, request.mode, request.options.tables)
    stages.check_tables_to_optimize(lake.graph, request.options.optimize_now)
    clones.check_stage_in_clone(lake, request.stage)
    report = run_under_lease(
        lake,
        request,
        lambda workspace: stages.run_pipeline_stage(workspace, request.stage, request.options),
        towards_quiet=request.takes_what_is_new,
    )
    return add_request_standings(lake.records, stage, report)


def run_stages_in_turn(settings: Settings, request: JobRequest, stages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Runs stages in this process, one after the other, under one run id. Yields each one's report when it is done.

    Raises StopRequested before a stage if the run is asked to stop, and what `run_recorded_stage` raises.
    """
    stop_request = PipelineRecords(settings, request.pipeline).stop_request(request.run)
    for stage in stages:
        if stop_request.exists():
            raise StopRequested(f"stopped on request, before stage '{stage}'; the next run goes on from there")
        yield run_recorded_stage(settings, replace(request, stage=stage))


def add_request_standings(records: PipelineRecords, stage: Stage, report: dict[str, Any]) -> dict[str, Any]:
    """Returns a successful stage's report with the work that followed it, and the state of erasure requests if the stage may change it."""
    report = report | clean_up_after_stage(records, stage)
    standing = due_requests.summarize_erasure_requests(records) if stage.moves_erasures else []
    return {**report, "requests": standing} if standing else report


def clean_up_after_stage(records: PipelineRecords, stage: Stage) -> dict[str, Any]:
    """Does the work that follows a successful stage, whoever ran it. Returns additions to the stage's report."""
    if stage.moves_erasures:
        vault_expiry.forget_expired_identifiers(records)
    named = register_after_stage(records, stage)
    return {"catalog": named} if named else {}


def empty_run_report(request: JobRequest) -> dict[str, Any]:
    """Returns the report of a run that had nothing to do and started no Spark."""
    return summary.summarize_run(request.run, request.pipeline, request.stage, request.mode, 0.0, [])


def run_under_lease(
    lake: PipelineLake,
    request: JobRequest,
    work: Callable[[Workspace], list[FlowReport]],
    towards_quiet: bool = False,
) -> dict[str, Any]:
    """Does something under a pipeline's lease and records it as a run of the request's stage. Returns and raises what `run_recorded_stage` does.

    towards_quiet: whether this is all that the stage has to do, so that a run of all stages may leave the pipeline quiet.
    """
    from sluice.lake.flow_report import FlowsFailed
    from sluice.runs import stage_run

    at = datetime.now(UTC)
    with collect_step_times(StepTimes()), open_leased_workspace(lake, request) as workspace:
        try:
            return stage_run.record_stage_run(workspace, request, lambda: work(workspace), at, towards_quiet)
        except FlowsFailed as failed:
            first = _report_first_error(failed.errors)
            first.report = failed.report
            raise first from None


@contextmanager
def open_leased_workspace(lake: PipelineLake, request: JobRequest, kept_running: bool = False) -> Iterator[Workspace]:
    """Holds a pipeline's lease and opens the workspace in the process's session. kept_running: tells others that this process does not end by itself.

    If the request is for one stage alone, others are told that too.
    """
    from sluice import session as sessions
    from sluice.lake.workspace import Workspace
    from sluice.runs.lease import lock

    records = PipelineRecords(lake.settings, request.pipeline)
    lock.check_lake_format(records)
    run = request.run
    session = sessions.start_spark_session(lake.settings, f"sluice {request.pipeline} {request.stage}".strip())
    if (times := current_step_times()) is not None:
        times.seconds[STARTING] = sessions.take_start_up_seconds()
    alone = request.stage or None if kept_running else None
    with ExitStack() as held:
        with measure_step(WAITING):
            held.enter_context(lock.hold_writer_lease(records, session, run, request.wait, kept_running, alone))
        lock.write_lake_format(records)
        yield Workspace(lake.settings, lake.graph, session, run, request.mode, request.replay_interval)


def _report_first_error(errors: dict[str, BaseException]) -> SluiceError:
    flow, error = next(iter(errors.items()))
    if len(errors) > 1:
        print(f"failed: {', '.join(sorted(errors))}", file=sys.stderr)
        for other, why in list(errors.items())[1:]:
            print(escape_keeping_lines(f"{other}: {failures.describe_error_without_values(why)}"), file=sys.stderr)
    if isinstance(error, SluiceError):
        return error
    return SluiceError(f"Flow '{flow}': {failures.describe_error_without_values(error)}")


def register_after_stage(records: PipelineRecords, stage: Stage) -> list[str]:
    """Registers what is new or changed, if a catalog is set and this is the stage for it. Returns lines for the report; none if nothing changed.

    A failure is a line too, and the next run tries again.
    """
    if records.settings.catalog is None or not stage.registers_names:
        return []
    from sluice.catalogs.catalog import CatalogFailed
    from sluice.catalogs.registration import register_pipeline

    try:
        outcomes = register_pipeline(load_pipeline_lake(records.settings, records.pipeline), _find_running_session())
    except (CatalogFailed, SluiceError) as error:
        return [f"catalog {records.settings.catalog}: it cannot be used now; the next run registers what is missing: {error}"]
    except Exception as error:  # whatever it is, the run has done its work
        return [
            f"catalog {records.settings.catalog}: it cannot be used now; the next run registers what is missing ({type(error).__name__})"
        ]
    return _describe_outcomes(records, outcomes)


def _describe_outcomes(records: PipelineRecords, outcomes: Iterable[NameOutcome]) -> list[str]:
    """Returns a line for each way in which names were changed, and one for each name that was refused."""
    from sluice.catalogs.registration import CHANGES

    found = list(outcomes)
    changed = [(state, [one.name for one in found if one.state == state]) for state in CHANGES]
    lines = [f"catalog {records.settings.catalog}: {state} {', '.join(names)}" for state, names in changed if names]
    refused = [one for one in found if one.state == "refused"]
    return lines + [
        f"catalog {records.settings.catalog}: {records.pipeline}.{one.name} was refused: {one.why}" for one in refused
    ]


def _find_running_session() -> SparkSession | None:
    """Returns the Spark session of this process; None if it has none, so that none starts."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
