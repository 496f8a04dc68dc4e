"""The silver flow: a table is the fold of its source's live deliveries, one row per key.

It streams outcomes and reads bronze as it is now. New rows are merged in. The highest sequence wins, then the content, never the order of
arrival, so any order of deliveries gives the same table. A maximum cannot be taken back: when deliveries stop counting (superseded or
discarded), the keys whose present row came from one of them are folded again from bronze.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from sluice.declare.cdc import change_log
from sluice.declare.datasets.tables import Table
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column, quote_columns
from sluice.flows.progress import stream_starts, streams
from sluice.flows.progress.checkpoints import open_checkpoint
from sluice.flows.progress.missing_inputs import SOURCE_IS_EMPTY
from sluice.flows.progress.read_types import reason_if_retyped
from sluice.flows.silver.aside import quarantine_scope_rows, requarantine_rows_of_other_deliveries
from sluice.flows.silver.made import (
    TWO_FILES,
    AnyTable,
    check_key_in_one_file,
    leave_out_rows_of_keys,
    make_judged_rows,
    select_accepted_rows,
    select_rows_of_keys,
    silver_table_schema,
)
from sluice.flows.silver.read_columns import record_read_columns
from sluice.flows.silver.scope import (
    DeliveryScope,
    count_delivery_rows,
    feeding_sources,
    find_batch_scope,
    live_deliveries,
    read_feeding_outcomes,
)
from sluice.flows.writing import targets
from sluice.flows.writing.difference import (
    CONFLICT,
    apply_merge_operations,
    fill_empty_table,
    join_old_and_new,
    null_safe_equality,
    persist_frame,
)
from sluice.flows.writing.enforced import count_verdicts_with_aggregates
from sluice.flows.writing.ranges import BoundingColumns, Limits, compute_value_ranges, limits_condition
from sluice.ingest.ledger import DeliveryOutcome
from sluice.lake import batch_sizes, file_statistics, log, table_frames, tables
from sluice.lake.batch_sizes import RowsSize, sum_row_bytes
from sluice.lake.nested_types import arrange_nested_fields
from sluice.lake.report import FOLDED_ANEW, FlowReport, MergeCounts
from sluice.lake.small_writes import DELETE, INSERT, OPERATION, UPDATE
from sluice.lake.tables import TableShape
from sluice.lake.workspace import PROVENANCE, MergedKeys, Workspace
from sluice.quality import verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


MOST_KEPT_ROWS = 100_000
"""Up to this many rows are kept in memory between passes. With more, each pass reads the columns that it needs: the pass that counts verdicts
needs few, and a copy of all columns took a quarter of a load of a million rows."""


def run_silver_flow(workspace: Workspace, table: AnyTable, report: FlowReport, anew: str | None = None) -> None:
    """Brings the table up to date. anew: a reason to fold everything again."""
    source = workspace.graph.sources[table.reads[0]]
    wanted = silver_table_schema(workspace, table, source)
    if wanted is None:
        report.notes.append(SOURCE_IS_EMPTY)
        return
    shape = targets.prepare_target_table(workspace, table, wanted, PROVENANCE, anew)
    streams.run_with_rebase(lambda why: _stream_outcomes(workspace, table, source, report, why, shape), anew)


def _stream_outcomes(
    workspace: Workspace, table: AnyTable, source: Source, report: FlowReport, anew: str | None, shape: TableShape | None
) -> None:
    flow = workspace.graph.flow_name(table)
    ((name, path),) = workspace.streamed_tables(table).items()
    identity = log.read_table_id(path)
    checkpoint = open_checkpoint(
        workspace.checkpoints(flow),
        flow,
        {name: identity},
        anew=anew or reason_if_retyped(workspace.checkpoints(flow), flow, source.name, workspace.path(source.name)),
        find_starts=lambda: stream_starts.find_starts_at_latest_change({name: path}, feed=False),
    )
    record_read_columns(workspace, table, source)
    if checkpoint.rebased:
        report.notes.append(f"{FOLDED_ANEW}: {checkpoint.rebased}")
    elif targets.has_transform_changed(workspace, table):
        report.notes.append("its transform changed: rows made before are as the earlier code made them, until a refresh")
    sources = [one.name for one in feeding_sources(workspace, source)]
    if checkpoint.rebased is None and not stream_starts.has_unread_rows_of_sources(
        checkpoint.path, name, identity, path, sources
    ):
        return
    at_once = streams.ALL_FILES if checkpoint.rebased else streams.USUAL_FILES
    outcomes = streams.stream_table(workspace.session, path, at_once, checkpoint.starts.get(name))

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        everything = checkpoint.rebased is not None and number == 0
        scope = DeliveryScope(everything=True) if everything else find_batch_scope(inside, source, rows)
        if scope != DeliveryScope():
            fold_scope(inside, table, source, scope, report, flow, shape if everything else None)
        if everything:
            targets.record_transform_fingerprint(inside, table)

    streams.run_stream(workspace, outcomes.where(F.col("source").isin(sources)), checkpoint, on_batch)


@dataclass(frozen=True)
class FoldBatch:
    """What a scope brings to a table. good: its accepted rows, with their size. target: the table before them.

    bounding, limits: the columns by which files are left out, and the ranges that the accepted rows lie in.
    """

    scope: DeliveryScope
    good: DataFrame
    target: DataFrame
    bounding: BoundingColumns
    limits: Limits
    size: RowsSize


def fold_scope(
    workspace: Workspace,
    table: AnyTable,
    source: Source,
    scope: DeliveryScope,
    report: FlowReport,
    flow: str,
    shape: TableShape | None = None,
) -> None:
    """Folds a scope into the table: quarantine first, then one merge of the difference. shape: replaces the table by one of this shape."""
    live = live_deliveries(workspace, source) if scope.everything else scope.fresh
    workspace.mark_next_commits(flow, live or scope.dead)
    path = workspace.path(table.name)
    came = count_delivery_rows(workspace, source, live)
    batch_sizes.choose_evaluation_settings(workspace.session, [path], came)
    target = table_frames.read_table(workspace.session, path)
    bounding = targets.choose_bounding_columns(table, target.schema)
    made = make_judged_rows(workspace, table, source, live)
    kept = came is not None and came <= MOST_KEPT_ROWS
    with persist_frame(made) if kept else nullcontext(made) as rows:
        accepted = verdicts.is_row_accepted(table.expectations)
        asked = [*bounding.aggregates(where=accepted), F.count_if(accepted).alias("accepted")]
        asked += [sum_row_bytes(rows).alias("bytes")] if kept else []
        quarantined, found = count_verdicts_with_aggregates(table, rows, report, asked)
        good = select_accepted_rows(table, rows)
        check_key_in_one_file(table, good)
        quarantine_scope_rows(workspace, table, source, rows, scope, quarantined)
        if shape is not None:
            report.count_replacement(targets.replace_target_table(select_winning_rows(table, good), path, shape))
            report.batches += 1
            return
        good = arrange_nested_fields(good, target.schema)
        size = RowsSize(found["accepted"], int(found["bytes"] or 0) if kept else None)
        changes = fill_empty_table(select_winning_rows(table, good), path, size.rows) if scope.everything else None
        if changes is None:
            batch = FoldBatch(scope, good, target, bounding, bounding.limits(found), size)
            changes = _merge_batch(workspace, table, source, batch)
    report.batches += 1
    report.deliveries += len(scope.fresh)
    report.count_merge(changes)


def _merge_batch(workspace: Workspace, table: AnyTable, source: Source, batch: FoldBatch) -> MergeCounts:
    """Merges what the rows of a batch change."""
    scope, good, target = batch.scope, batch.good, batch.target
    # The log is asked first, which needs no Spark job. A file that was delivered a thousand times has a thousand dead deliveries.
    path = workspace.path(table.name)
    held = sorted(file_statistics.find_values_in_file_ranges(path, "_delivery", scope.dead)) if scope.dead else []
    ours = F.col("old._delivery").isin([*scope.fresh, *held])
    lost = target.where(F.col("_delivery").isin(held))
    at_most = None
    with ExitStack() as kept:
        if scope.everything:
            stored = log.read_table_state(path)
            if stored is not None and stored.rows is not None:
                at_most = batch.size + RowsSize(stored.rows, None if stored.rows else 0)
            operations = plan_fold_operations(workspace, table, source, select_winning_rows(table, good), target, F.lit(True))
        elif not held or lost.isEmpty():
            # No row is removed, so each operation is one of the rows that were made.
            new, old, at_most = select_winning_rows(table, good), target.where(limits_condition(batch.limits)), batch.size
            two_files = ~ours if table.key_in_one_file else F.lit(False)
            operations = plan_fold_operations(workspace, table, source, new, old, F.lit(False), two_files, retracting=False)
        else:
            # All that today's code makes of the keys that lost a row takes the place of what the table has of them. In a change log these
            # keys are its target's: the key of a log's own row has a hash, which is another one if the code was changed.
            by = table.replayed_by
            keys = kept.enter_context(persist_frame(lost.select(*quote_columns(by)).distinct()))
            live = live_deliveries(workspace, source, [*scope.fresh, *scope.dead] if table.key_in_one_file else None)
            again = kept.enter_context(
                persist_frame(select_rows_of_keys(table, make_judged_rows(workspace, table, source, live), keys, by))
            )
            requarantine_rows_of_other_deliveries(workspace, table, source, again, scope, keys)
            near = compute_value_ranges(keys, targets.choose_bounding_columns(table, target.schema, by))
            old = select_rows_of_keys(table, target.where(limits_condition(near)), keys, by)
            new = select_winning_rows(table, arrange_nested_fields(select_accepted_rows(table, again), target.schema))
            refolded = plan_fold_operations(workspace, table, source, new, old, F.lit(True))
            rest = select_winning_rows(table, leave_out_rows_of_keys(good, keys))
            near_rest = target.where(limits_condition(batch.limits))
            two_files = ~ours if table.key_in_one_file else F.lit(False)
            merged = plan_fold_operations(workspace, table, source, rest, near_rest, F.lit(False), two_files, retracting=False)
            operations = refolded.unionByName(merged)
        return merge_fold_operations(workspace, table, operations, batch.bounding, at_most)


def merge_fold_operations(
    workspace: Workspace, table: AnyTable, operations: DataFrame, bounding: BoundingColumns, at_most: RowsSize | None = None
) -> MergeCounts:
    """Applies the operations of a fold to its table. If the table is a change log, hands the changed keys to the flow of its target.

    Arguments and errors are those of `apply_merge_operations`.
    """
    path = workspace.path(table.name)
    before = log.latest_table_version(path)

    def hand_keys_on(rows: pa.Table) -> None:
        after = log.latest_table_version(path)
        if before is not None and after is not None:
            keys = MergedKeys(before, after, rows.select([key for key in table.keys if key in rows.schema.names]))
            workspace.merged_keys.hand_on(table.name, keys)

    return apply_merge_operations(
        workspace.session,
        path,
        operations,
        table.keys,
        bounding,
        TWO_FILES.format(table.name),
        unique=True,
        at_most=at_most,
        on_few=hand_keys_on if table.serves else None,
    )


def plan_fold_operations(
    workspace: Workspace,
    table: AnyTable,
    source: Source,
    new: DataFrame,
    old: DataFrame,
    again: Column,
    two_files: Column | None = None,
    retracting: bool = True,
    moving: bool = False,
) -> DataFrame:
    """Returns the operations that turn the table's rows `old` into the rows `new`, one row per key, for each row that differs.

    again: true if the old row no longer counts, so that it is replaced or removed; otherwise the higher precedence wins. two_files: true if a
    row of another file is a conflict. retracting: whether `again` can be true for any row. moving: whether the position in bronze of an old row may
    be gone; an equal row then takes its place, or nobody would find the table's row when that one goes, too.
    """
    both = join_old_and_new(new, old, table.keys)
    content = [name for name in old.columns if name not in PROVENANCE]
    equal = null_safe_equality(quote_columns(content, "new"), quote_columns(content, "old"))
    wins = row_precedence(table, "new", content, old.schema) > row_precedence(table, "old", content, old.schema)
    operation = (
        F
        .when(F.col("old").isNull(), INSERT)
        .when(F.col("new").isNull(), F.when(again, DELETE))
        .when(F.lit(False) if two_files is None else two_files, CONFLICT)
        .when((again | wins) & ~equal, UPDATE)
    )
    if retracting:
        both = _join_file_names(workspace, both, read_feeding_outcomes(workspace, source))
        # An equal row of another file takes its place: the row must go when that file loses it, and it is found by its delivery.
        sides = (quote_columns(PROVENANCE, side) for side in ("new", "old"))
        elsewhere = ~null_safe_equality(*sides) if moving else ~F.col("new_file").eqNullSafe(F.col("old_file"))
        operation = operation.when(again & elsewhere, UPDATE)
    chosen = both.select(operation.alias(OPERATION), F.coalesce("new", "old").alias("row")).where(F.col(OPERATION).isNotNull())
    return chosen.select(OPERATION, *(quote_column(name, "row").alias(name) for name in old.columns))


def _join_file_names(workspace: Workspace, both: DataFrame, outcomes: list[DeliveryOutcome]) -> DataFrame:
    known = tables.make_inline_frame(
        workspace.session, [(one.delivery, one.file) for one in outcomes], "delivery BIGINT, file STRING"
    )
    for side in ("new", "old"):
        files = known.select(F.col("delivery").alias(f"_{side}"), F.col("file").alias(f"{side}_file"))
        both = both.join(F.broadcast(files), F.col(f"{side}._delivery") == F.col(f"_{side}"), "left")
    return both


def select_winning_rows(table: Table[Any], rows: DataFrame) -> DataFrame:
    """Returns one row per key. Of equal rows it takes the one whose provenance came first."""
    content = [name for name in rows.columns if name not in PROVENANCE]
    packed = rows.select(F.struct(*quote_columns(rows.columns)).alias("new"))
    keys = quote_columns(table.keys, "new")
    order = [row_precedence(table, "new", content, rows.schema).desc(), F.col("new._delivery"), F.col("new._row")]
    ranked = packed.withColumn("_rank", F.row_number().over(Window.partitionBy(*keys).orderBy(*order)))
    return ranked.where(F.col("_rank") == 1).select("new.*")


def row_precedence(table: Table[Any], side: str, content: Sequence[str], schema: StructType) -> Column:
    """Returns the order of the rows of one key, in the struct column `side`: the sequence, then the hash of the content.

    NULL fields are left out of the content, because a column that comes later must not change the order of older rows. In a change log the
    content is part of the key, so its rows of one key are equal.
    """
    equal = change_log.is_change_log(table)
    columns = {name: quote_column(name, side) for name in content}
    hashed = F.lit("") if equal else change_log.hash_row_content(columns, schema)
    sequence = [quote_column(table.sequence_by, side).alias("sequence")] if table.sequence_by else []
    return F.struct(*sequence, hashed.alias("content"))
