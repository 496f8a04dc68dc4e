"""Computes the ranges of a frame's values, as SQL conditions on a table that let Delta skip every file that cannot match.

For dates and instants the days are listed as a few ranges: with one wide range from the first to the last, a few late rows would make
everything between be read. Values stand in plans and in a table's history, so personal columns have no ranges.

A range of an instant truncated to an hour, a day or a window gives a range of the column. Delta itself does this only for `to_date`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from sluice.declare.lazy_spark import WHOLE_NUMBER_TYPES
from sluice.declare.quoting import quote_column, quote_identifier
from sluice.declare.sql.schema import sql_literal
from sluice.lake.table_frames import compute_aggregates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Ranges = tuple[tuple[str, str], ...]
"""Literals, low and high, both inclusive, in order. Empty if no value is in range."""
Limits = Mapping[str, Ranges]
"""The ranges by column. A missing column may have any value."""

MOST = 30
"""How many ranges a column has at most. The closest are joined."""
_MOST_TEXTS = 1_000
_EPOCH = date(1970, 1, 1)
_FIRST, _LAST = (date.min - _EPOCH).days, (date.max - _EPOCH).days
_DAILY = ("date", "timestamp")
_DAY = 86_400
_SECONDS = {
    "second": 1,
    "minute": 60,
    "hour": 3_600,
    "day": _DAY,
    "dd": _DAY,
    "week": 7 * _DAY,
    "month": 31 * _DAY,
    "mon": 31 * _DAY,
    "mm": 31 * _DAY,
    "quarter": 92 * _DAY,
    "year": 366 * _DAY,
    "yyyy": 366 * _DAY,
    "yy": 366 * _DAY,
}
_CUT = re.compile(r"date_trunc\('(?P<unit>\w+)', (?P<column>`?\w+`?)\)")
# This is how Spark writes the start or the end of a tumbling window.
_START = (
    r"\(\(unix_micros\((?P<column>`?\w+`?)\) - CASE WHEN \(\(\(unix_micros\((?P=column)\) - (?P<offset>-?\d+)L\) % (?P<size>\d+)L\)"
    r" < 0L\) THEN \(\(\(unix_micros\((?P=column)\) - (?P=offset)L\) % (?P=size)L\) \+ (?P=size)L\)"
    r" ELSE \(\(unix_micros\((?P=column)\) - (?P=offset)L\) % (?P=size)L\) END\) - 0L\)"
)
_WINDOW = re.compile(
    rf"timestamp_micros\((?:{_START}|\({_START.replace('?P<', '?P<e').replace('?P=', '?P=e')} \+ (?P=esize)L\))\)"
)


@dataclass(frozen=True)
class BoundingColumns:
    """The columns by which files are skipped. listed: those whose integers or texts are few enough to list, such as partition columns."""

    schema: StructType
    columns: Sequence[str]
    listed: Collection[str] = ()

    @property
    def has_whole_numbers(self) -> bool:
        """Whether a column of whole numbers is among them."""
        return any(self._kind(name) in WHOLE_NUMBER_TYPES for name in self.columns)

    def aggregates(self, where: Column | None = None) -> list[Column]:
        """Returns the aggregates to compute over a frame in one pass. where: which of its rows count."""
        found = []
        for position, name in enumerate(self.columns):
            column = quote_column(name) if where is None else F.when(where, quote_column(name))
            absent = column.isNull() if where is None else where & quote_column(name).isNull()
            # As text: Python has no date after 9999, and a text needs no zone.
            found += [
                F.min(column).cast("string").alias(f"_low_{position}"),
                F.max(column).cast("string").alias(f"_high_{position}"),
            ]
            found.append(F.count_if(absent).alias(f"_nulls_{position}"))
            if self._lists(name):
                value = F.unix_date(column.cast("date")) if self._kind(name) in _DAILY else column
                found.append(F.collect_set(value).alias(f"_values_{position}"))
        return found

    def limits(self, found: Mapping[str, Any]) -> Limits:
        """Returns the limits from the computed aggregates. A column with a NULL has none. Without any row, nothing is in range."""
        limits: dict[str, Ranges] = {}
        for position, name in enumerate(self.columns):
            low, high = found[f"_low_{position}"], found[f"_high_{position}"]
            if found[f"_nulls_{position}"]:
                continue
            if low is None:
                return {name: ()}
            values = found.get(f"_values_{position}") or ()
            if self._kind(name) != "string":
                limits[name] = _literal_ranges(self._kind(name), low, high, group_into_ranges(sorted(values)))
            elif values and len(values) <= _MOST_TEXTS:
                limits[name] = tuple((text, text) for text in sorted(map(sql_literal, values)))
        return limits

    def integer_ends(self, found: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Returns, from the computed aggregates, the least and the greatest value of each column of whole numbers without NULL."""
        return {
            name: (int(found[f"_low_{position}"]), int(found[f"_high_{position}"]))
            for position, name in enumerate(self.columns)
            if self._kind(name) in WHOLE_NUMBER_TYPES
            and not found[f"_nulls_{position}"]
            and found[f"_low_{position}"] is not None
        }

    def ranges_of_rows(self, rows: pa.Table) -> Limits:
        """Returns the ranges of the columns of whole numbers, for rows that are in memory."""
        return {name: ((str(low), str(high)),) for name, (low, high) in self.integer_ends_of_rows(rows).items()}

    def integer_ends_of_rows(self, rows: pa.Table) -> dict[str, tuple[int, int]]:
        """Returns the least and the greatest value of each column of whole numbers, for rows that are in memory."""
        plain = [
            name
            for name in self.columns
            if self._kind(name) in WHOLE_NUMBER_TYPES and rows.num_rows and not rows[name].null_count
        ]
        ends = {name: pc.min_max(rows[name]).as_py() for name in plain}
        return {name: (found["min"], found["max"]) for name, found in ends.items()}

    def _kind(self, name: str) -> str:
        return str(self.schema[name].dataType.typeName())

    def _lists(self, name: str) -> bool:
        return self._kind(name) in _DAILY or name in self.listed


