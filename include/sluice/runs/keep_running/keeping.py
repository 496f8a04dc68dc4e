"""Keeps a pipeline running: one process with one warm session, which holds the lease and looks again and again.

Each look does what a triggered run does, with the same flows and checkpoints, so one may follow the other at any time. There is no endless
query for each flow: each look handles new columns and tables that were made anew, and keeps the order of the layers. A flow with nothing new
costs no Spark job and no row in the run ledger. Upkeep that leaves a table as it is costs a row if the reason is another than the last time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.errors import SluiceError, StopRequested
from sluice.lake.flow_report import FlowReport, FlowsFailed, TableTurns, read_bare_reason
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import DELETIONS, find_stage_of_pipeline, list_stage_names, stages_after_layers
from sluice.printable import count_noun
from sluice.runs import failures, job, stage_run, summary
from sluice.runs.execution import clones, verifying
from sluice.runs.execution.stages import StageOptions, is_always_due, run_pipeline_stage
from sluice.runs.keep_running.news import FlowNews
from sluice.runs.status import timeliness

UPKEEP = 3600.0
"""Seconds from one upkeep to the next. Upkeep runs every flow, whether or not anything is new; removes data that is too old, or of erased people
whose data came again; optimises and vacuums tables; and verifies one."""

FAILURES = 5
"""How many times in a row a flow may fail before the process ends."""

_LONGEST_PAUSE = 300.0
_LOOK_FOR_STOP = 0.2


@dataclass(frozen=True)
class LookReport:
    """A look that did something. reports: of the stages. errors: why flows failed. again: seconds until the first of them is tried again.

    differing: tables that a verification found to differ from their recompute. They are not tried again, and hold up nothing.
    """

    number: int
    seconds: float
    reports: list[dict[str, Any]]
    errors: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    again: float = 0.0
    differing: dict[str, str] = field(default_factory=dict)


@dataclass
class _FailingFlow:
    """A flow, or another part of a stage, that failed: its stage, how many times in a row, why, and when (monotonic) it is tried again."""

    stage: str
    times: int
    why: str
    until: float


def run_until_stopped(
    lake: PipelineLake,
    asked: job.JobRequest,
    every: float,
    heard: Callable[[LookReport], None],
    begun: Callable[[], None] = lambda: None,
    upkeep: float = UPKEEP,
) -> int:
    """Keeps a pipeline running until somebody asks it to stop. Returns how many looks did something.

    asked: the run; its stage is the only one wanted, or "" for all. every: seconds. heard: is called with each look that did something. begun: is
    called once the lease is held. Raises SluiceError if a flow failed too often in a row.
    """
    for stage in [asked.stage] if asked.stage else list_stage_names(lake.graph.pipeline):
        clones.check_stage_in_clone(lake, stage)
    with job.open_leased_workspace(lake, asked, kept_running=True) as workspace:
        begun()
        keeper = PipelineKeeper(workspace, asked, every, upkeep)
        span = timeliness.KeptRunningSpan(workspace.records)
        did = 0
        while not keeper.is_to_stop():
            started = time.monotonic()
            round_ = keeper.look()
            if round_ is not None:
                did += 1
                heard(round_)
                keeper.give_up()
            if (round_ is None or not round_.errors) and not keeper.is_to_stop() and not asked.stage:
                span.looked()
            keeper.wait(started + every)
        span.write()
        return did


class PipelineKeeper:
    """Looks at a pipeline again and again, under the lease, in one session. Arguments are those of `run_until_stopped`."""

    def __init__(self, workspace: Workspace, asked: job.JobRequest, every: float, upkeep: float) -> None:
        self._workspace, self._asked, self._every, self._upkeep = workspace, asked, every, upkeep
        self._news = FlowNews(workspace)
        layers = workspace.graph.pipeline.layer_names
        self._layers, self._first = (asked.stage,) if asked.stage else layers, layers[0]
        self._failing: dict[str, _FailingFlow] = {}
        self._next_upkeep = time.monotonic() + upkeep
        self._number = 0
        self._decisions: dict[tuple[str, str], str] = {}
        self._reports: list[dict[str, Any]] = []
        self._errors: dict[str, str] = {}
        self._differing: dict[str, str] = {}

    def is_to_stop(self) -> bool:
        """Whether somebody asked this run to stop."""
        return self._workspace.paths.stop_request(self._workspace.run).is_file()

    def wait(self, until: float) -> None:
        """Waits until that time (monotonic), or until somebody asks to stop."""
        while (left := until - time.monotonic()) > 0 and not self.is_to_stop():
            time.sleep(min(left, _LOOK_FOR_STOP))

    def look(self) -> LookReport | None:
        """Takes what is new. Returns None if nothing was new, or if it concerned no table."""
        started = time.monotonic()
        self._number += 1
        self._reports, self._errors, self._differing = [], {}, {}
        with suppress(StopRequested):  # earlier work of this look counts, and the caller sees the request itself
            self._take_what_is_new()
        if not self._reports and not self._errors:
            return None
        failing = [self._failing[name] for name in self._errors]
        again = min((one.until for one in failing), default=0.0) - time.monotonic() if failing else 0.0
        most = max((one.times for one in failing), default=0)
        return LookReport(self._number, time.monotonic() - started, self._reports, self._errors, most, again, self._differing)

    def give_up(self) -> None:
        """Raises SluiceError if a flow failed too often in a row."""
        for name, one in self._failing.items():
            if one.times >= FAILURES:
                raise SluiceError(
                    f"'{name}' failed {count_noun(one.times, 'time')} in a row, so nothing is kept running any more; the last time: {one.why}"
                )

    def _take_what_is_new(self) -> None:
        whole = self._asked.stage == ""
        upkeep = whole and time.monotonic() >= self._next_upkeep
        if upkeep:
            self._news.forget()
        for layer in self._layers:
            if self._due(layer):
                self._run_stage(layer, self._waits)
        if whole and (upkeep or self._news.deletions_wait()) and self._may(DELETIONS.name):
            self._run_stage(DELETIONS.name)
        if upkeep:
            self._next_upkeep = time.monotonic() + self._upkeep
            done = self._news.up_to_date()
            for stage in stages_after_layers():
                if stage != DELETIONS:
                    self._run_stage(stage.name)
            self._news.leave_out(done)

    def _due(self, layer: str) -> bool:
        """Whether a stage has anything to do."""
        if not self._may(layer):
            return False
        graph = self._workspace.graph
        due = any([self._waits(item) for item in graph.in_layer(layer)])
        sources = [source for source in graph.sources.values() if self._may(source.name)]
        return due or (layer == self._first and self._news.arrived(sources))

    def _waits(self, item: Source | Dataset[Any]) -> bool:
        # If a stage must succeed before the next ones and has not, they do not run.
        failing = [name for name in self._workspace.graph.datasets if name in self._failing]
        blocked = any(item.name in self._workspace.graph.below(name) for name in failing)
        return not blocked and self._may(item.name) and self._news.waits(item)

    def _may(self, name: str) -> bool:
        """Whether it is time to try a failed part again."""
        return name not in self._failing or time.monotonic() >= self._failing[name].until

    def _run_stage(self, stage: str, due: Callable[[Source | Dataset[Any]], bool] = is_always_due) -> None:
        """Runs a stage, and notes what it did. Raises StopRequested."""
        if self.is_to_stop():
            raise StopRequested("stopped on request, between two stages")
        record = find_stage_of_pipeline(self._workspace.graph.pipeline, stage)
        turns = TableTurns()

        def work() -> list[FlowReport]:
            turns.take_flows(lambda: run_pipeline_stage(self._workspace, stage, StageOptions(due=due)))
            return TableTurns(self.select_recorded(stage, turns.reports, turns.errors), turns.errors).end_turns()

        try:
            report = stage_run.record_stage_run(self._workspace, replace(self._asked, stage=stage), work)
            report |= job.clean_up_after_stage(self._workspace.records, record)
            if not record.always_recorded:
                did = {one.flow for one in turns.reports if _has_done_something(one)}
                report["flows"] = [flow for flow in report["flows"] if flow["flow"] in did]
            self._reports += [report] if report["flows"] or "catalog" in report else []
        except FlowsFailed as failed:
            self._reports.append(
                summary.summarize_run(self._workspace.run, self._asked.pipeline, stage, self._asked.mode, 0.0, failed.reports)
            )
        except StopRequested:
            raise
        except Exception as error:
            turns.errors[stage] = error
        self._note(stage, turns.reports, turns.errors)

    def select_recorded(self, stage: str, found: Sequence[FlowReport], failed: Collection[str] = ()) -> list[FlowReport]:
        """Returns the reports that are worth a row in the run ledger: of flows that did something or failed, and of new decisions.

        A decision is new if it is another than the last of this session, apart from its numbers: else the rows would have no end.
        """
        chosen = []
        always = find_stage_of_pipeline(self._workspace.graph.pipeline, stage).always_recorded
        for one in found:
            reason, key = read_bare_reason(one.decision), (stage, one.flow)
            is_new = bool(reason) and self._decisions.get(key) != reason
            self._decisions[key] = reason
            if is_new or _has_done_something(one) or one.flow in failed or (not failed and always):
                chosen.append(one)
        return chosen

    def _note(self, stage: str, reports: Sequence[FlowReport], errors: Mapping[str, BaseException]) -> None:
        """Records which flows have taken what waited for them, and which must be tried again. Raises StopRequested."""
        # Other stages also report on tables whose flows they do not run.
        for report in reports if stage in self._layers else ():
            if report.flow not in errors:
                self._news.took(report.flow)
                self._failing.pop(report.flow, None)
        # A part that is not a flow runs again whenever its stage does.
        flows = {item.name for item in self._workspace.graph} if stage in self._layers else set()
        parts = {self._name_failing_part(stage, flow) for flow in errors}
        for name in [
            name for name, one in self._failing.items() if one.stage == stage and name not in parts and name not in flows
        ]:
            del self._failing[name]
        if self.is_to_stop() and any(isinstance(error, StopRequested) for error in errors.values()):
            raise StopRequested("stopped on request, at a batch boundary")
        for flow, error in errors.items():
            name = self._name_failing_part(stage, flow)
            if isinstance(error, verifying.TablesDiffer):
                self._differing[flow] = failures.describe_error_without_values(error)
            elif self._may(name):  # every discovery reports a source that cannot be listed
                times = self._failing[name].times + 1 if name in self._failing else 1
                pause = min(self._every * 2 ** (times - 1), max(_LONGEST_PAUSE, self._every))
                self._failing[name] = _FailingFlow(
                    stage, times, failures.describe_error_without_values(error), time.monotonic() + pause
                )
                self._errors[name] = self._failing[name].why

    def _name_failing_part(self, stage: str, flow: str) -> str:
        """Returns the name under which a failure is kept. A table whose upkeep failed is no flow that failed: it holds up no reader."""
        has_flows = stage in self._layers or stage in (DELETIONS.name, flow)
        return flow if has_flows else f"{flow} ({stage})"


def _has_done_something(report: FlowReport) -> bool:
    """Whether a flow wrote or was given anything."""
    return report.committed or report.has_news()
