"""People in others' records: their cells in bronze become NULL, and the tables of it are folded again. See `sluice.privacy.other_subjects`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from delta.tables import DeltaTable
from deltalake import QueryBuilder
from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.ingest.source import Source
from sluice.delta_log import opened_table
from sluice.erasure.steps import naming
from sluice.erasure.steps.erasing import Erasing
from sluice.erasure.steps.rows import LAYER
from sluice.flows.silver import refold
from sluice.lake import log, tables
from sluice.lake.report import FlowReport
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import other_subjects, suppression

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STEP = "other_cells"


def empty_cells(erasing: Erasing) -> None:
    """Bronze of every source that has such columns, then the tables that are made of it."""
    workspace = erasing.workspace
    names = naming.of(erasing)
    for source in workspace.graph.sources.values():
        cells, texts = subjects.other_cells(workspace.graph, source), subjects.free_text(workspace.graph, source)
        there = source.into is None and bool(cells or texts) and log.exists(workspace.path(source.name))
        if there and not erasing.is_done(STEP, source.name):
            report = _empty_in_bronze(workspace, source, cells, texts, names)
            erasing.reports += [report, *_fold_again(workspace, source)]
            erasing.done(STEP, source.name, rows=report.updated)


def _empty_in_bronze(
    workspace: Workspace, source: Source, cells: dict[str, str], texts: Sequence[str], names: naming.Names
) -> FlowReport:
    path = workspace.path(source.name)
    report = FlowReport(flow=source.name, layer=LAYER, version_before=log.version(path))
    workspace.note(f"erasure_{source.name}")
    if other_subjects.MARK not in log.columns(path):
        workspace.session.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (`{other_subjects.MARK}` BOOLEAN)")
    _update(workspace, path, list(cells), _of_cells(workspace, source, cells), report)
    here = [name for name in texts if name in log.columns(path)]
    if here and names:
        _update(workspace, path, here, _of_texts(workspace, path, here, names), report)
    report.notes.append(f"{report.updated} rows kept without another person in them")
    report.version_after = log.version(path)
    report.seconds = round(time.monotonic() - report.started, 2)
    return report


def _of_cells(workspace: Workspace, source: Source, cells: dict[str, str]) -> DataFrame:
    """The rows with an erased person in one of the cells: which they are, and a flag for each cell."""
    bronze = tables.read(workspace.session, workspace.path(source.name))
    flagged = suppression.with_flags(workspace, bronze, cells, suppression.instant(bronze, source.subject_at))
    theirs = flagged.where(other_subjects.any_of([F.col(other_subjects.flag(name)) for name in cells]))
    return theirs.select(*PROVENANCE, *(other_subjects.flag(name) for name in cells))


def _of_texts(workspace: Workspace, path: str, columns: Sequence[str], names: naming.Names) -> DataFrame:
    """The same of text that names somebody. Read a part at a time, without a JVM: no value of anybody gets into a plan."""
    wanted = ", ".join(f'"{name}"' for name in (*PROVENANCE, *columns))
    found = []
    for batch in QueryBuilder().register("t", opened_table(path)).execute(f"SELECT {wanted} FROM t"):
        for row in pa.record_batch(batch).to_pylist():
            named = tuple(bool(row[name]) and names.are_in_record(str(row[name]).encode()) for name in columns)
            if any(named):
                found.append((*(row[name] for name in PROVENANCE), *named))
    kinds = ", ".join(f"`{other_subjects.flag(name)}` BOOLEAN" for name in columns)
    return tables.inline(workspace.session, found, f"_delivery BIGINT, _row BIGINT, {kinds}")


def _update(workspace: Workspace, path: str, columns: Sequence[str], rows: DataFrame, report: FlowReport) -> None:
    if not columns:
        return
    rows = rows.persist()
    try:
        count = rows.count()
        if count:
            same = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in PROVENANCE)
            merging = DeltaTable.forPath(workspace.session, path).alias("t").merge(rows.alias("s"), same)
            merging.whenMatchedUpdate(set=_changed(columns, log.columns(path))).execute()
        report.updated += count
        report.rows_out += count
    finally:
        rows.unpersist()


def _changed(cells: Sequence[str], columns: Sequence[str]) -> dict[str, str | Column]:
    changed: dict[str, str | Column] = {f"`{other_subjects.MARK}`": "true"}
    for column in columns:
        of = [name for name in cells if name.lower() == column.lower()]
        if of:
            changed[f"`{column}`"] = f"CASE WHEN s.`{other_subjects.flag(of[0])}` THEN NULL ELSE t.`{column}` END"
    rescued = other_subjects.RESCUED
    if rescued in columns:
        inside = (f"s.`{other_subjects.flag(name)}` AND get_json_object(t.`{rescued}`, '$.{name}') IS NOT NULL" for name in cells)
        changed[f"`{rescued}`"] = f"CASE WHEN {' OR '.join(f'({one})' for one in inside)} THEN NULL ELSE t.`{rescued}` END"
    return changed


def _fold_again(workspace: Workspace, source: Source) -> list[FlowReport]:
    """What marked rows of bronze gave; also those of before, since a killed erasure does not know how far it came."""
    reports = []
    for table in workspace.graph.tables.values():
        path = workspace.path(table.name)
        if table.reads[0] == source.name and log.exists(path):
            report = FlowReport(flow=table.name, layer=LAYER, version_before=log.version(path))
            marked = tables.read(workspace.session, workspace.path(source.name)).where(other_subjects.MARK)
            refold.of_rows(workspace, table, marked.select(*PROVENANCE), report)
            report.version_after = log.version(path)
            report.seconds = round(time.monotonic() - report.started, 2)
            reports.append(report)
    return reports
