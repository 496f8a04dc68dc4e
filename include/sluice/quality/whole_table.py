"""Expectations on a whole table, looked at after its flow. They say how many rows are concerned and never which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.pipeline import duration
from sluice.declare.quality.whole_table import Fresh, References, RowCount, TableExpectation, Unique
from sluice.errors import nearest
from sluice.lake import log, tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class Finding:
    """What was found of one rule. met: None where nothing can be said yet. count: how many rows are concerned, 1 where it is no rows.

    text: why, in words, without a value. rows: how many rows the table has, where that was asked.
    """

    met: bool | None
    count: int = 0
    text: str = ""
    rows: int | None = None


@dataclass(frozen=True)
class Whole:
    """A table as it is now. other: where the table lies that a rule refers to. earlier: the rows that it had after runs before."""

    session: SparkSession
    path: str
    other: str | None = None
    earlier: Sequence[int] = ()
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


def look(rule: TableExpectation, whole: Whole) -> Finding:
    """Look at a rule. Counts of rows and latest values come from the log where it knows them, else from one Spark job."""
    match rule:
        case Unique():
            return _unique(rule, whole)
        case RowCount():
            return _row_count(rule, whole)
        case Fresh():
            return _fresh(rule, whole)
        case References():
            return _references(rule, whole)
    raise TypeError(f"{type(rule).__name__} is no expectation on a whole table")


def mistake(rule: TableExpectation, schemas: Mapping[str, StructType], table: str) -> str | None:
    """Why a rule cannot work on a table of these columns; None where it can. schemas: by table, as far as they are known."""
    match rule:
        case Unique(columns=columns):
            return _unknown(columns, table, schemas) or _incomparable(columns, schemas[table])
        case Fresh(column=column):
            return _unknown((column,), table, schemas) or _no_time(column, schemas[table])
        case References(columns=columns, of=of, of_columns=there):
            wrong = _unknown(columns, table, schemas) or _unknown(there, of, schemas)
            return wrong or (_mismatch(rule, schemas[table], schemas[of]) if of in schemas else None)
    return None


def _unique(rule: Unique, whole: Whole) -> Finding:
    keyed = _known(tables.read(whole.session, whole.path), rule.columns)
    again = keyed.groupBy(*keyed.columns).count().where("count > 1").agg(F.sum("count").alias("rows")).first()
    count = int(again.rows or 0) if again else 0
    return Finding(not count, count, f"{count} rows share their {' and '.join(rule.columns)} with another" if count else "")


def _row_count(rule: RowCount, whole: Whole) -> Finding:
    state = log.state(whole.path)
    counted = state.rows if state and state.rows is not None else tables.read(whole.session, whole.path).count()
    usual = median(whole.earlier) if whole.earlier else 0
    times = [None if limit is None or not usual else limit * usual for limit in (rule.least_times, rule.most_times)]
    for least, most in ((rule.at_least, rule.at_most), (times[0], times[1])):
        if least is not None and counted < least:
            return Finding(False, _between(counted, least), f"it has {counted} rows, at least {least:g} are expected", counted)
        if most is not None and counted > most:
            return Finding(False, _between(most, counted), f"it has {counted} rows, at most {most:g} are expected", counted)
    if not usual and (rule.least_times, rule.most_times) != (None, None):
        return Finding(None, 0, "no earlier run to compare with", counted)
    return Finding(True, rows=counted)


def _between(low: float, high: float) -> int:
    return max(round(high - low), 1)


def _fresh(rule: Fresh, whole: Whole) -> Finding:
    known, latest = log.latest(whole.path, rule.column)
    if not known:
        row = tables.read(whole.session, whole.path).agg(F.max(F.col(f"`{rule.column}`")).alias("latest")).first()
        latest = row.latest if row else None
    if latest is None:
        return Finding(False, 1, f"it has no value in '{rule.column}'")
    if whole.now - _instant(latest) > duration(rule.within):
        return Finding(False, 1, f"its latest '{rule.column}' is older than {rule.within}")
    return Finding(True)


def _instant(value: date | datetime) -> datetime:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def _references(rule: References, whole: Whole) -> Finding:
    here = _known(tables.read(whole.session, whole.path), rule.columns)
    if whole.other is not None and log.exists(whole.other):
        there = tables.read(whole.session, whole.other).select(*_quoted(rule.of_columns)).distinct()
        pairs = zip(rule.columns, rule.of_columns, strict=True)
        same = [F.col(f"here.`{one}`") == F.col(f"there.`{other}`") for one, other in pairs]
        here = here.alias("here").join(there.alias("there"), same, "left_anti")
    count = here.count()
    return Finding(not count, count, f"{count} rows have no row in '{rule.of}' by {' and '.join(rule.columns)}" if count else "")


def _known(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """These columns of the rows that have no NULL among them."""
    return frame.select(*_quoted(columns)).dropna("any")


def _quoted(columns: Sequence[str]) -> list[Column]:
    return [F.col(f"`{name}`") for name in columns]


def _unknown(columns: Sequence[str], table: str, schemas: Mapping[str, StructType]) -> str | None:
    if table not in schemas:
        return None
    names = delivered_columns(schemas[table].names)
    unknown = next((name for name in columns if name not in schemas[table].names), None)
    return f"it names '{unknown}', no column of '{table}'.{nearest(unknown, names)}" if unknown else None


def _no_time(column: str, schema: StructType) -> str | None:
    kind = schema[column].dataType
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return None
    return f"'{column}' is of type {kind.simpleString().upper()}; freshness is told by a DATE or TIMESTAMP."


def _incomparable(columns: Sequence[str], schema: StructType) -> str | None:
    wrong = next((name for name in columns if isinstance(schema[name].dataType, MapType)), None)
    return f"'{wrong}' is a MAP, and maps cannot be compared." if wrong else None


def _mismatch(rule: References, here: StructType, there: StructType) -> str | None:
    """Types that are not the same would be cast to be compared, and fail on the first value that cannot be."""
    for one, other in zip(rule.columns, rule.of_columns, strict=True):
        kinds = here[one].dataType, there[other].dataType
        nested = isinstance(kinds[0], MapType | ArrayType | StructType)
        if nested or (kinds[0].typeName() != kinds[1].typeName() and not _numbers(kinds)):
            types = " and ".join(kind.simpleString().upper() for kind in kinds)
            return f"'{one}' and '{rule.of}.{other}' are of types {types}, which are not compared. Give them one type."
    return None


def _numbers(kinds: Sequence[Any]) -> bool:
    return all(kind.typeName() in ("byte", "short", "integer", "long") for kind in kinds)
