"""Bringing a table to what it should be, touching only what differs: no difference, no commit.

The difference is made first and then merged. A MERGE that does the comparing rewrites every file with a match, equal or not. The
merge's condition holds bounds of columns with statistics only, so that few files are read and no personal value gets into the history.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from sluice.errors import SluiceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OPERATION = "_operation"
INSERT, UPDATE, DELETE, CONFLICT = "I", "U", "D", "X"


@dataclass(frozen=True)
class Changes:
    """How many rows a merge inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


def same(left: Sequence[Column], right: Sequence[Column]) -> Column:
    """Whether two rows of columns are equal, NULLs being equal to each other."""
    return functools.reduce(lambda a, b: a & b, (x.eqNullSafe(y) for x, y in zip(left, right, strict=True)))


def beside(new: DataFrame, old: DataFrame, keys: Sequence[str]) -> DataFrame:
    """New and old rows of a key beside each other: structs `new` and `old`, NULL where there is none."""
    left = new.select(F.struct(*_quoted(new.columns)).alias("new"))
    right = old.select(F.struct(*_quoted(old.columns)).alias("old"))
    condition = same([F.col(f"new.`{key}`") for key in keys], [F.col(f"old.`{key}`") for key in keys])
    return left.join(right, condition, "full_outer")


def merge(
    session: SparkSession,
    path: str,
    operations: DataFrame,
    keys: Sequence[str],
    bounding: Sequence[str],
    conflict: str = "",
) -> Changes:
    """Apply rows with an operation I, U or D to a table. bounding: keys with statistics, which limit the files that are read.

    Raises SluiceError where a key comes twice, and with the text `conflict` where an operation is X.
    """
    with kept(operations) as kept_operations:
        counted, limits = _counted(kept_operations, keys, bounding, conflict)
        if not counted:
            return counted
        on = " AND ".join(
            [f"t.`{key}` <=> s.`{key}`" for key in keys] + [f"t.`{name}` {limit}" for name, limit in limits.items()]
        )
        values = {f"`{name}`": f"s.`{name}`" for name in operations.columns if name != OPERATION}
        merging = DeltaTable.forPath(session, path).alias("t").merge(kept_operations.alias("s"), on)
        if counted.deleted:
            merging = merging.whenMatchedDelete(f"s.{OPERATION} = '{DELETE}'")
        if counted.updated:
            merging = merging.whenMatchedUpdate(f"s.{OPERATION} = '{UPDATE}'", set=dict(values))
        if counted.inserted:
            merging = merging.whenNotMatchedInsert(f"s.{OPERATION} = '{INSERT}'", values=dict(values))
        merging.execute()
        return counted


def bounds(frame: DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """By column, a range that every value of the frame is in, as in "BETWEEN 1 AND 9". A column with a NULL has none.

    Of an empty frame no value is in the range.
    """
    if not columns:
        return {}
    row = frame.agg(F.count("*").alias("rows"), *_extremes(columns)).first()
    found: dict[str, Any] = row.asDict() if row else {}
    return _ranges(found, columns) if found["rows"] else {columns[0]: "IN (NULL)"}


def within(ranges: Mapping[str, str], expressions: Mapping[str, str] | None = None) -> Column:
    """The condition that columns, or the expressions given for them, are in their ranges. True where there is none."""
    named = expressions if expressions is not None else {name: f"`{name}`" for name in ranges}
    conditions = [F.expr(f"({named[name]}) {limit}") for name, limit in ranges.items() if name in named]
    return functools.reduce(lambda a, b: a & b, conditions, F.lit(True))


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame computed once: what is counted is then what is written."""
    persisted = frame.persist()
    try:
        yield persisted
    finally:
        persisted.unpersist()


def _counted(
    operations: DataFrame, keys: Sequence[str], bounding: Sequence[str], conflict: str
) -> tuple[Changes, dict[str, str]]:
    kinds = [F.count_if(F.col(OPERATION) == kind).alias(f"is_{kind}") for kind in (INSERT, UPDATE, DELETE, CONFLICT)]
    distinct = F.count_distinct(F.struct(*_quoted(keys))).alias("distinct")
    row = operations.agg(*kinds, F.count("*").alias("rows"), distinct, *_extremes(bounding)).first()
    found: dict[str, Any] = row.asDict() if row else {}
    if found["is_X"]:
        raise SluiceError(f"{conflict} {found['is_X']} rows are concerned. The table was not changed.")
    if found["rows"] != found["distinct"]:
        raise SluiceError(
            f"{found['rows'] - found['distinct']} rows have a key ({', '.join(keys)}) that another row has too. "
            "Declare keys that are unique in the result. The table was not changed."
        )
    return Changes(found["is_I"], found["is_U"], found["is_D"]), _ranges(found, bounding)


def _extremes(columns: Sequence[str]) -> list[Column]:
    found = []
    for position, name in enumerate(columns):
        column = F.col(f"`{name}`")
        found += [F.min(column).alias(f"low_{position}"), F.max(column).alias(f"high_{position}")]
        found.append(F.count_if(column.isNull()).alias(f"nulls_{position}"))
    return found


def _ranges(found: dict[str, Any], columns: Sequence[str]) -> dict[str, str]:
    ranges = {}
    for position, name in enumerate(columns):
        low, high = _literal(found.get(f"low_{position}")), _literal(found.get(f"high_{position}"))
        if low and high and not found.get(f"nulls_{position}"):
            ranges[name] = f"BETWEEN {low} AND {high}"
    return ranges


def _literal(value: object) -> str | None:
    if isinstance(value, datetime):
        return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return str(value)


def _quoted(names: Sequence[str]) -> list[Column]:
    return [F.col(f"`{name}`") for name in names]
