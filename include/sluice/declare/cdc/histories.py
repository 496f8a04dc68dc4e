"""Folds a log of changes into the last state of each key (SCD 1), or into all its states with their times (SCD 2).

A log has the keys, the target's columns, and CHANGE, SEQUENCE and CONTENT. The result depends only on the set of its rows: the changes
of a key are ordered by (sequence, truncate before upsert before delete, content), so neither order of arrival nor duplicates matter. At
one sequence a key has one state, the one after its last change. For truncates and deletes, the target's columns are NULL and are not
read. The rows of a key are made only from the log's rows of that key and from all truncates, so a filter on a key can be pushed down to
the log.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from sluice.declare.lazy_spark import F, Window
from sluice.declare.quoting import quote_column, quote_columns, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField
    from pyspark.sql.window import WindowSpec

SEQUENCE, CHANGE, CONTENT = "_sequence", "_change", "_content"
UPSERT, DELETE = "upsert", "delete"
START, END = "__START_AT", "__END_AT"
_VALUES, _GONE, _UNTIL, _TRUNCATE = "_values", "_gone", "_until", "_truncate"
"""Columns of a state: its values without the keys, whether it is deleted, the sequence at which it ends, and the next truncate."""

_BEGINS, _LIFE, _INTERVAL = "_begins", "_life", "_interval"
"""Columns of a state: whether an interval begins with it, and which life of its key (up to a delete or truncate) and interval it is in."""

_SNAPSHOT, _DELETED, _WRITTEN = "_snapshot", "_deleted", "_written"


def fold_changes_scd1(
    changes: DataFrame,
    truncates: DataFrame | None,
    keys: Sequence[str],
    columns: Sequence[str],
    ignore_null_updates: bool = False,
) -> DataFrame:
    """Returns one row per existing key: the target's columns after its last change.

    truncates: a frame with their SEQUENCE, or None. ignore_null_updates: NULL in an upsert keeps the value that was there since the
    last delete or truncate, and so does NULL in a field of a STRUCT.
    """
    if truncates is not None:
        last = truncates.agg(F.max(SEQUENCE).alias(_TRUNCATE))
        changes = changes.crossJoin(last).where(F.col(_TRUNCATE).isNull() | (F.col(SEQUENCE) >= F.col(_TRUNCATE)))
    values = _non_key_columns(keys, columns)
    if ignore_null_updates:
        return _compute_last_known_values(changes, keys, values).select(*_unpack_target_columns(keys, columns))
    order = F.struct(SEQUENCE, F.col(CHANGE) == DELETE, CONTENT)
    latest = changes.groupBy(*quote_columns(keys)).agg(
        F.max_by(F.col(CHANGE), order).alias(CHANGE), F.max_by(_pack_values(values), order).alias(_VALUES)
    )
    return latest.where(F.col(CHANGE) == UPSERT).select(*_unpack_target_columns(keys, columns))


def fold_changes_scd2(
    changes: DataFrame,
    truncates: DataFrame | None,
    keys: Sequence[str],
    columns: Sequence[str],
    tracked: Sequence[str],
    ignore_null_updates: bool = False,
) -> DataFrame:
    """Returns one row per key and interval from START up to END: the target's columns, START and END. END is NULL for a current one.

    tracked: the columns in which a new value, including NULL, begins an interval. The other columns have the last value of their
    interval.
    """
    values = _non_key_columns(keys, columns)
    states = changes.groupBy(*quote_columns([*keys, SEQUENCE])).agg(
        F.bool_or(F.col(CHANGE) == DELETE).alias(_GONE),
        _last_known_upsert_values(changes, values)
        if ignore_null_updates
        else F.max_by(_pack_values(values), CONTENT).alias(_VALUES),
    )
    following = F.lead(SEQUENCE).over(_key_window(keys))
    if truncates is None:
        states = states.withColumn(_TRUNCATE, F.lit(None).cast(changes.schema[SEQUENCE].dataType)).withColumn(_UNTIL, following)
    else:
        states = states.crossJoin(truncates.agg(F.collect_set(SEQUENCE).alias(_TRUNCATE)))
        states = states.withColumn(_TRUNCATE, _next_sequence(_TRUNCATE, SEQUENCE))
        states = states.withColumn(_UNTIL, F.least(following, F.col(_TRUNCATE)))
    if ignore_null_updates:
        states = _fill_nulls_forward(states, keys, {name: changes.schema[name].dataType for name in values})
    return _merge_adjacent_states(states.where(~F.col(_GONE)), keys, columns, tracked)


def fold_snapshots(
    rows: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    snapshot_by: str,
    tracked: Sequence[str] = (),
    scd_type: Literal[1, 2] = 1,
) -> DataFrame:
    """Folds full extracts in the same way. Their rows have the keys, the target's columns, CONTENT, and the snapshot they belong to.

    A key that is missing in a snapshot is deleted at it. If a snapshot has several rows of a key, their content decides. A snapshot
    without a row goes unnoticed. Each snapshot affects every key of the one before it.
    """
    values = _non_key_columns(keys, columns)
    taken = quote_column(snapshot_by)
    if scd_type == 1:
        last = rows.agg(F.max(taken).alias(_SNAPSHOT))
        latest = rows.crossJoin(last).where(taken == F.col(_SNAPSHOT))
        once = latest.groupBy(*quote_columns(keys)).agg(F.max_by(_pack_values(values), CONTENT).alias(_VALUES))
        return once.select(*_unpack_target_columns(keys, columns))
    once = rows.groupBy(*quote_columns(keys), taken.alias(SEQUENCE)).agg(F.max_by(_pack_values(values), CONTENT).alias(_VALUES))
    snapshots = rows.select(taken.alias(_SNAPSHOT)).distinct()
    following = snapshots.crossJoin(snapshots.agg(F.collect_set(_SNAPSHOT).alias(_UNTIL)))
    following = following.select(_SNAPSHOT, _next_sequence(_UNTIL, _SNAPSHOT).alias(_UNTIL))
    states = once.join(F.broadcast(following), F.col(SEQUENCE) == F.col(_SNAPSHOT))
    return _merge_adjacent_states(states, keys, columns, tracked)


def _merge_adjacent_states(states: DataFrame, keys: Sequence[str], columns: Sequence[str], tracked: Sequence[str]) -> DataFrame:
    """States of keys as intervals, each up to the next sequence. Adjacent states with equal tracked values become one interval."""
    before = {name: F.lag(_packed_value(name)).over(_key_window(keys)) for name in tracked if name not in keys}
    same = (_packed_value(name).eqNullSafe(value) for name, value in before.items())
    meets = F.lag(_UNTIL).over(_key_window(keys)).eqNullSafe(F.col(SEQUENCE))
    numbered = states.withColumn(_BEGINS, ~functools.reduce(lambda a, b: a & b, same, meets))
    numbered = numbered.withColumn(_INTERVAL, F.count_if(_BEGINS).over(_running_window(_key_window(keys))))
    intervals = numbered.groupBy(*quote_columns([*keys, _INTERVAL])).agg(
        F.min(SEQUENCE).alias(START),
        F.max_by(_UNTIL, SEQUENCE).alias(END),
        F.max_by(_VALUES, SEQUENCE).alias(_VALUES),
    )
    return intervals.select(*_unpack_target_columns(keys, columns), START, END)


def _last_known_upsert_values(changes: DataFrame, values: Sequence[str]) -> Column:
    """The last values that are not NULL of the upserts of one sequence, of which the one with the highest content comes last."""

    def last_known(value: Column) -> Column:
        return F.max_by(value, F.when(value.isNotNull(), F.col(CONTENT)))

    known = (_fold_by_field(quote_column(name), changes.schema[name].dataType, last_known).alias(name) for name in values)
    return F.struct(F.lit(True).alias(_VALUES), *known).alias(_VALUES)


def _fill_nulls_forward(states: DataFrame, keys: Sequence[str], kinds: Mapping[str, DataType]) -> DataFrame:
    """The states, with each NULL replaced by the value that the column had since the last delete or truncate. kinds: by column."""
    # A truncate comes before the upserts of the same sequence, so these begin from nothing.
    over = F.lag(_GONE).over(_key_window(keys)) | (F.lag(_TRUNCATE).over(_key_window(keys)) <= F.col(SEQUENCE))
    states = states.withColumn(_BEGINS, F.coalesce(over, F.lit(False)))
    states = states.withColumn(_LIFE, F.count_if(_BEGINS).over(_running_window(_key_window(keys))))
    life = _running_window(Window.partitionBy(*quote_columns(keys), _LIFE).orderBy(SEQUENCE))

    def last_known(value: Column) -> Column:
        return F.last(value, ignorenulls=True).over(life)

    known = (_fold_by_field(_packed_value(name), kind, last_known).alias(name) for name, kind in kinds.items())
    states = states.withColumn(_VALUES, F.struct(F.lit(True).alias(_VALUES), *known))
    if not any(map(_list_fields, kinds.values())):
        return states
    built = (_build_from_fields(_packed_value(name), kind, lambda value: value).alias(name) for name, kind in kinds.items())
    return states.withColumn(_VALUES, F.struct(F.lit(True).alias(_VALUES), *built))


def _compute_last_known_values(changes: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """For each existing key and column, the last value since the last delete that is not NULL."""
    upsert = F.col(CHANGE) == UPSERT
    kinds = {name: changes.schema[name].dataType for name in values}

    def last_known(value: Column) -> Column:
        return F.max_by(
            F.struct(F.col(SEQUENCE), value.alias("value")), F.when(upsert & value.isNotNull(), F.struct(SEQUENCE, CONTENT))
        )

    known = (_fold_by_field(quote_column(name), kind, last_known).alias(f"_last_{name}") for name, kind in kinds.items())
    found = changes.groupBy(*quote_columns(keys)).agg(
        F.max(F.when(~upsert, F.col(SEQUENCE))).alias(_DELETED), F.max(F.when(upsert, F.col(SEQUENCE))).alias(_WRITTEN), *known
    )

    def stands(since: Column) -> Column:
        return since.isNotNull() & (F.col(_DELETED).isNull() | (since > F.col(_DELETED)))

    def kept(last: Column) -> Column:
        return F.when(stands(last[SEQUENCE]), last["value"])

    built = (_build_from_fields(quote_column(f"_last_{name}"), kind, kept).alias(name) for name, kind in kinds.items())
    return found.where(stands(F.col(_WRITTEN))).withColumn(_VALUES, F.struct(F.lit(True).alias(_VALUES), *built))


def _list_fields(kind: DataType) -> list[StructField]:
    """The fields of a STRUCT; a value of another type has none."""
    fields: list[StructField] = getattr(kind, "fields", [])
    return fields


def _fold_by_field(column: Column, kind: DataType, fold: Callable[[Column], Column]) -> Column:
    """Folds a column; a STRUCT field by field, also within a STRUCT, into a STRUCT that is never NULL. An array or map is one value."""
    if not (fields := _list_fields(kind)):
        return fold(column)
    return F.struct(*(_fold_by_field(column[field.name], field.dataType, fold).alias(field.name) for field in fields))


def _build_from_fields(column: Column, kind: DataType, read: Callable[[Column], Column]) -> Column:
    """Builds the value of a column that `_fold_by_field` made: NULL for a STRUCT without a value in any field."""
    if not (fields := _list_fields(kind)):
        return read(column)
    built = (_build_from_fields(column[field.name], field.dataType, read).alias(field.name) for field in fields)
    known = (read(value).isNotNull() for value in _list_innermost_values(column, kind))
    return F.when(functools.reduce(lambda a, b: a | b, known), F.struct(*built))


def _list_innermost_values(column: Column, kind: DataType) -> list[Column]:
    if not (fields := _list_fields(kind)):
        return [column]
    return [value for field in fields for value in _list_innermost_values(column[field.name], field.dataType)]


def _next_sequence(all_of: str, after: str) -> Column:
    """The lowest sequence in the array that is higher than the given one, or NULL."""
    return F.array_min(F.filter(all_of, lambda one: one > F.col(after)))


def _pack_values(values: Iterable[str]) -> Column:
    """Packs columns into one, with a constant, since a target may have no columns but its keys."""
    return F.struct(F.lit(True).alias(_VALUES), *quote_columns(values))


def _packed_value(name: str) -> Column:
    """A column of the values that `_pack_values` has put together."""
    return F.col(f"{_VALUES}.{quote_identifier(name)}")


def _unpack_target_columns(keys: Sequence[str], columns: Sequence[str]) -> list[Column]:
    """The target's columns, in its order, from a frame with the keys and _VALUES; keys that the target does not name come first."""
    names = [*(key for key in keys if key not in columns), *columns]
    return [quote_column(name) if name in keys else _packed_value(name).alias(name) for name in names]


def _non_key_columns(keys: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name not in keys]


def _key_window(keys: Sequence[str]) -> WindowSpec:
    return Window.partitionBy(*quote_columns(keys)).orderBy(SEQUENCE)


def _running_window(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
