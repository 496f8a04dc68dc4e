"""What a log of changes amounts to: the last state of each key (SCD 1), or all its states with their times (SCD 2).

A log has the keys, the target's columns, and CHANGE, SEQUENCE and CONTENT. The result depends on the set of its rows alone: the changes of
a key are ordered by (sequence, truncate before upsert before delete, content), so neither arrival nor duplicates show. At one sequence a
key has one state, the one after its last change. In the log of a truncate or a delete, columns that are NULL are not read. Rows of a key
are made of rows of that key alone, and of all truncates, so a filter on a key can be pushed down to the log.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from sluice.declare.lazy import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

SEQUENCE, CHANGE, CONTENT = "_sequence", "_change", "_content"
UPSERT, DELETE = "upsert", "delete"
START, END = "__START_AT", "__END_AT"
_VALUES, _GONE, _UNTIL, _TRUNCATE = "_values", "_gone", "_until", "_truncate"
"""Of a state: its columns but the keys, whether it is none, the sequence at which it ends, and the next truncate after it."""

_BEGINS, _LIFE, _INTERVAL = "_begins", "_life", "_interval"
"""Of a state: whether something begins with it, and which of its key's lives (up to a delete or truncate) and intervals it is in."""

_SNAPSHOT, _DELETED, _WRITTEN = "_snapshot", "_deleted", "_written"


