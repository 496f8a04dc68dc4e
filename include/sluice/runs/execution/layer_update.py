"""The update of one layer in a run: its flows, level by level, and what is judged and recorded of it when they have run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.lake.flow_report import FlowReport, TableTurns
from sluice.lake.workspace import Workspace
from sluice.runs.execution import column_tracing, table_rules
from sluice.runs.execution.parallel_flows import Flow, run_flows_in_parallel


@dataclass
class LayerUpdate:
    """The update of one layer, level by level. turns: what its flows reported, and which failed."""

    workspace: Workspace
    stage: str
    chosen: set[str]
    due: Callable[[Source | Dataset[Any]], bool]
    turns: TableTurns = field(default_factory=TableTurns)

    def note_refused_sources(self, refused: Mapping[str, BaseException]) -> None:
        """Counts as failed the flows of sources that could not be listed."""
        self.turns.errors |= refused
        self.turns.reports += [FlowReport(flow=name, layer=self.stage) for name in refused]

    def run_flows_of_level(self, level: list[Source | Dataset[Any]]) -> list[str]:
        """Runs those flows of a level that are able to run and due. Returns their names, and those that this run does not concern."""
        able = [item for item in level if self._is_able(item) and self.due(item)]
        flows = [(item, flow) for item in able if (flow := choose_flow(self.workspace, item, self.chosen))]
        self.turns.take_flows(lambda: run_flows_in_parallel(self.workspace, self.stage, flows, judged=True))
        return [item.name for item in able]

    def _is_able(self, item: Source | Dataset[Any]) -> bool:
        """Whether nothing failed that the flow needs: a source needs no other flow, and a table is left alone once any flow failed."""
        failed = self.turns.errors
        return item.name not in failed and (item.name in self.workspace.graph.sources or not failed)

    def judge_and_report(self) -> list[FlowReport]:
        """Judges rules between tables, and records where columns come from. Returns the reports. Raises FlowsFailed if a flow or rule failed."""
        self.turns.errors |= table_rules.judge_reference_rules(self.workspace, self._list_succeeded_reports())
        column_tracing.record_column_lineage(self.workspace, self._list_succeeded_reports())
        return self.turns.end_turns()

    def _list_succeeded_reports(self) -> list[FlowReport]:
        return [report for report in self.turns.reports if report.flow not in self.turns.errors]


def choose_flow(workspace: Workspace, item: Source | Dataset[Any], chosen: set[str]) -> Flow | None:
    """Returns what to do to a table in this run's mode, or None if the run does not concern it."""
    return item.kind.choose_flow(workspace, item, item.name in chosen)
