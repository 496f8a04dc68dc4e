"""Replay in silver: the keys that an interval's rows touch, before or after, are folded again from bronze with today's code.

Beside the flow's checkpoint: what its stream brings later is equal to what is there, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.flows.bronze import reingest
from sluice.flows.silver import fold
from sluice.flows.silver.aside import set_aside_again
from sluice.flows.silver.made import TWO_FILES, AnyTable, accepted, check_one_file, judged, of_keys, schema_of
from sluice.flows.silver.scope import feeding, live_deliveries
from sluice.flows.silver.winners import winners
from sluice.flows.writing import targets
from sluice.flows.writing.difference import kept, merge
from sluice.flows.writing.judgement import judge
from sluice.flows.writing.ranges import bounds, within
from sluice.lake import evaluation, tables
from sluice.lake.report import FlowReport
from sluice.lake.workspace import PROVENANCE, Workspace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Completes = Callable[[Interval | None], bool]
"""Of the time that all records lie in, if that is known: whether the replay leaves nothing that earlier code made."""


def run(workspace: Workspace, table: AnyTable, interval: Interval, report: FlowReport, completes: Completes) -> None:
    """Fold the interval's keys again. completes: tells whether after it no row of the table is by earlier code."""
    source = workspace.graph.sources[table.reads[0]]
    wanted = schema_of(workspace, table, source)
    if wanted is None:
        report.notes.append("its source has no record yet")
        return
    targets.prepare(workspace, table, wanted, PROVENANCE)
    workspace.note(f"{workspace.graph.layer(table)}_{table.name}")
    origin = _origin(workspace, source, interval)
    with kept(origin) as origin, kept(_keys(workspace, table, source, origin, _dated(source, interval))) as keys:
        if not origin.isEmpty():
            _fold(workspace, table, source, origin, keys, report)
    report.batches += 1
    if targets.changed(workspace, table) and completes(_extent(workspace, source)):
        targets.remember(workspace, table)


def of_rows(workspace: Workspace, table: AnyTable, origin: DataFrame, report: FlowReport) -> None:
    """Fold the keys again that rows of bronze had or have now. origin: _delivery and _row of each."""
    source = workspace.graph.sources[table.reads[0]]
    wanted = schema_of(workspace, table, source)
    if wanted is None:
        return
    targets.prepare(workspace, table, wanted, PROVENANCE)
    workspace.note(f"{workspace.graph.layer(table)}_{table.name}")
    with kept(origin) as origin, kept(_keys(workspace, table, source, origin, some=True)) as keys:
        if not origin.isEmpty():
            _fold(workspace, table, source, origin, keys, report)
    report.batches += 1


def _fold(workspace: Workspace, table: AnyTable, source: Source, origin: DataFrame, keys: DataFrame, report: FlowReport) -> None:
    path, deliveries = workspace.path(table.name), _deliveries(origin)
    workspace.note(f"{workspace.graph.layer(table)}_{table.name}", deliveries)
    evaluation.suit(workspace.session, [path, workspace.path(source.name)])
    target = tables.read(workspace.session, path)
    live = live_deliveries(workspace, source, deliveries if table.key_in_one_file else None)
    with kept(of_keys(table, judged(workspace, table, source, live), keys, table.replayed_by)) as rows:
        quarantined = judge(table, rows, report)
        good = accepted(table, rows)
        check_one_file(table, good)
        set_aside_again(workspace, table, source, rows, origin, quarantined)
        bounding = targets.bounding(table, target.schema)
        near = bounds(keys, targets.bounding(table, target.schema, table.replayed_by))
        old = of_keys(table, target.where(within(near)), keys, table.replayed_by)
        operations = fold.differences(workspace, table, source, winners(table, good), old, F.lit(True))
        changes = merge(workspace.session, path, operations, table.keys, bounding, TWO_FILES.format(table.name), unique=True)
    report.changed(changes.inserted, changes.updated, changes.deleted)


def _origin(workspace: Workspace, source: Source, interval: Interval) -> DataFrame:
    """_delivery and _row of the interval's rows in bronze, of deliveries that count and of those that do not."""
    bronze = tables.read(workspace.session, workspace.path(source.name))
    dated = _dated(source, interval)
    if dated is None:
        named = [row for one in feeding(workspace, source) for row in reingest.of_interval(workspace, one, interval)]
        numbers = [int(row["delivery"]) for row in named]
        dated = (
            F.col("_delivery").between(min(numbers), max(numbers)) & F.col("_delivery").isin(numbers) if numbers else F.lit(False)
        )
    return bronze.where(dated).select(*PROVENANCE)


def _extent(workspace: Workspace, source: Source) -> Interval | None:
    """The time that all records of the source lie in, where records have dates; None also where one has no date."""
    if source.dated_by is None:
        return None
    at = F.expr(source.dated_by).cast("timestamp")
    bronze = tables.read(workspace.session, workspace.path(source.name))
    row = bronze.agg(F.min(at).alias("earliest"), F.max(at).alias("latest"), F.count_if(at.isNull()).alias("undated")).first()
    if row is None or row.undated or row.earliest is None:
        return None
    return Interval(row.earliest.astimezone(UTC), row.latest.astimezone(UTC) + timedelta(microseconds=1))


def _dated(source: Source, interval: Interval) -> Column | None:
    """The condition that a record is of the interval, where records have dates of their own."""
    if source.dated_by is None:
        return None
    at = F.expr(source.dated_by).cast("timestamp")
    return (at >= F.lit(interval.start)) & (at < F.lit(interval.end))


def _keys(
    workspace: Workspace,
    table: AnyTable,
    source: Source,
    origin: DataFrame,
    dated: Column | None = None,
    some: bool = False,
) -> DataFrame:
    """The keys (`replayed_by`) that the rows had until now, in the table or in its quarantine, and those that they have by today's code.

    dated: the condition that picks them, where records have dates of their own. some: they are not whole deliveries.
    """
    names = [F.col(f"`{key}`") for key in table.replayed_by]
    target = tables.read(workspace.session, workspace.path(table.name))
    live = sorted(set(_deliveries(origin)) & set(live_deliveries(workspace, source)))
    made = judged(workspace, table, source, live, dated)
    today = (made.join(origin, list(PROVENANCE), "left_semi") if some else made).select(*names)
    present = target.join(origin, list(PROVENANCE), "left_semi").select(*names)
    aside = tables.read(workspace.session, workspace.quarantine(table.name)).join(origin, list(PROVENANCE), "left_semi")
    schema = ", ".join(f"`{key}` {target.schema[key].dataType.simpleString()}" for key in table.replayed_by)
    # Lakes of before have what the transform made under `record`.
    text = F.coalesce("made", "record")
    refused = aside.select(F.from_json(text, schema).alias("row")).select(*(F.col(f"row.`{key}`") for key in table.replayed_by))
    return today.unionByName(present).unionByName(refused).distinct()


def _deliveries(origin: DataFrame) -> list[int]:
    return [row._delivery for row in origin.select("_delivery").distinct().collect()]