def compute_value_ranges(frame: DataFrame, bounding: BoundingColumns) -> Limits:
    """Returns, by column, ranges that hold every value of the frame."""
    if not bounding.columns:
        return {}
    return bounding.limits(compute_aggregates(frame, *bounding.aggregates()))


def range_condition_sql(expression: str, ranges: Ranges) -> str:
    """Returns the condition that an expression is in one of the ranges, in a form by which Delta skips files."""
    parts = [
        f"{expression} = {low}" if low == high else f"({expression} >= {low} AND {expression} <= {high})" for low, high in ranges
    ]
    return f"({' OR '.join(parts)})" if parts else "false"


def limits_condition(limits: Limits, expressions: Mapping[str, str] | None = None) -> Column:
    """Returns the condition that columns, or the expressions given for them, are in their ranges. True if there are none."""
    named = expressions if expressions is not None else {name: quote_identifier(name) for name in limits}
    conditions = [F.expr(range_condition_sql(f"({named[name]})", ranges)) for name, ranges in limits.items() if name in named]
    return functools.reduce(lambda a, b: a & b, conditions, F.lit(True))


def group_into_ranges(values: Sequence[int], most: int = MOST) -> list[tuple[int, int]]:
    """Groups sorted integers into ranges: neighbours together and, if these are too many, those with the smallest gaps between them."""
    gaps = [(after - before, position) for position, (before, after) in enumerate(itertools.pairwise(values), 1)]
    widest = sorted((gap for gap in gaps if gap[0] > 1), reverse=True)[: most - 1]
    borders = [0, *sorted(position for _, position in widest), len(values)]
    return [(values[start], values[end - 1]) for start, end in itertools.pairwise(borders) if end > start]


def _literal_ranges(kind: str, low: str, high: str, groups: Sequence[tuple[int, int]]) -> Ranges:
    if kind not in _DAILY:
        return tuple((str(first), str(last)) for first, last in groups) or ((low, high),)
    word = kind.upper()
    if not groups or groups[0][0] < _FIRST or groups[-1][1] > _LAST:
        return ((f"{word}'{low}'", f"{word}'{high}'"),)
    ends = ("", "") if kind == "date" else (" 00:00:00", " 23:59:59.999999")
    days = [[f"{_EPOCH + timedelta(days=day)}{end}" for day, end in zip(group, ends, strict=True)] for group in groups]
    days[0][0], days[-1][1] = low, high
    return tuple((f"{word}'{first}'", f"{word}'{last}'") for first, last in days)


def truncation_range_condition(limits: Limits, expressions: Mapping[str, str]) -> Column:
    """Returns the condition that instants are close enough to the ranges for their truncated values to lie in them."""
    found = [F.lit(True)]
    for name, ranges in limits.items():
        cut = parse_truncation(expressions[name]) if name in expressions else None
        if cut is not None:
            column, seconds = cut
            size = f"INTERVAL '{seconds}' SECOND"
            found.append(
                F.expr(range_condition_sql(column, tuple((f"({low} - {size})", f"({high} + {size})") for low, high in ranges)))
            )
    return functools.reduce(lambda a, b: a & b, found)


def parse_truncation(expression: str) -> tuple[str, int] | None:
    """Returns the column that an expression truncates, and by how many seconds the two differ at most. None for any other expression."""
    cut, window = _CUT.fullmatch(expression), _WINDOW.fullmatch(expression)
    if cut is not None:
        seconds = _SECONDS.get(cut["unit"].lower())
        return None if seconds is None else (cut["column"], seconds)
    if window is None:
        return None
    column, size = window["column"] or window["ecolumn"], window["size"] or window["esize"]
    return column, -(-int(size) // 1_000_000)
