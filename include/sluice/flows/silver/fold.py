"""The silver flow: a table is the fold of its source's live deliveries, one row per key.

It streams outcomes and reads bronze as it is now. New rows are merged in. The highest sequence wins, then the content, never the order of
arrival, so any order of deliveries gives the same table. A maximum cannot be taken back: when deliveries stop counting (superseded or
discarded), the keys whose present row came from one of them are folded again from bronze.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.tables import AnyTable
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_columns
from sluice.flows import plans
from sluice.flows.placeholders import identify_placeholder, make_empty_placeholder
from sluice.flows.progress import stream_starts, streams
from sluice.flows.progress.checkpoints import open_checkpoint, record_read_types
from sluice.flows.progress.flow_memory import ReadTypes, read_flow_memory, reason_if_retyped
from sluice.flows.progress.missing_inputs import SOURCE_IS_EMPTY
from sluice.flows.silver.delivery_scope import (
    DeliveryScope,
    count_delivery_rows,
    feeding_sources,
    find_batch_scope,
    live_deliveries,
)
from sluice.flows.silver.fold_operations import (
    make_rows_of_keys_again,
    plan_keys_again,
    plan_outranking,
    plan_replacing,
    select_winning_rows,
)
from sluice.flows.silver.judged_rows import (
    TWO_FILES,
    check_key_in_one_file,
    leave_out_rows_of_keys,
    make_judged_rows,
    select_accepted_rows,
    silver_table_schema,
    transform_source_rows,
)
from sluice.flows.silver.table_quarantine import quarantine_scope_rows, requarantine_rows_of_other_deliveries
from sluice.flows.writing import targets
from sluice.flows.writing.difference import apply_merge_operations, fill_empty_table, persist_frame
from sluice.flows.writing.enforced import count_verdicts_with_aggregates
from sluice.flows.writing.ranges import BoundingColumns, Limits, limits_condition
from sluice.lake import batch_sizes, file_statistics, log, table_frames
from sluice.lake.batch_sizes import RowsSize, sum_row_bytes
from sluice.lake.flow_report import FlowReport, MergeCounts
from sluice.lake.nested_types import arrange_nested_fields
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import PROVENANCE, MergedKeys, Workspace
from sluice.privacy import anonymised
from sluice.quality import verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
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
        report.note_fold_anew(checkpoint.rebased)
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

    as_made: the columns of the accepted rows as the transform made them, before they got the table's order of nested fields.

    bounding, limits: the columns by which files are left out, and the ranges that the accepted rows lie in.
    """

    scope: DeliveryScope
    good: DataFrame
    as_made: StructType
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
        as_made, good = good.schema, arrange_nested_fields(good, target.schema)
        size = RowsSize(found["accepted"], int(found["bytes"] or 0) if kept else None)
        changes = fill_empty_table(select_winning_rows(table, good, as_made), path, size.rows) if scope.everything else None
        if changes is None:
            batch = FoldBatch(scope, good, as_made, target, bounding, bounding.limits(found), size)
            changes = _merge_batch(workspace, table, source, batch)
    report.batches += 1
    report.deliveries += len(scope.fresh)
    report.count_merge(changes)


def _merge_batch(workspace: Workspace, table: AnyTable, source: Source, batch: FoldBatch) -> MergeCounts:
    """Merges what the rows of a batch change."""
    scope, good, target, as_made = batch.scope, batch.good, batch.target, batch.as_made
    path = workspace.path(table.name)
    if scope.everything:
        stored = log.read_table_state(path)
        at_most = None
        if stored is not None and stored.rows is not None:
            at_most = batch.size + RowsSize(stored.rows, None if stored.rows else 0)
        operations = plan_replacing(workspace, table, source, select_winning_rows(table, good, as_made), target)
        return merge_fold_operations(workspace, table, operations, batch.bounding, at_most)
    # The log is asked first, which needs no Spark job. A file that was delivered a thousand times has a thousand dead deliveries.
    held = sorted(file_statistics.find_values_in_file_ranges(path, "_delivery", scope.dead)) if scope.dead else []
    lost = target.where(F.col("_delivery").isin(held))
    near = target.where(limits_condition(batch.limits))
    conflict = ~F.col("old._delivery").isin([*scope.fresh, *held]) if table.key_in_one_file else F.lit(False)
    if not held or lost.isEmpty():
        # No row is removed, so each operation is one of the rows that were made.
        operations = plan_outranking(table, select_winning_rows(table, good, as_made), near, conflict, as_made)
        return merge_fold_operations(workspace, table, operations, batch.bounding, batch.size)
    # In a change log the keys that lost a row are its target's: the key of a log's own row has a hash, which is another one if the code was
    # changed.
    with (
        persist_frame(lost.select(*quote_columns(table.replayed_by)).distinct()) as keys,
        make_rows_of_keys_again(workspace, table, source, keys, [*scope.fresh, *scope.dead]) as rows,
    ):
        requarantine_rows_of_other_deliveries(workspace, table, source, rows, scope, keys)
        again = plan_keys_again(workspace, table, source, keys, rows, target)
        rest = select_winning_rows(table, leave_out_rows_of_keys(good, keys), as_made)
        operations = again.unionByName(plan_outranking(table, rest, near, conflict, as_made))
        return merge_fold_operations(workspace, table, operations, batch.bounding)


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


def record_read_columns(workspace: Workspace, table: AnyTable, source: Source) -> None:
    """Records which columns of bronze the table reads, and their types of today.

    Call it after the flow's checkpoint was opened: a flow that starts anew forgets what was recorded. The columns are found in the plan only
    when the transform or bronze has changed: it takes longer than a run that has nothing to fold.
    """
    flow, path = workspace.graph.flow_name(table), workspace.path(source.name)
    folder, types = workspace.checkpoints(flow), log.read_column_types(path)
    known = json.dumps([compute_declaration_fingerprint(table), types], sort_keys=True)
    mark = hashlib.sha256(known.encode()).hexdigest()
    memory = read_flow_memory(folder, flow)
    if memory is None or memory.read_types.mark != mark:
        bronze = anonymised.bronze_rows_for_table(table, table_frames.read_table(workspace.session, path))
        read = _find_read_columns(workspace, table, bronze.schema)
        record_read_types(folder, flow, ReadTypes(mark, {name: types[name] for name in sorted(read) if name in types}))


def _find_read_columns(workspace: Workspace, table: AnyTable, bronze: StructType) -> set[str]:
    """Returns the columns of bronze that the table's rows and their verdicts are made from."""
    leaf = make_empty_placeholder(workspace.session, bronze)
    judged = verdicts.add_verdict_column(transform_source_rows(table, leaf), table.expectations)
    shaped = table.shape(judged) if table.shape else judged
    names = {identify_placeholder(leaf): table.name}
    return {*plans.find_used_types(plans.optimized_plan(shaped), names).get(table.name, {})}
