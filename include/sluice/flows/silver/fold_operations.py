"""Plans what a fold changes in its table: which of new rows wins its key, and which operations turn the table's rows into the winners.

Either the old rows are in question, so that the new ones replace them, or they stay unless a new row outranks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from sluice.declare.cdc import change_log
from sluice.declare.datasets.tables import AnyTable, Table
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column, quote_columns
from sluice.flows.silver.delivery_scope import live_deliveries, read_feeding_outcomes
from sluice.flows.silver.judged_rows import make_judged_rows, select_accepted_rows, select_rows_of_keys
from sluice.flows.writing import targets
from sluice.flows.writing.difference import CONFLICT, join_old_and_new, null_safe_equality, persist_frame
from sluice.flows.writing.ranges import compute_value_ranges, limits_condition
from sluice.ingest.delivery_tables import DeliveryOutcome
from sluice.lake import table_creation
from sluice.lake.nested_types import arrange_nested_columns, arrange_nested_fields
from sluice.lake.small_writes import DELETE, INSERT, OPERATION, UPDATE
from sluice.lake.workspace import PROVENANCE, Workspace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def plan_replacing(
    workspace: Workspace, table: AnyTable, source: Source, new: DataFrame, old: DataFrame, moving: bool = False
) -> DataFrame:
    """Returns the operations that put the rows `new`, one per key, in the place of all rows `old`, for each row that differs.

    moving: whether the position in bronze of an old row may be gone; an equal row then takes its place, or nobody would find the table's row
    when that one goes, too.
    """
    both = _join_file_names(workspace, join_old_and_new(new, old, table.keys), read_feeding_outcomes(workspace, source))
    # An equal row of another file takes its place: the row must go when that file loses it, and it is found by its delivery.
    sides = (quote_columns(PROVENANCE, side) for side in ("new", "old"))
    elsewhere = ~null_safe_equality(*sides) if moving else ~F.col("new_file").eqNullSafe(F.col("old_file"))
    operation = (
        F
        .when(F.col("old").isNull(), INSERT)
        .when(F.col("new").isNull(), DELETE)
        .when(~_is_content_equal(old), UPDATE)
        .when(elsewhere, UPDATE)
    )
    return _select_operations(both, operation, old.columns)


def plan_outranking(
    table: AnyTable, new: DataFrame, old: DataFrame, conflict: Column, as_made: StructType | None = None
) -> DataFrame:
    """Returns the operations that add the rows `new`, one per key, to the rows `old`: of each key the higher precedence wins.

    as_made: as in `select_winning_rows`. conflict: true if the old row (`old`, a struct) and a new one of its key contradict the declaration.
    """
    content, order = _list_content_columns(old), as_made or old.schema
    # Side by side both have the table's columns: a new row has NULL in those that the transform no longer gives.
    new_order, old_order = (row_precedence(table, side, content, old.schema, order) for side in ("new", "old"))
    operation = (
        F
        .when(F.col("old").isNull(), INSERT)
        .when(F.col("new").isNull(), None)
        .when(conflict, CONFLICT)
        .when((new_order > old_order) & ~_is_content_equal(old), UPDATE)
    )
    return _select_operations(join_old_and_new(new, old, table.keys), operation, old.columns)


def _select_operations(both: DataFrame, operation: Column, columns: Sequence[str]) -> DataFrame:
    chosen = both.select(operation.alias(OPERATION), F.coalesce("new", "old").alias("row")).where(F.col(OPERATION).isNotNull())
    return chosen.select(OPERATION, *(quote_column(name, "row").alias(name) for name in columns))


def _is_content_equal(old: DataFrame) -> Column:
    content = _list_content_columns(old)
    return null_safe_equality(quote_columns(content, "new"), quote_columns(content, "old"))


def _list_content_columns(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name not in PROVENANCE]


def _join_file_names(workspace: Workspace, both: DataFrame, outcomes: list[DeliveryOutcome]) -> DataFrame:
    known = table_creation.make_inline_frame(
        workspace.session, [(one.delivery, one.file) for one in outcomes], "delivery BIGINT, file STRING"
    )
    for side in ("new", "old"):
        files = known.select(F.col("delivery").alias(f"_{side}"), F.col("file").alias(f"{side}_file"))
        both = both.join(F.broadcast(files), F.col(f"{side}._delivery") == F.col(f"_{side}"), "left")
    return both


def select_winning_rows(table: Table[Any], rows: DataFrame, as_made: StructType | None = None) -> DataFrame:
    """Returns one row per key. Of equal rows it takes the one whose provenance came first.

    as_made: the columns as the transform made them, if the rows were arranged since. Ties go by its order of nested fields: the table's is the
    order in which they came, which must decide nothing.
    """
    content = _list_content_columns(rows)
    packed = rows.select(F.struct(*quote_columns(rows.columns)).alias("new"))
    keys = quote_columns(table.keys, "new")
    order = [
        row_precedence(table, "new", content, rows.schema, as_made or rows.schema).desc(),
        F.col("new._delivery"),
        F.col("new._row"),
    ]
    ranked = packed.withColumn("_rank", F.row_number().over(Window.partitionBy(*keys).orderBy(*order)))
    return ranked.where(F.col("_rank") == 1).select("new.*")


def row_precedence(table: Table[Any], side: str, content: Sequence[str], schema: StructType, as_made: StructType) -> Column:
    """Returns the order of the rows of one key, in the struct column `side`: the sequence, then the hash of the content.

    schema: of the rows. as_made: as in `select_winning_rows`.

    NULL fields are left out of the content, because a column that comes later must not change the order of older rows. In a change log the
    content is part of the key, so its rows of one key are equal.
    """
    equal = change_log.is_change_log(table)
    columns = arrange_nested_columns({name: quote_column(name, side) for name in content}, schema, as_made)
    hashed = F.lit("") if equal else change_log.hash_row_content(columns, schema)
    sequence = [quote_column(table.sequence_by, side).alias("sequence")] if table.sequence_by else []
    return F.struct(*sequence, hashed.alias("content"))


@contextmanager
def make_rows_of_keys_again(
    workspace: Workspace, table: AnyTable, source: Source, keys: DataFrame, deliveries: Sequence[int]
) -> Iterator[DataFrame]:
    """Yields all rows that today's code makes of these keys (`replayed_by`), with verdicts, kept in memory.

    The flow needs them of keys that lost a row, since a maximum cannot be taken back, and a replay of keys of rows that may be other now.
    deliveries: those by which the keys were found. If a key is in one file, only their files can have a row of it.
    """
    live = live_deliveries(workspace, source, deliveries if table.key_in_one_file else None)
    made = make_judged_rows(workspace, table, source, live)
    # The keys come from the table, which has nested fields in the order in which they came.
    wanted = arrange_nested_fields(keys, made.schema)
    with persist_frame(select_rows_of_keys(table, made, wanted, table.replayed_by)) as rows:
        yield rows


def plan_keys_again(
    workspace: Workspace,
    table: AnyTable,
    source: Source,
    keys: DataFrame,
    rows: DataFrame,
    target: DataFrame,
    moving: bool = False,
) -> DataFrame:
    """Returns the operations that put those of the keys' rows that are accepted in the place of what the target has of these keys.

    rows: what `make_rows_of_keys_again` yields. moving: as in `plan_replacing`.
    """
    accepted = select_accepted_rows(table, rows)
    good = arrange_nested_fields(accepted, target.schema)
    near = compute_value_ranges(keys, targets.choose_bounding_columns(table, target.schema, table.replayed_by))
    old = select_rows_of_keys(table, target.where(limits_condition(near)), keys, table.replayed_by)
    return plan_replacing(workspace, table, source, select_winning_rows(table, good, accepted.schema), old, moving)
