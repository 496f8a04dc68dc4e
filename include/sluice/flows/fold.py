"""The silver flow: a table is the fold of the live deliveries of its source, one row a key.

It streams outcomes and reads bronze as it is now. New rows are merged in: the highest sequence wins, then the content, never arrival.
A maximum cannot be taken back, so when deliveries stop counting (superseded, discarded), the keys whose present row came from one of
them are folded again from bronze.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.expectations import Action
from sluice.declare.source import Source
from sluice.declare.tables import Table
from sluice.errors import SluiceError
from sluice.flows import streams, targets
from sluice.flows.checkpoints import current
from sluice.flows.difference import (
    CONFLICT,
    DELETE,
    INSERT,
    OPERATION,
    UPDATE,
    beside,
    bounds,
    kept,
    merge,
    same,
    within,
)
from sluice.flows.judgement import judge
from sluice.flows.provenance import carried
from sluice.flows.scope import Scope, live_deliveries, numbered, outcomes_of, scope_of
from sluice.flows.winners import normalised, precedence, winners
from sluice.lake import log, tables
from sluice.lake.report import FlowReport
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.quality import quarantine, verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyTable = Table[Any]
_ALL_FILES = 2**31 - 1
_TWO_FILES = "Table '{}' declares key_in_one_file, but a key of it came in two files."


def run(workspace: Workspace, table: AnyTable, report: FlowReport, anew: str | None = None) -> None:
    """Bring the table up to date. anew: a reason to fold everything again."""
    source = workspace.graph.sources[table.reads[0]]
    wanted = schema_of(workspace, table, source)
    if wanted is None:
        report.notes.append("its source has no record yet")
        return
    targets.prepare(workspace, table, wanted, PROVENANCE)
    flow = f"{workspace.graph.layer(table)}_{table.name}"
    checkpoint = current(workspace.checkpoints(flow), flow, {"outcomes": log.table_id(workspace.outcomes)}, anew=anew)
    if checkpoint.rebased:
        report.notes.append(f"folded anew: {checkpoint.rebased}")
    elif targets.changed(workspace, table):
        report.notes.append("its transform changed: rows made before are as the earlier code made them, until a refresh")
    reader = workspace.session.readStream.format("delta").option("maxFilesPerTrigger", _ALL_FILES if checkpoint.rebased else 1000)

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        everything = checkpoint.rebased is not None and number == 0
        scope = Scope(everything=True) if everything else scope_of(inside, source, rows)
        if scope != Scope():
            fold(inside, table, source, scope, report, flow)
        if everything:
            targets.remember(inside, table)

    streams.run(workspace, reader.load(workspace.outcomes).where(F.col("source") == source.name), checkpoint, on_batch)


def schema_of(workspace: Workspace, table: AnyTable, source: Source) -> StructType | None:
    """The table's columns: those of its transform and the provenance. None while a source without declared schema had no record."""
    path = workspace.path(source.name)
    if not log.exists(path):
        return None
    bronze = tables.read(workspace.session, path).limit(0)
    if not [name for name in bronze.columns if not name.startswith("_")]:
        return None
    return in_order(normalised(carried(table(tables.read(workspace.session, path)), table.name)).schema)


def in_order(schema: StructType) -> StructType:
    """The columns of a transform's result, with the provenance last."""
    return StructType([schema[n] for n in schema.names if n not in PROVENANCE] + [schema[n] for n in PROVENANCE])


def fold(workspace: Workspace, table: AnyTable, source: Source, scope: Scope, report: FlowReport, flow: str) -> None:
    """Fold a scope into the table: quarantine first, then one merge of what differs."""
    workspace.note(flow, scope.fresh)
    live = live_deliveries(workspace, source) if scope.everything else numbered(workspace, scope.fresh)
    with kept(_judged(workspace, table, source, live)) as rows:
        quarantined = judge(table, rows, report)
        _check_one_file(table, _accepted(table, rows))
        _set_aside(workspace, table, rows, scope, quarantined)
        path = workspace.path(table.name)
        target = tables.read(workspace.session, path)
        operations = _operations(workspace, table, source, scope, _accepted(table, rows), target)
        changes = merge(
            workspace.session, path, operations, table.keys, targets.bounding(table, target.schema), _TWO_FILES.format(table.name)
        )
    report.batches += 1
    report.deliveries += len(scope.fresh)
    report.changed(changes.inserted, changes.updated, changes.deleted)


