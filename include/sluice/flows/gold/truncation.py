"""Instants truncated to an hour, a day or a window: a range of the truncated value gives a range of the column, by which files are skipped.

Delta itself does this for `to_date` only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.flows.writing.ranges import Limits, range_condition_sql

if TYPE_CHECKING:
    from pyspark.sql import Column

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
# As Spark writes the start of a tumbling window, or its end.
_START = (
    r"\(\(unix_micros\((?P<column>`?\w+`?)\) - CASE WHEN \(\(\(unix_micros\((?P=column)\) - (?P<offset>-?\d+)L\) % (?P<size>\d+)L\)"
    r" < 0L\) THEN \(\(\(unix_micros\((?P=column)\) - (?P=offset)L\) % (?P=size)L\) \+ (?P=size)L\)"
    r" ELSE \(\(unix_micros\((?P=column)\) - (?P=offset)L\) % (?P=size)L\) END\) - 0L\)"
)
_WINDOW = re.compile(
    rf"timestamp_micros\((?:{_START}|\({_START.replace('?P<', '?P<e').replace('?P=', '?P=e')} \+ (?P=esize)L\))\)"
)


def truncation_range_condition(limits: Limits, expressions: Mapping[str, str]) -> Column:
    """The condition that instants are close enough to the ranges for their truncated values to be in them."""
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
    """The column that an expression truncates, and the seconds by which the two can differ at most; None for any other expression."""
    cut, window = _CUT.fullmatch(expression), _WINDOW.fullmatch(expression)
    if cut is not None:
        seconds = _SECONDS.get(cut["unit"].lower())
        return None if seconds is None else (cut["column"], seconds)
    if window is None:
        return None
    column, size = window["column"] or window["ecolumn"], window["size"] or window["esize"]
    return column, -(-int(size) // 1_000_000)