def fold_changes_scd1(
    changes: DataFrame,
    truncates: DataFrame | None,
    keys: Sequence[str],
    columns: Sequence[str],
    ignore_null_updates: bool = False,
) -> DataFrame:
    """One row per key that is there: the target's columns after its last change.

    truncates: their SEQUENCE; None where there are none. ignore_null_updates: NULL in an upsert leaves the value that was there since
    the last delete or truncate.
    """
    if truncates is not None:
        last = truncates.agg(F.max(SEQUENCE).alias(_TRUNCATE))
        changes = changes.crossJoin(last).where(F.col(_TRUNCATE).isNull() | (F.col(SEQUENCE) >= F.col(_TRUNCATE)))
    values = _non_key_columns(keys, columns)
    if ignore_null_updates:
        return _compute_last_known_values(changes, keys, values).select(*_unpack_target_columns(keys, columns))
    order = F.struct(SEQUENCE, F.col(CHANGE) == DELETE, CONTENT)
    latest = changes.groupBy(*_quote_columns(keys)).agg(
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
    """One row per key and interval, from START up to END, which is NULL for the one that lasts: the target's columns, START and END.

    tracked: columns of which another value, NULL being one, begins an interval. The others have the last value of theirs.
    """
    values = _non_key_columns(keys, columns)
    states = changes.groupBy(*_quote_columns([*keys, SEQUENCE])).agg(
        F.bool_or(F.col(CHANGE) == DELETE).alias(_GONE), _last_upsert_values(values, ignore_null_updates)
    )
    following = F.lead(SEQUENCE).over(_key_window(keys))
    if truncates is None:
        states = states.withColumn(_TRUNCATE, F.lit(None).cast(changes.schema[SEQUENCE].dataType)).withColumn(_UNTIL, following)
    else:
        states = states.crossJoin(truncates.agg(F.collect_set(SEQUENCE).alias(_TRUNCATE)))
        states = states.withColumn(_TRUNCATE, _next_sequence(_TRUNCATE, SEQUENCE))
        states = states.withColumn(_UNTIL, F.least(following, F.col(_TRUNCATE)))
    if ignore_null_updates:
        states = _fill_nulls_forward(states, keys, values)
    return _merge_adjacent_states(states.where(~F.col(_GONE)), keys, columns, tracked)


def fold_snapshots(
    rows: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    snapshot_by: str,
    tracked: Sequence[str] = (),
    scd_type: Literal[1, 2] = 1,
) -> DataFrame:
    """The same for full extracts, whose rows have the keys, the target's columns, CONTENT, and the snapshot they belong to.

    A key that is not in a snapshot is deleted at it. Of several rows of a key in one snapshot the content decides. A snapshot without a row
    is not seen. Each snapshot affects every key that was in the one before.
    """
    values = _non_key_columns(keys, columns)
    taken = F.col(f"`{snapshot_by}`")
    if scd_type == 1:
        last = rows.agg(F.max(taken).alias(_SNAPSHOT))
        latest = rows.crossJoin(last).where(taken == F.col(_SNAPSHOT))
        once = latest.groupBy(*_quote_columns(keys)).agg(F.max_by(_pack_values(values), CONTENT).alias(_VALUES))
        return once.select(*_unpack_target_columns(keys, columns))
    once = rows.groupBy(*_quote_columns(keys), taken.alias(SEQUENCE)).agg(F.max_by(_pack_values(values), CONTENT).alias(_VALUES))
    snapshots = rows.select(taken.alias(_SNAPSHOT)).distinct()
    following = snapshots.crossJoin(snapshots.agg(F.collect_set(_SNAPSHOT).alias(_UNTIL)))
    following = following.select(_SNAPSHOT, _next_sequence(_UNTIL, _SNAPSHOT).alias(_UNTIL))
    states = once.join(F.broadcast(following), F.col(SEQUENCE) == F.col(_SNAPSHOT))
    return _merge_adjacent_states(states, keys, columns, tracked)


def _merge_adjacent_states(states: DataFrame, keys: Sequence[str], columns: Sequence[str], tracked: Sequence[str]) -> DataFrame:
    """States of keys as intervals, each up to the next sequence; adjacent states with the same tracked values become one interval."""
    before = {name: F.lag(f"{_VALUES}.`{name}`").over(_key_window(keys)) for name in tracked if name not in keys}
    same = (F.col(f"{_VALUES}.`{name}`").eqNullSafe(value) for name, value in before.items())
    meets = F.lag(_UNTIL).over(_key_window(keys)).eqNullSafe(F.col(SEQUENCE))
    numbered = states.withColumn(_BEGINS, ~functools.reduce(lambda a, b: a & b, same, meets))
    numbered = numbered.withColumn(_INTERVAL, F.count_if(_BEGINS).over(_running_window(_key_window(keys))))
    intervals = numbered.groupBy(*_quote_columns([*keys, _INTERVAL])).agg(
        F.min(SEQUENCE).alias(START),
        F.max_by(_UNTIL, SEQUENCE).alias(END),
        F.max_by(_VALUES, SEQUENCE).alias(_VALUES),
    )
    return intervals.select(*_unpack_target_columns(keys, columns), START, END)


def _last_upsert_values(values: Sequence[str], ignore_null_updates: bool) -> Column:
    """The columns after the upserts of one sequence, the one with the highest content being the last of them."""
    if not ignore_null_updates:
        return F.max_by(_pack_values(values), CONTENT).alias(_VALUES)
    known = (F.max_by(f"`{name}`", F.when(F.col(f"`{name}`").isNotNull(), F.col(CONTENT))).alias(name) for name in values)
    return F.struct(F.lit(True).alias(_VALUES), *known).alias(_VALUES)


def _fill_nulls_forward(states: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """The states, with each NULL replaced by the value that the column had since the last delete or truncate."""
    # A truncate at a sequence comes before the upserts of that sequence: they begin from nothing.
    over = F.lag(_GONE).over(_key_window(keys)) | (F.lag(_TRUNCATE).over(_key_window(keys)) <= F.col(SEQUENCE))
    states = states.withColumn(_BEGINS, F.coalesce(over, F.lit(False)))
    states = states.withColumn(_LIFE, F.count_if(_BEGINS).over(_running_window(_key_window(keys))))
    life = _running_window(Window.partitionBy(*_quote_columns(keys), _LIFE).orderBy(SEQUENCE))
    known = (F.last(f"{_VALUES}.`{name}`", ignorenulls=True).over(life).alias(name) for name in values)
    return states.withColumn(_VALUES, F.struct(F.lit(True).alias(_VALUES), *known))


def _compute_last_known_values(changes: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """Of each key that is there, per column the last value that is not NULL since the last delete."""
    upsert = F.col(CHANGE) == UPSERT
    known = []
    for name in values:
        value = F.col(f"`{name}`")
        last = F.max_by(
            F.struct(F.col(SEQUENCE), value.alias("value")), F.when(upsert & value.isNotNull(), F.struct(SEQUENCE, CONTENT))
        )
        known.append(last.alias(f"_last_{name}"))
    found = changes.groupBy(*_quote_columns(keys)).agg(
        F.max(F.when(~upsert, F.col(SEQUENCE))).alias(_DELETED), F.max(F.when(upsert, F.col(SEQUENCE))).alias(_WRITTEN), *known
    )

    def stands(since: Column) -> Column:
        return since.isNotNull() & (F.col(_DELETED).isNull() | (since > F.col(_DELETED)))

    kept = (F.when(stands(F.col(f"`_last_{name}`.{SEQUENCE}")), F.col(f"`_last_{name}`.value")).alias(name) for name in values)
    return found.where(stands(F.col(_WRITTEN))).withColumn(_VALUES, F.struct(F.lit(True).alias(_VALUES), *kept))


def _next_sequence(all_of: str, after: str) -> Column:
    """The least of an array's sequences that is higher than a sequence; NULL where none is."""
    return F.array_min(F.filter(all_of, lambda one: one > F.col(after)))


def _pack_values(values: Iterable[str]) -> Column:
    """Columns packed into one, beside a constant, since a target may have nothing but its keys."""
    return F.struct(F.lit(True).alias(_VALUES), *_quote_columns(values))


def _unpack_target_columns(keys: Sequence[str], columns: Sequence[str]) -> list[Column]:
    """The target's columns of a frame that has the keys and _VALUES, in the target's order; a key that it does not name comes first."""
    names = [*(key for key in keys if key not in columns), *columns]
    return [F.col(f"`{name}`") if name in keys else F.col(f"{_VALUES}.`{name}`").alias(name) for name in names]


def _non_key_columns(keys: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name not in keys]


def _key_window(keys: Sequence[str]) -> WindowSpec:
    return Window.partitionBy(*_quote_columns(keys)).orderBy(SEQUENCE)


def _running_window(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _quote_columns(names: Iterable[str]) -> list[Column]:
    return [F.col(f"`{name}`") for name in names]
