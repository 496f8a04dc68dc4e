"""Taking rows of erased people out of tables, by a merge on what the table itself has: no value of anybody gets into a plan or the history."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.ingest.field_names import delivered_columns
from sluice.erasure.steps import places
from sluice.erasure.steps.erasing import Erasing
from sluice.erasure.steps.places import Place
from sluice.lake import log
from sluice.lake import tables as delta
from sluice.lake.report import FlowReport
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import suppression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LAYER = "propagate_deletions"
_SUBJECT, _AT = "_erased_subject", "_erased_at"


def tables(erasing: Erasing) -> None:
    """Bronze, silver, the change logs of `auto_cdc` with their tombstones, and restricted tables."""
    _each(erasing, "tables", places.tables(erasing.workspace))


def quarantine(erasing: Erasing) -> None:
    """What flows of bronze and silver did not accept, as far as it is known whose it is."""
    _each(erasing, "quarantine", places.quarantines(erasing.workspace))


def late(erasing: Erasing) -> None:
    """What came too late for streams."""
    _each(erasing, "late", places.late(erasing.workspace))


def _each(erasing: Erasing, step: str, found: list[Place]) -> None:
    by_table: dict[str, list[Place]] = {}
    for place in found:
        by_table.setdefault(place.name, []).append(place)
    for name, of_table in by_table.items():
        if not erasing.is_done(step, name):
            report = delete(erasing.workspace, of_table, by_row=step == "quarantine")
            erasing.reports.append(report)
            erasing.done(step, name, rows=report.deleted)


def delete(workspace: Workspace, of_table: list[Place], by_row: bool = False) -> FlowReport:
    """Take the rows of everybody who is on the suppression list out of a table. of_table: the table, by each kind of subject that it has.

    by_row: a row is found again by its delivery and number, and of what time it tells stands in its record.
    """
    name, path = of_table[0].name, of_table[0].path
    report = FlowReport(flow=name, layer=LAYER, version_before=log.version(path))
    workspace.note(f"erasure_{name}")
    for place in of_table:
        gone = (_rows_aside(workspace, place) if by_row else _people(workspace, place)).persist()
        try:
            if not gone.isEmpty():
                deleted = merged(workspace, path, gone, _condition(place, gone.columns))
                report.deleted += deleted
                report.rows_out += deleted
        finally:
            gone.unpersist()
    report.version_after = log.version(path)
    report.seconds = round(time.monotonic() - report.started, 2)
    return report


def merged(workspace: Workspace, path: str, gone: DataFrame, condition: str) -> int:
    """Delete what matches, by one merge. gone: as `s`, the table as `t`. Returns how many rows went."""
    DeltaTable.forPath(workspace.session, path).alias("t").merge(gone.alias("s"), condition).whenMatchedDelete().execute()
    last: dict[str, Any] = log.commits(path, 1)[0]
    return int(last["metrics"].get("numTargetRowsDeleted", 0)) if last["operation"] == "MERGE" else 0


def _condition(place: Place, columns: list[str]) -> str:
    if _SUBJECT not in columns:
        return " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in columns)
    same = [f"CAST({place.subject} AS STRING) <=> s.`{_SUBJECT}`"]
    same += [f"try_cast({place.at} AS TIMESTAMP) <=> s.`{_AT}`"] if _AT in columns else []
    same += [place.where] if place.where else []
    return " AND ".join(f"({one})" for one in same)


def _people(workspace: Workspace, place: Place) -> DataFrame:
    """What the table calls those who are on the list; with the times of their rows, where an identifier changes hands.

    The list is asked of each value once, however many rows have it.
    """
    table = delta.read(workspace.session, place.path)
    rows = table.where(place.where) if place.where else table
    at = suppression.instant(rows, place.at)
    told = rows.select(F.expr(place.subject).cast("string").alias(_SUBJECT), *([] if at is None else [at.alias(_AT)]))
    told = told.where(F.col(_SUBJECT).isNotNull())
    people = suppression.only_suppressed(workspace, told.select(_SUBJECT).distinct(), F.col(_SUBJECT), place.domain)
    if at is None:
        return people.select(_SUBJECT)
    near = told.join(F.broadcast(people.select(_SUBJECT)), _SUBJECT, "left_semi").distinct()
    return suppression.only_suppressed(workspace, near, F.col(_SUBJECT), place.domain, F.col(_AT)).select(_SUBJECT, _AT)


def _rows_aside(workspace: Workspace, place: Place) -> DataFrame:
    """Which rows of a quarantine are those of people on the list. A record that does not say of what time it is counts as theirs."""
    rows = delta.read(workspace.session, place.path).where("`_subject` IS NOT NULL")
    told = rows.select(*PROVENANCE, "_subject", "record")
    at = None
    if place.at:
        source = places.source_of(workspace, workspace.graph[place.name.removesuffix("_quarantine")])
        schema = delta.read(workspace.session, workspace.path(source.name)).schema
        fields = StructType([schema[name] for name in delivered_columns(schema.names)])
        told = told.select(*PROVENANCE, "_subject", F.from_json("record", fields).alias("_told")).select(
            *PROVENANCE, "_subject", "_told.*"
        )
        at = suppression.instant(told, place.at)
    found = suppression.only_suppressed(workspace, told, F.col("_subject"), place.domain, at)
    return found.select(*PROVENANCE).distinct()
