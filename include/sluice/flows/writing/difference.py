"""Changes a table to the wanted rows and touches only what differs: without a difference there is no commit.

The difference is computed first and then merged. A MERGE that compares by itself rewrites every file with a match, equal or not. The
merge's condition holds only bounds of columns with statistics, so that few files are read and no personal value gets into the history.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import functions as F

from sluice.declare.quoting import quote_column, quote_columns, quote_identifier
from sluice.errors import SluiceError
from sluice.flows.writing.ranges import BoundingColumns, Limits, range_condition_sql
from sluice.lake import commit_marks, commits, log, small_writes, table_frames
from sluice.lake.batch_sizes import RowsSize, collect_few_rows, sum_row_bytes
from sluice.lake.flow_report import MergeCounts
from sluice.lake.nested_types import arrange_nested_fields
from sluice.lake.small_writes import DELETE, INSERT, OPERATION, UPDATE
from sluice.lake.table_frames import compute_aggregates
from sluice.printable import count_noun
from sluice.step_times import WRITING, measure_step

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

DISTINCT = "_distinct_keys"
CONFLICT = "X"


def null_safe_equality(left: Sequence[Column], right: Sequence[Column]) -> Column:
    """Returns the condition that two lists of columns are equal; NULLs equal each other."""
    return functools.reduce(lambda a, b: a & b, (x.eqNullSafe(y) for x, y in zip(left, right, strict=True)))


def join_old_and_new(new: DataFrame, old: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns the new and the old row of each key side by side: the structs `new` and `old`, NULL if there is none."""
    given = select_table_columns(new, old.schema)
    left = given.select(F.struct(*quote_columns(given.columns)).alias("new"))
    right = old.select(F.struct(*quote_columns(old.columns)).alias("old"))
    condition = null_safe_equality(quote_columns(keys, "new"), quote_columns(keys, "old"))
    return left.join(right, condition, "full_outer")


def select_table_columns(new: DataFrame, table: StructType) -> DataFrame:
    """Selects a table's columns, in its order, from rows that were made for it.

    A column that came later is last in the table, wherever it is in the transform's result, and so is a field within a column. A column that
    the transform no longer gives is NULL in new rows until the table is made anew.
    """
    rows = arrange_nested_fields(new, table)
    columns = [quote_column(one.name) if one.name in new.columns else F.lit(None).cast(one.dataType) for one in table]
    return rows.select(*(column.alias(one.name) for column, one in zip(columns, table, strict=True)))


def fill_empty_table(rows: DataFrame, path: str, number: int) -> MergeCounts | None:
    """Appends the rows, one per key, to a table without rows: there is nothing to compare them with.

    number: how many rows there are, or how many they are chosen from. Returns None if the table has rows, or if a merge of so few is cheap.
    """
    state = log.read_table_state(path)
    if number <= small_writes.MOST_ROWS or state is None or state.files:
        return None
    table = table_frames.read_table(rows.sparkSession, path)
    commits.append_rows(select_table_columns(rows, table.schema), path, None)
    done = log.read_table_state(path)
    if done is None or done.rows is None:
        return MergeCounts(inserted=table_frames.read_table(rows.sparkSession, path).count())
    return MergeCounts(inserted=done.rows)


