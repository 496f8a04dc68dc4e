"""Erases rows of bronze whose key, in a table made from it, other people's rows may have too.

If an erased person has the winning row of such a key, another person's row takes its place, as in a lake without the erased person. So the
table is folded again once bronze has lost the rows; nothing else would, since no flow follows a deletion in bronze.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sluice import delta_log
from sluice.declare.cdc.expanded_tables import ChangeLogFold
from sluice.declare.cdc.histories import SEQUENCE
from sluice.declare.ingest.source import Source
from sluice.erasure.steps import subject_tables
from sluice.erasure.steps.erasure_step import ErasureStep, Propagation
from sluice.erasure.steps.row_journal import RowJournal
from sluice.erasure.steps.rows import (
    SAME_ROW,
    delete_by_merge,
    erase_step_tables,
    find_suppressed_rows,
    note_rows,
    refold_tables_of_source,
)
from sluice.erasure.steps.subject_tables import SubjectTable
from sluice.errors import StageEnded
from sluice.flows.progress import checkpoints
from sluice.lake import table_frames
from sluice.lake.flow_report import FlowReport, report_table_change
from sluice.lake.workspace import Workspace
from sluice.own_records import ERASED_ROWS
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.declare.datasets.tables import AnyTable

_NOT_FOLDED = "people were erased from its source, and its rows could not be folded again"
"""Why the flow of a table starts over: it then takes from bronze what other people's rows it lacks."""


def erase_table_rows(step: ErasureStep) -> None:
    """Erases from bronze, silver, the change logs of `auto_cdc` with their tombstones, and restricted tables."""
    propagation, workspace = step.propagation, step.propagation.workspace
    found = subject_tables.find_subject_tables(workspace)
    of_bronze = {subject_table.name: subject_table for subject_table in found if subject_table.name in workspace.graph.sources}
    left = Counter(propagation.left)
    extracts = _count_extracts(workspace)
    for name, subject_table in of_bronze.items():
        source = workspace.graph.sources[name]
        begun = open_erased_rows_journal(workspace, source).is_written()
        if begun or (not step.is_done(name) and find_tables_with_shared_keys(workspace, source)):
            left += _erase_bronze_rows(propagation, source, subject_table)
            if not step.is_done(name):
                step.record_done(name, rows=left[name])
    erase_step_tables(step, found, left)
    propagation.reports += _report_emptied_extracts(extracts, _count_extracts(workspace))


def _count_extracts(workspace: Workspace) -> Counter[str]:
    """By target of full extracts, how many extracts have rows."""
    found: Counter[str] = Counter()
    for view in workspace.graph.views.values():
        if isinstance(view.function, ChangeLogFold) and view.function.declared.from_snapshots:
            for path in map(workspace.path, view.reads):
                rows = (
                    table_frames.read_table(workspace.session, path).select(SEQUENCE) if delta_log.is_delta_table(path) else None
                )
                found[view.name] += rows.distinct().count() if rows is not None else 0
    return found


def _report_emptied_extracts(before: Counter[str], after: Counter[str]) -> list[FlowReport]:
    """An extract that had the person alone is not known any more: a key that it lacked ends at the next one, or is current again."""
    said = "had no other row: keys that were missing there count until the next extract"
    return [
        FlowReport(f"{target}_extracts", DELETIONS.name, notes=[f"{count_noun(count, 'extract')} {said}"])
        for target, count in (before - after).items()
    ]


def may_share_a_key(workspace: Workspace, source: Source, table: AnyTable) -> bool:
    """Whether rows of several people may have one key of the table: unless its subject is among its keys, and that of bronze."""
    graph = workspace.graph
    keys = {name.lower() for name in table.keys}
    own = bool(table.subject) and str(table.subject).lower() in keys and graph.domain(table) == graph.domain(source)
    return not own or graph.domain(table) in graph.changing_hands()


def find_tables_with_shared_keys(workspace: Workspace, source: Source) -> list[AnyTable]:
    """The tables made from a source that are folded again after an erasure."""
    return [
        table
        for table in workspace.graph.tables.values()
        if table.reads[0] == source.name
        and may_share_a_key(workspace, source, table)
        and delta_log.is_delta_table(workspace.path(table.name))
    ]


def _erase_bronze_rows(propagation: Propagation, source: Source, subject_table: SubjectTable) -> Counter[str]:
    """Erases from bronze of a source, and folds again the tables where other people may have the same keys.

    What a killed erasure has begun is finished first. Returns how many rows left each table.
    """
    workspace, left = propagation.workspace, Counter[str]()
    journal = open_erased_rows_journal(workspace, source)
    for begun in (True, False):
        if not begun:
            journal.write_rows(find_suppressed_rows(workspace, subject_table), {"run": workspace.run})
        if journal.is_written():
            for report in _erase_journalled_rows(workspace, source, journal):
                propagation.reports.append(report)
                left[report.flow] += report.deleted + report.updated
            journal.remove_journal()
    return left


def open_erased_rows_journal(workspace: Workspace, source: Source) -> RowJournal:
    """The journal of the rows that an erasure takes out of bronze of a source."""
    remedy = (
        f"Remove it, then make the tables made from '{source.name}' anew, which may lack rows: "
        f"sluice run {workspace.pipeline} --mode refresh --table NAME"
    )
    return RowJournal(workspace, ERASED_ROWS.name, source.name, "which run takes people's rows out of bronze", remedy)


def _erase_journalled_rows(workspace: Workspace, source: Source, journal: RowJournal) -> list[FlowReport]:
    path = workspace.path(source.name)
    gone = journal.read_rows().persist()
    try:
        with report_table_change(source.name, DELETIONS.name, path) as report:
            note_rows(workspace, source.name, gone)
            report.deleted = report.rows_out = delete_by_merge(workspace, path, gone, SAME_ROW)
        return [
            report,
            *(refold_or_start_over(workspace, source, table, gone) for table in find_tables_with_shared_keys(workspace, source)),
        ]
    finally:
        gone.unpersist()


def refold_or_start_over(workspace: Workspace, source: Source, table: AnyTable, gone: DataFrame) -> FlowReport:
    """A table that cannot be folded keeps nobody in the lake: its rows go by its own subject, and its flow starts over."""
    try:
        (report,) = refold_tables_of_source(workspace, source, gone, lambda one: one is table, gone=True)
    except StageEnded:
        raise
    except Exception as error:
        flow = workspace.graph.flow_name(table)
        checkpoints.reset_checkpoint(workspace.checkpoints(flow), flow, _NOT_FOLDED)
        starts_over = "its flow starts over with the next run, and adds what other people's rows it lacks"
        said = f"could not be folded again ({type(error).__name__}): {starts_over}"
        report = FlowReport(table.name, DELETIONS.name, notes=[said])
    return report
