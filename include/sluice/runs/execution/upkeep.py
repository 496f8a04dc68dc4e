"""The stages `optimize` and `vacuum`: they join small files and remove files that no version needs any more.

`vacuum` also removes the bytes of erased people whose retention is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sluice import delta_log, optimize, record_tables, vacuum
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.erasure import physical
from sluice.erasure.steps import sweep
from sluice.flows.progress import streams
from sluice.lake.flow_report import FlowReport, TableTurns, take_table_turns
from sluice.lake.pipeline_lake import list_own_tables
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import OPTIMIZE, VACUUM
from sluice.record_tables import RECORD_TABLES
from sluice.runs import due_requests
from sluice.runs.execution.stages import StageOptions
from sluice.runs.status import removals
from sluice.vacuum import SlowReader
from sluice.work_progress import count_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def needs_no_spark_to_vacuum(workspace: Workspace) -> bool:
    """Whether no table must be vacuumed by walking its folder, and no erased person's bytes are due to go."""
    now = datetime.now(UTC)
    due_now = due_requests.find_due_requests(workspace.records, now).now
    decisions = removals.decide_table_vacuums(workspace.lake, now).values()
    return not (due_now or any(one.needed and one.in_full for one in decisions))


def run_vacuum_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Vacuums every table by its retention, but not past a flow or a clone that is behind.

    Also removes bytes of erased people whose retention is over, and leftovers of killed commits, which VACUUM leaves. What fails for one
    table keeps no other from its turn: FlowsFailed is raised at the end. Raises StopRequested between two tables.
    """
    now = datetime.now(UTC)
    slow, paths = removals.find_slow_readers(workspace.lake, now), workspace.lake.record_tables()
    with take_table_turns(stage) as turns:
        _vacuum_tables(workspace, turns, paths, slow, now)
        turns.reports += turns.take_part(_KILLED_COMMITS, stage, lambda: _remove_killed_commit_files(workspace, now))
        finished = turns.take_part(physical.REMOVAL_OF_BYTES, stage, lambda: physical.finish_physical_erasure(workspace, now))
        _join_flow_reports(paths, turns, finished)
        _vacuum_record_tables(workspace, turns, list_own_tables(workspace.paths, RECORD_TABLES), slow, now)
    return turns.reports


_KILLED_COMMITS = "killed_commits"
"""What the stage `vacuum` does besides its tables, by its name as a flow."""


def vacuum_named_table(workspace: Workspace, name: str) -> list[FlowReport]:
    """Vacuums one table by its retention. name: as in `removals.decide_all_vacuums`, so also of a record table."""
    now = datetime.now(UTC)
    slow = removals.find_slow_readers(workspace.lake, now)
    paths = list_own_tables(workspace.paths, RECORD_TABLES)
    with take_table_turns(VACUUM.name) as turns:
        if name in paths:
            _vacuum_record_tables(workspace, turns, {name: paths[name]}, slow, now)
        else:
            _vacuum_tables(workspace, turns, {name: workspace.lake.record_tables()[name]}, slow, now)
    return turns.reports


def _vacuum_tables(
    workspace: Workspace, turns: TableTurns, paths: Mapping[str, str], slow: Mapping[str, list[SlowReader]], now: datetime
) -> None:
    """Vacuums those of the tables that exist. paths: by name."""
    with_people = removals.locate_tables_with_people(workspace.lake)
    for name, path in _visit_tables(workspace, paths):
        work = partial(vacuum.vacuum_table, workspace, name, path, slow.get(path, ()), path in with_people, now=now)
        turns.take_turn(name, VACUUM.name, path, work)


def _visit_tables(workspace: Workspace, paths: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields those of the tables that exist, by name and path, and counts them as work. Raises StopRequested before one of them."""
    with count_work("tables looked at", list(paths)) as work:
        for name, path in paths.items():
            if delta_log.is_delta_table(path):
                streams.stop_if_requested(workspace)
                yield name, path
            work.advance()


def _remove_killed_commit_files(workspace: Workspace, now: datetime) -> list[FlowReport]:
    sweep.remove_killed_commit_files(workspace, now.timestamp())
    return []


