"""Empties cells of bronze rows that stay: the cells become NULL, the rows are marked, and the tables made from them are folded again.

This covers people in other people's records (see `sluice.privacy.anonymised`), and the person in facts that a table keeps
(`on_erasure="anonymise"`), whose rows lose their subject and all personal columns. Each table then equals what a refresh would give.
The cells get NULL and no token: rows of one person that could still be told apart from others would amount to a pseudonym.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.declare.field_values import find_column_spelling
from sluice.declare.ingest.field_names import rescued_text_expression
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_identifier
from sluice.erasure.request_events import name_erasure_flow
from sluice.erasure.steps import naming, subject_tables
from sluice.erasure.steps.erased_names import ErasedNames
from sluice.erasure.steps.erasure_step import ErasureStep
from sluice.erasure.steps.rows import SAME_ROW, note_rows, refold_tables_of_source
from sluice.erasure.steps.shared_keys import find_tables_with_shared_keys, refold_or_start_over
from sluice.lake import log, table_creation, table_frames
from sluice.lake.flow_report import FlowReport, report_table_change
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.open_tables import open_table_snapshot
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun
from sluice.privacy import anonymised, suppression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.declare.datasets.tables import AnyTable


def empty_other_subject_cells(step: ErasureStep) -> None:
    """Empties these cells in bronze of every source with such columns, then folds the tables made from it."""
    propagation, workspace = step.propagation, step.propagation.workspace
    names = naming.load_erased_names(propagation)
    for source in workspace.graph.sources.values():
        cells, texts = (
            subjects.find_other_subject_columns(workspace.graph, source),
            subjects.find_free_text_columns(workspace.graph, source),
        )
        there = source.into is None and bool(cells or texts) and delta_log.is_delta_table(workspace.path(source.name))
        if there and not step.is_done(source.name):
            report = _empty_cells_in_bronze(workspace, source, cells, texts, names)
            propagation.reports += [report, *_refold_marked_rows(workspace, source, anonymised.CELL_MARK)]
            step.record_done(source.name, rows=report.updated)


def _empty_cells_in_bronze(
    workspace: Workspace, source: Source, cells: dict[str, str], texts: Sequence[str], names: ErasedNames
) -> FlowReport:
    path = workspace.path(source.name)
    with report_table_change(source.name, DELETIONS.name, path) as report:
        _add_mark_column(workspace, source, anonymised.CELL_MARK)
        present = log.read_column_names(path)
        if cells:
            _empty_flagged_cells(workspace, source, list(cells), _find_rows_with_erased_cells(workspace, source, cells), report)
        here = [found for name in texts if (found := find_column_spelling(name, present))]
        if here and names:
            _empty_flagged_cells(workspace, source, here, _find_rows_naming_erased(workspace, path, here, names), report)
        report.notes.append(f"{count_noun(report.updated, 'row')} kept without another person in them")
    return report


def _add_mark_column(workspace: Workspace, source: Source, mark: str) -> None:
    """Adds to bronze the column that marks the rows an erasure has changed."""
    workspace.mark_next_commits(name_erasure_flow(source.name))
    path = workspace.path(source.name)
    if mark not in log.read_column_names(path):
        workspace.session.sql(f"ALTER TABLE delta.{quote_identifier(path)} ADD COLUMNS ({quote_identifier(mark)} BOOLEAN)")


def _find_rows_with_erased_cells(workspace: Workspace, source: Source, cells: dict[str, str]) -> DataFrame:
    """The rows with an erased person in one of the cells: their provenance, and a flag for each cell."""
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name))
    flagged = suppression.flag_suppressed_cells(
        workspace, bronze, cells, suppression.row_instant_column(bronze, source.subject_at)
    )
    theirs = flagged.where(anonymised.is_any_true([F.col(anonymised.erased_cell_flag(name)) for name in cells]))
    return theirs.select(*PROVENANCE, *(anonymised.erased_cell_flag(name) for name in cells))


def _find_rows_naming_erased(workspace: Workspace, path: str, columns: Sequence[str], names: ErasedNames) -> DataFrame:
    """The rows whose free text names an erased person: their provenance, and a flag for each cell.

    Reads part by part without a JVM, so that no value gets into a plan.
    """
    wanted = ", ".join(f'"{name}"' for name in (*PROVENANCE, *columns))
    found = []
    for batch in open_table_snapshot(path).query_batches(f"SELECT {wanted} FROM t"):
        for row in batch.to_pylist():
            named = tuple(bool(row[name]) and names.are_in_record(str(row[name]).encode()) for name in columns)
            if any(named):
                found.append((*(row[name] for name in PROVENANCE), *named))
    kinds = ", ".join(f"{quote_identifier(anonymised.erased_cell_flag(name))} BOOLEAN" for name in columns)
    return table_creation.make_inline_frame(workspace.session, found, f"_delivery BIGINT, _row BIGINT, {kinds}")


def _empty_flagged_cells(
    workspace: Workspace, source: Source, columns: Sequence[str], rows: DataFrame, report: FlowReport
) -> None:
    changed = _build_cell_assignments(columns, log.read_column_names(workspace.path(source.name)))
    count = _change_bronze_rows(workspace, source, rows, changed)
    report.updated += count
    report.rows_out += count


def _build_cell_assignments(cells: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    flags = {name: f"s.{quote_identifier(anonymised.erased_cell_flag(name))}" for name in cells}
    changed: dict[str, str] = {quote_identifier(anonymised.CELL_MARK): "true"}
    for column in columns:
        of = [name for name in cells if name.lower() == column.lower()]
        if of:
            changed[quote_identifier(column)] = f"CASE WHEN {flags[of[0]]} THEN NULL ELSE t.{quote_identifier(column)} END"
    rescued = anonymised.RESCUED
    if rescued in columns:
        inside = " OR ".join(
            f"({flag} AND {rescued_text_expression(name, f't.{rescued}')} IS NOT NULL)" for name, flag in flags.items()
        )
        changed[rescued] = f"CASE WHEN {inside} THEN NULL ELSE t.{rescued} END"
    return changed


def _change_bronze_rows(workspace: Workspace, source: Source, rows: DataFrame, changed: Mapping[str, str]) -> int:
    """Changes rows of bronze in one merge. rows: the rows to change, as `s`; the table is `t`. Returns their number."""
    rows = rows.persist()
    try:
        note_rows(workspace, source.name, rows)
        count = rows.count()
        if count:
            bronze = DeltaTable.forPath(workspace.session, workspace.path(source.name)).alias("t")
            bronze.merge(rows.alias("s"), SAME_ROW).whenMatchedUpdate(set=dict(changed)).execute()
        return count
    finally:
        rows.unpersist()


def _refold_marked_rows(
    workspace: Workspace, source: Source, mark: str, concerned: Callable[[AnyTable], bool] = lambda _: True
) -> list[FlowReport]:
    """Folds the marked rows of bronze again, including earlier ones, since a killed erasure does not know how far it got."""
    marked = table_frames.read_table(workspace.session, workspace.path(source.name)).where(mark)
    return refold_tables_of_source(workspace, source, marked.select(*PROVENANCE), concerned)


def anonymise_kept_facts(step: ErasureStep) -> None:
    """Anonymises bronze of the sources whose facts a table keeps, then folds these tables, and others that may lose a shared key."""
    propagation, workspace = step.propagation, step.propagation.workspace
    for source in workspace.graph.sources.values():
        kept = (
            source.into is None
            and anonymised.keeps_anonymised_facts(workspace.graph, source)
            and delta_log.is_delta_table(workspace.path(source.name))
        )
        if kept and not step.is_done(source.name):
            report = _anonymise_bronze_rows(workspace, source)
            anonymises = lambda table: table.on_erasure == "anonymise"  # noqa: E731
            propagation.reports += [report, *_refold_marked_rows(workspace, source, anonymised.MARK, anonymises)]
            refolded = _refold_shared_keys(workspace, source)
            propagation.left += Counter({one.flow: one.deleted + one.updated for one in refolded})
            propagation.reports += refolded
            step.record_done(source.name, rows=report.updated)


def _refold_shared_keys(workspace: Workspace, source: Source) -> list[FlowReport]:
    """Folds again the tables that lose the person's rows, where others may have the same keys: their next best rows take the places."""
    marked = table_frames.read_table(workspace.session, workspace.path(source.name)).where(anonymised.MARK).select(*PROVENANCE)
    deleting = [one for one in find_tables_with_shared_keys(workspace, source) if one.on_erasure != "anonymise"]
    return [refold_or_start_over(workspace, source, table, marked) for table in deleting]


def _anonymise_bronze_rows(workspace: Workspace, source: Source) -> FlowReport:
    path = workspace.path(source.name)
    with report_table_change(source.name, DELETIONS.name, path) as report:
        _add_mark_column(workspace, source, anonymised.MARK)
        subject, bronze = (
            subject_tables.bronze_subject_expression(source, workspace),
            table_frames.read_table(workspace.session, path),
        )
        told = bronze.withColumn("_whose", F.expr(subject)).where(F.col("_whose").isNotNull())
        at = suppression.row_instant_column(told, source.subject_at)
        theirs = suppression.select_suppressed_rows(workspace, told, F.col("_whose"), source.domain, at).select(*PROVENANCE)
        hidden = {name.lower() for name in anonymised.anonymised_columns(workspace.graph, source)}
        changed = {quote_identifier(name): "NULL" for name in log.read_column_names(path) if name.lower() in hidden}
        changed[quote_identifier(anonymised.MARK)] = "true"
        report.updated = report.rows_out = _change_bronze_rows(workspace, source, theirs, changed)
        report.notes.append(f"{count_noun(report.updated, 'row')} kept without the person")
    return report