def _operations(
    workspace: Workspace, table: AnyTable, source: Source, scope: Scope, good: DataFrame, target: DataFrame
) -> DataFrame:
    dead = F.col("_delivery").isin(list(scope.dead))
    lost = target.where(dead) if scope.dead else None
    if scope.everything or lost is None or lost.isEmpty():
        new, old, again = winners(table, good), target, F.lit(scope.everything)
        retracting = scope.everything
    else:
        new = winners(table, good.unionByName(_of_keys(workspace, table, source, scope, lost)))
        old, again, retracting = target, F.col("old._delivery").isin(list(scope.dead)), True
    if not scope.everything:
        near = within(bounds(new, targets.bounding(table, target.schema)))
        old = target.where(near | dead) if scope.dead else target.where(near)
    both = beside(new, old, table.keys)
    content = [name for name in target.columns if name not in PROVENANCE]
    equal = same([F.col(f"new.`{name}`") for name in content], [F.col(f"old.`{name}`") for name in content])
    wins = precedence(table, "new", content) > precedence(table, "old", content)
    ours = F.col("old._delivery").isin([*scope.fresh, *scope.dead])
    two_files = ~again & ~ours if table.key_in_one_file else F.lit(False)
    operation = (
        F
        .when(F.col("old").isNull(), INSERT)
        .when(F.col("new").isNull(), F.when(again, DELETE))
        .when(two_files, CONFLICT)
        .when((again | wins) & ~equal, UPDATE)
    )
    if retracting:
        both = _with_files(both, outcomes_of(workspace, source))
        # An equal row of another file takes the place: the row must go when that file loses it, and is found by its delivery.
        operation = operation.when(again & ~F.col("new_file").eqNullSafe(F.col("old_file")), UPDATE)
    chosen = both.select(operation.alias(OPERATION), F.coalesce("new", "old").alias("row")).where(F.col(OPERATION).isNotNull())
    return chosen.select(OPERATION, *(F.col(f"row.`{name}`").alias(name) for name in target.columns))


def _with_files(both: DataFrame, outcomes: DataFrame) -> DataFrame:
    for side in ("new", "old"):
        files = outcomes.select(F.col("delivery").alias(f"_{side}"), F.col("file").alias(f"{side}_file")).distinct()
        both = both.join(F.broadcast(files), F.col(f"{side}._delivery") == F.col(f"_{side}"), "left")
    return both


def _of_keys(workspace: Workspace, table: AnyTable, source: Source, scope: Scope, lost: DataFrame) -> DataFrame:
    """All live rows of the keys whose present row no longer counts, made with today's code."""
    live = live_deliveries(workspace, source, scope if table.key_in_one_file else None)
    rows = _accepted(table, _judged(workspace, table, source, live)).alias("rows")
    keys = lost.select(*(F.col(f"`{key}`") for key in table.keys)).alias("lost")
    condition = same([F.col(f"rows.`{key}`") for key in table.keys], [F.col(f"lost.`{key}`") for key in table.keys])
    return rows.join(keys, condition, "left_semi")


def _judged(workspace: Workspace, table: AnyTable, source: Source, live: DataFrame) -> DataFrame:
    """The transform's rows of the live deliveries, with verdicts."""
    extent = live.agg(F.min("_delivery"), F.max("_delivery")).first()
    low, high = (extent[0], extent[1]) if extent and extent[0] is not None else (0, 0)
    bronze = tables.read(workspace.session, workspace.path(source.name)).where(F.col("_delivery").between(low, high))
    # Row-local transforms let a choice of deliveries pass; made after, it does not stand in the plan that `carried` looks into.
    made = carried(table(bronze), table.name).join(F.broadcast(live), "_delivery", "left_semi")
    rows = normalised(made)
    return verdicts.with_verdict(rows.select(*in_order(rows.schema).names), table.expectations)


def _accepted(table: AnyTable, judged: DataFrame) -> DataFrame:
    return judged.where(verdicts.accepted(table.expectations)).drop(verdicts.FAILED_RULES)


def _check_one_file(table: AnyTable, good: DataFrame) -> None:
    """Of each file one delivery counts; so a key with rows of two deliveries came in two files."""
    if table.key_in_one_file:
        keys = [F.col(f"`{key}`") for key in table.keys]
        if not good.groupBy(*keys).agg(F.count_distinct("_delivery").alias("files")).where("files > 1").isEmpty():
            raise SluiceError(_TWO_FILES.format(table.name))


def _set_aside(workspace: Workspace, table: AnyTable, rows: DataFrame, scope: Scope, number: int) -> None:
    if not any(expectation.action is Action.QUARANTINE for expectation in table.expectations):
        return
    bad = rows.where(verdicts.failing(table.expectations, Action.QUARANTINE))
    record = F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns if name != verdicts.FAILED_RULES)))
    subject = F.col(f"`{table.subject}`") if table.subject else F.lit(None)
    path = workspace.quarantine(table.name)
    touched = {*scope.fresh, *scope.dead}
    if scope.everything:
        both = tables.read(workspace.session, path).select("_delivery").unionByName(bad.select("_delivery"))
        touched = {row._delivery for row in both.distinct().collect()}
    entries = quarantine.entries(bad, F.col(verdicts.FAILED_RULES), record, subject)
    quarantine.replace(entries, path, sorted(touched), some=number > 0)
