"""The stage `optimize`: small files become large ones, laid out by the declared columns."""

from __future__ import annotations

from sluice import upkeep
from sluice.flows.progress import streams
from sluice.lake import log
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.runs.execution.stages import StageOptions


def run_optimize_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Every table, those first that hold instants as files of before did. Raises StopRequested between two tables."""
    rewritten: dict[str, FlowReport] = {}
    for name, path in workspace.tables().items():
        if log.is_delta_table(path) and (report := upkeep.rewrite_int96_files(workspace, name, path)) is not None:
            streams.stop_if_requested(workspace)
            rewritten[name] = report
    reports = []
    for declared in workspace.graph:
        if workspace.graph.table_of(declared.name) == declared.name and log.is_delta_table(workspace.path(declared.name)):
            streams.stop_if_requested(workspace)
            report = upkeep.optimize_table(workspace, declared)
            if declared.name in rewritten:
                before = rewritten.pop(declared.name)
                report.notes, report.version_before = [*before.notes, *report.notes], before.version_before
            reports.append(report)
    return [*reports, *rewritten.values()]