def _vacuum_record_tables(
    workspace: Workspace, turns: TableTurns, paths: Mapping[str, str], slow: Mapping[str, list[SlowReader]], now: datetime
) -> None:
    """Vacuums those of the record tables that exist and whose files are due to go. paths: by name."""
    for flow, path in paths.items():
        if delta_log.is_delta_table(path):
            streams.stop_if_requested(workspace)
            in_full, behind = _remove_expired_record_files, slow.get(path, ())
            work = partial(vacuum.vacuum_table, workspace, flow, path, behind, remove_in_full=in_full, now=now)
            turns.take_turn(flow, VACUUM.name, path, work)


def _remove_expired_record_files(session: SparkSession, path: str, keep: timedelta, mark: str | None) -> None:
    record_tables.remove_expired_files(path, keep, mark)


def _join_flow_reports(paths: Mapping[str, str], turns: TableTurns, others: Sequence[FlowReport]) -> None:
    """Joins what another step of the stage did to tables into their reports, and appends the reports of what has none yet."""
    by_flow = {report.flow: report for report in turns.reports}
    for other in others:
        first = by_flow.get(other.flow)
        if first is None:
            turns.reports.append(other)
        else:
            first.deleted += other.deleted
            first.notes += [note for note in other.notes if note not in first.notes]
            turns.note_new_versions(first, paths[first.flow])


def needs_no_spark_to_optimize(workspace: Workspace) -> bool:
    """Whether delta-rs lays out all tables that need it now, or none does."""
    order = {one.name: one.zorder_by for one in workspace.graph if workspace.graph.table_of(one.name) == one.name}
    return all(
        optimize.is_laid_out_without_spark(path, order.get(name, ()))
        for name, path in workspace.lake.record_tables().items()
        if delta_log.is_delta_table(path)
    )


def run_optimize_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Rewrites the files of every table that needs it or was requested, then of late tables and quarantines, then of records.

    What fails for one table keeps no other from its turn: FlowsFailed is raised at the end. Raises StopRequested between two tables.
    """
    declared = {one.name: one for one in workspace.graph if workspace.graph.table_of(one.name) == one.name}
    paths = workspace.lake.record_tables()
    with take_table_turns(stage) as turns:
        for name, path in _visit_tables(workspace, dict(sorted(paths.items(), key=lambda one: one[0] not in declared))):
            layer = workspace.graph.layer(declared[name]) if name in declared else stage
            turns.take_turn(name, layer, path, partial(_lay_out_table, workspace, declared.get(name), name, path, options))
        for name, path in list_own_tables(workspace.paths, RECORD_TABLES).items():
            turns.take_turn(name, stage, path, partial(optimize.join_record_files, workspace, name, path))
    return turns.reports


def _lay_out_table(
    workspace: Workspace, declared: Source | Dataset[Any] | None, name: str, path: str, options: StageOptions
) -> FlowReport:
    """Rewrites the files of one table, those with INT96 first. declared: None for a table that a flow keeps beside a declared one."""
    rewritten = optimize.rewrite_int96_files(workspace, name, path)
    if declared is None:
        report = optimize.optimize_table_beside(workspace, name, path)
    else:
        report = optimize.optimize_table(workspace, declared, demanded=name in options.optimize_now)
    if rewritten is not None:
        report.notes, report.version_before = [*rewritten.notes, *report.notes], rewritten.version_before
        report.note_new_versions(path)
    return report


def optimize_tables_now(workspace: Workspace, names: Sequence[str]) -> list[FlowReport]:
    """Rewrites the files of these tables, whether or not they need it. Raises FlowsFailed and StopRequested as the stage does."""
    with take_table_turns(OPTIMIZE.name) as turns:
        for name in names:
            streams.stop_if_requested(workspace)
            declared = workspace.graph[name]
            work = partial(optimize.optimize_table, workspace, declared, demanded=True)
            turns.take_turn(name, workspace.graph.layer(declared), workspace.path(name), work)
    return turns.reports
