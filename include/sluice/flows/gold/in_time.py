"""Computes how far a change reaches in time, as ranges: from changed rows to rows of the view, and from these to the input rows that they need.

A view's column is a DATE, counted in days, or a TIMESTAMP, counted in microseconds. If the changed row has a day and the view an instant,
or the other way round, the whole day counts. Input rows whose time is NULL are always read, because nothing bounds what they touch.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sluice.declare.datasets.materialized_views import MaterializedView, TimeReach
from sluice.declare.pipeline import parse_duration
from sluice.declare.quoting import quote_identifier
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.flows.writing.ranges import MOST, range_condition_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Span = tuple[int, int]
"""The first and last day or microsecond since 1970-01-01, both inclusive."""
Spans = tuple[Span, ...]

_DAY = 86_400_000_000
_HOUR = 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = (date.min - _EPOCH.date()).days + 1
_LAST = (date.max - _EPOCH.date()).days - 1
_KINDS = ("date", "timestamp")
_DAY_OF = re.compile(r"(?i)(?:to_date|date)\((?P<column>`?\w+`?)\)|cast\((?P<cast>`?\w+`?) as date\)")


@dataclass(frozen=True)
class InTime:
    """One input's reach in a column of the view.

    expression: over the input; gives the changed row's day or instant d. kind: the type of the view's column, date or timestamp. of: the
    type of the expression. before, after: in days for a date, else in microseconds; the view's column is from d - before to d + after.
    """

    column: str
    expression: str
    kind: str
    of: str
    before: int = 0
    after: int = 0

    @property
    def tick(self) -> Column:
        """Returns a changed row's tick: the day of d, or its hour if view and input both have instants. NULL if d is NULL."""
        if self._daily:
            return F.unix_date(F.expr(self.expression).cast("date")).cast("bigint")
        micros = F.unix_micros(F.expr(self.expression))
        # Made exactly divisible first: a quotient of DOUBLEs could come out as the next hour's.
        return ((micros - F.pmod(micros, F.lit(_HOUR))) / _HOUR).cast("bigint")

    def touched(self, ticks: Iterable[int]) -> Spans:
        """Returns the view's days or microseconds that changes at these ticks touch."""
        if self.kind == "date":
            return merge_time_spans((tick - self.before, tick + self.after) for tick in ticks)
        size = _DAY if self._daily else _HOUR
        return merge_time_spans((tick * size - self.before, (tick + 1) * size - 1 + self.after) for tick in ticks)

    def needed(self, spans: Spans) -> Column:
        """Returns the condition on the input's rows that the view's rows in these spans are made of. Rows without a time are among them."""
        wide = merge_time_spans((first - self.after, last + self.before) for first, last in spans)
        if self.kind == "date" and self.of == "timestamp":
            wide = tuple((first * _DAY, (last + 1) * _DAY - 1) for first, last in wide)
        if self.kind == "timestamp" and self.of == "date":
            wide = merge_time_spans((first // _DAY, last // _DAY) for first, last in wide)
        literal = time_span_literals(self.of, wide)
        given = f"({self.expression})"
        day = _DAY_OF.fullmatch(self.expression)
        # Delta counts the NULLs of a column, not of its day; and a cast that fails gives an error, not NULL.
        nothing = f"{day['column'] or day['cast']} IS NULL" if day else f"{given} IS NULL"
        return F.lit(True) if literal is None else F.expr(f"({range_condition_sql(given, literal)} OR {nothing})")

    @property
    def _daily(self) -> bool:
        return self.kind == "date" or self.of == "date"


def merge_time_spans(spans: Iterable[Span], most: int = MOST) -> Spans:
    """Returns the spans in order, with adjacent ones joined. If there are too many, those with the smallest gaps are joined, too."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    gaps = [(after[0] - before[1], position) for position, (before, after) in enumerate(itertools.pairwise(joined), 1)]
    borders = [0, *sorted(position for _, position in sorted(gaps, reverse=True)[: most - 1]), len(joined)]
    return tuple((joined[start][0], joined[end - 1][1]) for start, end in itertools.pairwise(borders) if end > start)


def time_span_literals(kind: str, spans: Spans) -> tuple[tuple[str, str], ...] | None:
    """Returns the spans as SQL literals, or None if one lies outside the years 1 to 9999: then there is no bound."""
    unit = 1 if kind == "date" else _DAY
    if any(first // unit < _FIRST or last // unit > _LAST for first, last in spans):
        return None
    return tuple((_time_literal(kind, first), _time_literal(kind, last)) for first, last in spans)


def time_spans_condition(column: str, kind: str, spans: Spans) -> Column:
    """Returns the condition that a view's column is in one of the spans, written so that Delta can skip files by it."""
    literal = time_span_literals(kind, spans)
    return F.lit(True) if literal is None else F.expr(range_condition_sql(quote_identifier(column), literal))


def resolve_time_reaches(
    view: MaterializedView[Any], inputs: Mapping[str, DataFrame], result: StructType, found: Mapping[str, Mapping[str, str]]
) -> dict[str, InTime]:
    """Returns, by input, its reach in time, for a view that declares one. inputs: frames with their columns; no row of them is read.

    found: by input, the expressions for the view's columns that bound it by themselves. If an input without a declared reach has the column
    in this way, that bounds it without widening. Raises DeclarationError if a reach does not fit the view or its input.
    """
    if not view.reach:
        return {}
    column = next(iter(view.reach.values())).column
    kind = _resolve_reach_column_type(view, column, result)
    reaches: dict[str, InTime] = {}
    for name in view.reads:
        declared = view.reach.get(name)
        if declared is None and column in found[name]:
            declared = TimeReach(column, input=found[name][column])
        if declared is not None:
            of = _resolve_reach_input_type(view, name, declared, inputs[name])
            before, after = (_interval_length(kind, interval) for interval in (declared.before, declared.after))
            reaches[name] = InTime(column, declared.input, kind, of, before, after)
    return reaches


def _resolve_reach_column_type(view: MaterializedView[Any], column: str, result: StructType) -> str:
    owner = f"View '{view.name}': reach names '{column}'"
    if column not in result.names:
        raise DeclarationError(f"{owner}, no column of it.{nearest_name_hint(column, result.names)}")
    kind = str(result[column].dataType.typeName())
    if kind not in _KINDS:
        raise DeclarationError(f"{owner}, which is {kind.upper()}. A reach in time is in a DATE or TIMESTAMP column.")
    if column.lower() in {name.lower() for name in view.private}:
        raise DeclarationError(f"{owner}, which is personal: its values would stand in query plans. Use a column that is not.")
    return kind


def _resolve_reach_input_type(view: MaterializedView[Any], name: str, reach: TimeReach, frame: DataFrame) -> str:
    owner = f"View '{view.name}': its reach of '{name}'"
    try:
        given = F.expr(reach.input)
        # Tried as a condition, too: an aggregate has a type, but no value of a row.
        kind = str(frame.where(given.isNotNull()).select(given).schema[0].dataType.typeName())
    except PySparkException as error:
        columns = ", ".join(frame.columns)
        said = str(error).splitlines()[0].split(" SQLSTATE")[0]
        raise DeclarationError(
            f"{owner} cannot be written over it as {reach.input}: {said} Say input=, an expression over its columns: {columns}."
        ) from None
    if kind not in _KINDS:
        raise DeclarationError(f"{owner}, {reach.input}, is {kind.upper()}. It must give a DATE or a TIMESTAMP.")
    return kind


def _interval_length(kind: str, interval: str) -> int:
    """Returns the length in whole days for a date, with a part of a day counted as one, else in microseconds."""
    exact = parse_duration(interval) // timedelta(microseconds=1)
    return -(-exact // _DAY) if kind == "date" else exact


def _time_literal(kind: str, at: int) -> str:
    if kind == "date":
        return f"DATE'{_EPOCH.date() + timedelta(days=at)}'"
    return f"TIMESTAMP'{(_EPOCH + timedelta(microseconds=at)).isoformat(' ', 'microseconds')}'"


def union_time_spans(spans: Sequence[Spans]) -> Spans:
    """Returns all spans together."""
    return merge_time_spans(itertools.chain.from_iterable(spans))
