"""The stages `optimize` and `vacuum`: they join small files and remove files that no version needs any more.

`vacuum` also removes the bytes of erased people whose retention is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sluice import delta_log, record_tables, upkeep, vacuum
from sluice.erasure import physical
from sluice.erasure.steps import sweep
from sluice.flows.progress import streams
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.record_tables import RECORD_TABLES
from sluice.runs.execution.stages import StageOptions
from sluice.runs.status import removals
from sluice.vacuum import SlowReader
from sluice.work_progress import count_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_vacuum_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Vacuums every table by its retention, but not past a flow or a clone that is behind.

    Also removes bytes of erased people whose retention is over, and leftovers of killed commits, which VACUUM leaves. Raises StopRequested
    between two tables.
    """
    now = datetime.now(UTC)
    slow, paths = removals.find_slow_readers(workspace.settings, workspace.graph, now), workspace.tables()
    reports = _vacuum_tables(workspace, paths, slow, now)
    sweep.remove_killed_commit_files(workspace, now.timestamp())
    finished = {report.flow: report for report in physical.finish_physical_erasure(workspace, now)}
    joined = [_join_flow_reports(paths[report.flow], report, finished.pop(report.flow, None)) for report in reports]
    return [*joined, *finished.values(), *_vacuum_record_tables(workspace, slow, now)]


def vacuum_named_table(workspace: Workspace, name: str) -> list[FlowReport]:
    """Vacuums one table by its retention. name: as in `Workspace.tables`."""
    now = datetime.now(UTC)
    slow = removals.find_slow_readers(workspace.settings, workspace.graph, now)
    return _vacuum_tables(workspace, {name: workspace.tables()[name]}, slow, now)


def _vacuum_tables(
    workspace: Workspace, paths: Mapping[str, str], slow: Mapping[str, list[SlowReader]], now: datetime
) -> list[FlowReport]:
    """Vacuums those of the tables that exist and returns a report for each. paths: by name."""
    with_people = removals.locate_tables_with_people(workspace.settings, workspace.graph)
    return [
        vacuum.vacuum_table(workspace, name, path, slow.get(path, ()), path in with_people, now=now)
        for name, path in _visit_tables(workspace, paths)
    ]


def _visit_tables(workspace: Workspace, paths: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields those of the tables that exist, by name and path, and counts them as work. Raises StopRequested before one of them."""
    with count_work("tables looked at", len(paths)) as work:
        for name, path in paths.items():
            if delta_log.is_delta_table(path):
                streams.stop_if_requested(workspace)
                yield name, path
            work.advance()


def _vacuum_record_tables(workspace: Workspace, slow: Mapping[str, list[SlowReader]], now: datetime) -> list[FlowReport]:
    """Vacuums the record tables whose files are due to go, and returns a report for each that exists."""
    reports = []
    for name in RECORD_TABLES:
        path = workspace.places.bookkeeping(name)
        if delta_log.is_delta_table(path):
            streams.stop_if_requested(workspace)
            reports.append(
                vacuum.vacuum_table(
                    workspace, f"_sluice/{name}", path, slow.get(path, ()), remove_in_full=_remove_expired_record_files, now=now
                )
            )
    return reports


def _remove_expired_record_files(session: SparkSession, path: str, keep: timedelta, mark: str | None) -> None:
    record_tables.remove_expired_files(path, keep, mark)


def _join_flow_reports(path: str, first: FlowReport, second: FlowReport | None) -> FlowReport:
    """Joins what two steps of a stage did to a table into one report."""
    if second is not None:
        first.deleted += second.deleted
        first.notes += [note for note in second.notes if note not in first.notes]
        first.note_new_versions(path)
    return first


def run_optimize_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Rewrites the files of every table that needs it or was requested, including late tables and quarantines. Files with INT96 are rewritten first.

    Raises StopRequested between two tables.
    """
    declared = {one.name: one for one in workspace.graph if workspace.graph.table_of(one.name) == one.name}
    reports, aside = list[FlowReport](), list[FlowReport]()
    for name, path in _visit_tables(workspace, workspace.tables()):
        rewritten = upkeep.rewrite_int96_files(workspace, name, path)
        if name in declared:
            report = upkeep.optimize_table(workspace, declared[name], demanded=name in options.optimized)
        else:
            report = upkeep.optimize_table_beside(workspace, name, path)
        if rewritten is not None:
            report.notes, report.version_before = [*rewritten.notes, *report.notes], rewritten.version_before
            report.note_new_versions(path)
        (reports if name in declared else aside).append(report)
    records = [joined for name in RECORD_TABLES if (joined := upkeep.join_record_files(workspace, name)) is not None]
    return [*reports, *aside, *records]


def optimize_demanded_tables(workspace: Workspace, names: Sequence[str]) -> list[FlowReport]:
    """Rewrites the files of these tables, whether or not they need it. Raises StopRequested between two tables."""
    reports = []
    for name in names:
        streams.stop_if_requested(workspace)
        reports.append(upkeep.optimize_table(workspace, workspace.graph[name], demanded=True))
    return reports