def plan_merge_operations(new: DataFrame, old: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns what turns the rows `old` into the rows `new`, one per key: the columns of `old`, with an operation for each that differs."""
    both = join_old_and_new(new, old, keys)
    equal = null_safe_equality(
        quote_columns(old.columns, "new"),
        quote_columns(old.columns, "old"),
    )
    operation = F.when(F.col("old").isNull(), INSERT).when(F.col("new").isNull(), DELETE).when(~equal, UPDATE)
    chosen = both.select(operation.alias(OPERATION), F.coalesce("new", "old").alias("row")).where(F.col(OPERATION).isNotNull())
    return chosen.select(OPERATION, *(quote_column(name, "row").alias(name) for name in old.columns))


def apply_merge_operations(
    session: SparkSession,
    path: str,
    operations: DataFrame,
    keys: Sequence[str],
    bounding: BoundingColumns,
    conflict: str = "",
    unique: bool = False,
    at_most: RowsSize | None = None,
    on_few: Callable[[pa.Table], None] | None = None,
) -> MergeCounts:
    """Applies rows with an operation I, U or D to a table. bounding: keys with statistics, which limit the files that are read.

    unique: whether a key cannot come twice, because the rows are winners or because all rows that were made were counted before (here only
    those that differ are seen). at_most: how many operations there can be, and their size, as far as known: few are counted here, and Spark
    makes one pass over them instead of two. on_few: is given the operations once they are committed, if they are few.

    Raises RepeatedPrimaryKeys if a key comes twice, and SluiceError with the text `conflict` if an operation is X.
    """
    rows = _collect_few_operations(path, operations, keys, bounding, at_most)
    if rows is not None:
        counted = _count_operations_in_memory(rows, keys, conflict, unique)
        done = _merge_few_operations(session, path, rows, keys, bounding.integer_ends_of_rows(rows), on_few)
        if done is not None:
            return replace(done, not_inserted=counted[INSERT] - done.inserted)
    given = operations if rows is None else session.createDataFrame(rows, operations.schema)
    with persist_frame(given) as kept_operations:
        found = _summarize_operations(kept_operations, keys, bounding, conflict, unique)
        if not found.rows:
            return MergeCounts()
        done = None
        bounded = bounding.has_whole_numbers
        if rows is None and small_writes.is_merged_by_delta_rs(path, keys, found.rows, found.row_bytes, bounded):
            few = kept_operations.toArrow()
            if small_writes.are_dates_within_reach(few):
                done = _merge_few_operations(session, path, few, keys, found.integers, on_few)
        if done is None:
            done = _merge_through_spark(session, path, kept_operations, keys, found)
    return replace(done, not_inserted=found.inserts - done.inserted)


def _collect_few_operations(
    path: str, operations: DataFrame, keys: Sequence[str], bounding: BoundingColumns, at_most: RowsSize | None
) -> pa.Table | None:
    """Returns operations that are known to be few, for delta-rs. Returns None if it does not merge them, or a row is large."""
    if at_most is None:
        return None
    if not small_writes.is_merged_by_delta_rs(path, keys, at_most.rows, at_most.bytes or 0, bounding.has_whole_numbers):
        return None
    is_counted = at_most.bytes is not None
    few = operations.toArrow() if is_counted else collect_few_rows(operations, at_most.rows, small_writes.MOST_ROW_BYTES)
    return few if few is not None and small_writes.are_dates_within_reach(few) else None


def _count_operations_in_memory(rows: pa.Table, keys: Sequence[str], conflict: str, unique: bool) -> Counter[str]:
    """Counts operations that are in memory, by kind. Raises what `apply_merge_operations` raises."""
    counted = Counter(rows[OPERATION].to_pylist())
    _refuse_conflicts(counted[CONFLICT], conflict)
    if not unique:
        # NULLs equal each other here, too. Keys that Arrow compares otherwise than Spark, such as fractions, are left to Spark's merge.
        refuse_repeated_keys(rows.num_rows, rows.select(keys).group_by(keys).aggregate([]).num_rows, keys)
    return counted


def _merge_few_operations(
    session: SparkSession,
    path: str,
    rows: pa.Table,
    keys: Sequence[str],
    integers: Mapping[str, tuple[int, int]],
    on_few: Callable[[pa.Table], None] | None,
) -> MergeCounts | None:
    """Applies operations that are in memory through delta-rs. Returns None if it wrote nothing and Spark is to do it.

    That is so if delta-rs would hold many rows of the table, or failed: other rows of the files may be such that it cannot write them.
    integers, on_few: see `OperationSummary` and `apply_merge_operations`.
    """
    if not rows.num_rows:
        return MergeCounts()
    if not small_writes.fits_in_memory(path, integers):
        return None
    # The mark is read last: reading it fails if the JVM is gone, and then nothing may be written.
    mark = commit_marks.read_session_mark(session)
    with small_writes.leave_failure_to_spark():
        done = small_writes.merge_few_rows(path, rows, keys, integers, mark)
        if on_few is not None:
            on_few(rows)
        return done
    return None


def _refuse_conflicts(rows: int, conflict: str) -> None:
    if rows:
        raise SluiceError(f"{conflict} {count_noun(rows, 'row', 'is', 'are')} concerned. The table was not changed.")


@measure_step(WRITING)
def _merge_through_spark(
    session: SparkSession, path: str, operations: DataFrame, keys: Sequence[str], found: OperationSummary
) -> MergeCounts:
    near = [range_condition_sql(f"t.{quote_identifier(name)}", ranges) for name, ranges in found.limits.items()]
    on = " AND ".join([f"t.{quote_identifier(key)} <=> s.{quote_identifier(key)}" for key in keys] + near)
    values = {quote_identifier(name): f"s.{quote_identifier(name)}" for name in operations.columns if name != OPERATION}
    merging = DeltaTable.forPath(session, path).alias("t").merge(operations.alias("s"), on)
    if found.deletes:
        merging = merging.whenMatchedDelete(f"s.{OPERATION} = '{DELETE}'")
    if found.updates:
        merging = merging.whenMatchedUpdate(f"s.{OPERATION} = '{UPDATE}'", set=dict(values))
    if found.inserts:
        merging = merging.whenNotMatchedInsert(f"s.{OPERATION} = '{INSERT}'", values=dict(values))
    done = merging.execute().first()
    inserted = done["num_inserted_rows"] if done else found.inserts
    return MergeCounts(inserted, found.updates, found.deletes)


@contextmanager
def persist_frame(frame: DataFrame) -> Iterator[DataFrame]:
    """Computes the frame once and keeps it, so that what is counted is what is written."""
    persisted = frame.persist()
    try:
        yield persisted
    finally:
        persisted.unpersist()


@dataclass(frozen=True)
class OperationSummary:
    """How many operations of each kind there are, how many bytes their rows take, and the ranges that their keys lie in.

    integers: for each key of whole numbers, the least and the greatest.
    """

    inserts: int
    updates: int
    deletes: int
    row_bytes: int
    limits: Limits
    integers: Mapping[str, tuple[int, int]]

    @property
    def rows(self) -> int:
        """The number of operations."""
        return self.inserts + self.updates + self.deletes


def _summarize_operations(
    operations: DataFrame, keys: Sequence[str], bounding: BoundingColumns, conflict: str, unique: bool
) -> OperationSummary:
    """Summarises the operations in one pass. Raises what `apply_merge_operations` raises."""
    kinds = [F.count_if(F.col(OPERATION) == kind).alias(f"is_{kind}") for kind in (INSERT, UPDATE, DELETE, CONFLICT)]
    distinct = F.count("*").alias(DISTINCT) if unique else distinct_key_count(keys)
    asked = [*kinds, F.count("*").alias("rows"), distinct, sum_row_bytes(operations).alias("bytes"), *bounding.aggregates()]
    found = compute_aggregates(operations, *asked)
    _refuse_conflicts(found["is_X"], conflict)
    refuse_repeated_keys(found["rows"], found[DISTINCT], keys)
    counts = (found["is_I"], found["is_U"], found["is_D"], int(found["bytes"] or 0))
    return OperationSummary(*counts, bounding.limits(found), bounding.integer_ends(found))


def distinct_key_count(keys: Sequence[str]) -> Column:
    """Returns an aggregate, named DISTINCT, of how many keys there are; NULLs equal each other."""
    return F.count_distinct(F.struct(*quote_columns(keys))).alias(DISTINCT)


class RepeatedPrimaryKeys(SluiceError):
    """Two rows have the same key."""


def refuse_repeated_keys(rows: int, distinct: int, keys: Sequence[str]) -> None:
    """Raises RepeatedPrimaryKeys if there are fewer keys than rows."""
    if rows != distinct:
        raise RepeatedPrimaryKeys(
            f"{count_noun(rows - distinct, 'row', 'has', 'have')} a key ({', '.join(keys)}) that another row has too. "
            "Declare keys that are unique in the result. The table was not changed."
        )
