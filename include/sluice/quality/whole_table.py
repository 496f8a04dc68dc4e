"""Evaluates expectations on a whole table after its flow. They say how many rows fail, never which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import reduce
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from sluice import delta_log
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.pipeline import parse_duration
from sluice.declare.quality.table_expectations import Fresh, References, RowCount, TableExpectation, Unique
from sluice.declare.quoting import quote_column, quote_columns
from sluice.errors import nearest_name_hint
from sluice.lake import file_statistics, log, table_frames
from sluice.lake.table_frames import compute_aggregates
from sluice.printable import count_noun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Schemas = Mapping[str, StructType]


@dataclass(frozen=True)
class TableRuleFinding:
    """The result of one rule. met: None if nothing can be said yet. count: how many rows fail, or 1 if the rule is not about rows.

    text: the reason in words, without a value. rows: the table's number of rows, if it was needed.
    """

    met: bool | None
    count: int = 0
    text: str = ""
    rows: int | None = None


@dataclass(frozen=True)
class WholeTable:
    """A table as it is now. other: the path of the table that a rule refers to. earlier: this table's row counts after earlier runs."""

    session: SparkSession
    path: str
    other: str | None = None
    earlier: Sequence[int] = ()
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


def evaluate_table_rule(rule: TableExpectation, whole: WholeTable) -> TableRuleFinding:
    """Evaluates a rule. Row counts and latest values come from the log if it has them, otherwise from one Spark job."""
    return TABLE_RULE_HANDLERS[type(rule)].evaluate(rule, whole)


def find_table_rule_mistake(rule: TableExpectation, schemas: Schemas, table: str) -> str | None:
    """Returns why a rule cannot work on a table with these columns, or None. schemas: by table, as far as they are known."""
    return TABLE_RULE_HANDLERS[type(rule)].find_mistake(rule, schemas, table)


def _evaluate_unique(rule: Unique, whole: WholeTable) -> TableRuleFinding:
    keyed = _select_keys(_rows_without_null(table_frames.read_table(whole.session, whole.path), rule.columns), rule.columns)
    counted = keyed.groupBy(*keyed.columns).agg(F.count(F.lit(1)).alias("rows"))
    count = int(compute_aggregates(counted.where("rows > 1"), F.sum("rows").alias("rows"))["rows"] or 0)
    return TableRuleFinding(
        not count,
        count,
        f"{count_noun(count, 'row', 'shares its', 'share their')} {' and '.join(rule.columns)} with another" if count else "",
    )


def _evaluate_row_count(rule: RowCount, whole: WholeTable) -> TableRuleFinding:
    state = log.read_table_state(whole.path)
    counted = state.rows if state and state.rows is not None else table_frames.read_table(whole.session, whole.path).count()
    usual = median(whole.earlier) if whole.earlier else 0
    times = [None if limit is None or not usual else limit * usual for limit in (rule.least_times, rule.most_times)]
    for least, most in ((rule.at_least, rule.at_most), (times[0], times[1])):
        if least is not None and counted < least:
            return TableRuleFinding(
                False,
                _rounded_excess(counted, least),
                f"it has {count_noun(counted, 'row')}, at least {least:g} are expected",
                counted,
            )
        if most is not None and counted > most:
            return TableRuleFinding(
                False,
                _rounded_excess(most, counted),
                f"it has {count_noun(counted, 'row')}, at most {most:g} are expected",
                counted,
            )
    if not usual and (rule.least_times, rule.most_times) != (None, None):
        return TableRuleFinding(None, 0, "no earlier run to compare with", counted)
    return TableRuleFinding(True, rows=counted)


def _rounded_excess(low: float, high: float) -> int:
    return max(round(high - low), 1)


def _evaluate_freshness(rule: Fresh, whole: WholeTable) -> TableRuleFinding:
    known, latest = file_statistics.read_highest_value(whole.path, rule.column)
    since = whole.now - parse_duration(rule.within)
    older = (
        (None if latest is None else _as_utc_instant(latest) < since) if known else _is_highest_value_before(rule, whole, since)
    )
    if older is None:
        return TableRuleFinding(False, 1, f"it has no value in '{rule.column}'")
    if older:
        return TableRuleFinding(False, 1, f"its latest '{rule.column}' is older than {rule.within}")
    return TableRuleFinding(True)


def _is_highest_value_before(rule: Fresh, whole: WholeTable, instant: datetime) -> bool | None:
    """Compares in Spark: a date may lie beyond the years that Python knows. None if there is no value."""
    latest = F.max(quote_column(rule.column)).cast("timestamp")
    older: bool | None = compute_aggregates(
        table_frames.read_table(whole.session, whole.path), (latest < F.lit(instant)).alias("older")
    )["older"]
    return older


def _as_utc_instant(value: date | datetime) -> datetime:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def _evaluate_references(rule: References, whole: WholeTable) -> TableRuleFinding:
    here = _select_keys(_rows_without_null(table_frames.read_table(whole.session, whole.path), rule.columns), rule.columns)
    if whole.other is not None and delta_log.is_delta_table(whole.other):
        there = _select_keys(table_frames.read_table(whole.session, whole.other), rule.of_columns).distinct()
        here = here.join(there, here.columns, "left_anti")
    count = here.count()
    return TableRuleFinding(
        not count,
        count,
        f"{count_noun(count, 'row', 'has', 'have')} no row in '{rule.of}' by {' and '.join(rule.columns)}" if count else "",
    )


def _rows_without_null(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The rows without a NULL in any of these columns. `dropna` would drop NaN as well, and read a dot as a field."""
    return frame.where(reduce(Column.__and__, (column.isNotNull() for column in quote_columns(columns))))


def _select_keys(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """These columns alone, named by their position: no name of the table's can be taken for one of ours."""
    return frame.select(*(column.alias(f"key_{position}") for position, column in enumerate(quote_columns(columns))))


def _find_unknown_column(columns: Sequence[str], table: str, schemas: Schemas) -> str | None:
    if table not in schemas:
        return None
    names = delivered_columns(schemas[table].names)
    unknown = next((name for name in columns if name not in schemas[table].names), None)
    return f"it names '{unknown}', no column of '{table}'.{nearest_name_hint(unknown, names)}" if unknown else None


def _find_unique_mistake(rule: Unique, schemas: Schemas, table: str) -> str | None:
    return _find_unknown_column(rule.columns, table, schemas) or _find_incomparable_column(rule.columns, schemas[table])


def _find_row_count_mistake(rule: RowCount, schemas: Schemas, table: str) -> None:
    """Returns None: the rule names no column."""


def _find_freshness_mistake(rule: Fresh, schemas: Schemas, table: str) -> str | None:
    return _find_unknown_column((rule.column,), table, schemas) or _find_non_time_type(rule.column, schemas[table])


def _find_references_mistake(rule: References, schemas: Schemas, table: str) -> str | None:
    wrong = _find_unknown_column(rule.columns, table, schemas) or _find_unknown_column(rule.of_columns, rule.of, schemas)
    return wrong or (_find_type_mismatch(rule, schemas[table], schemas[rule.of]) if rule.of in schemas else None)


def _find_non_time_type(column: str, schema: StructType) -> str | None:
    kind = schema[column].dataType
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return None
    return f"'{column}' is of type {kind.simpleString().upper()}; freshness needs a DATE or TIMESTAMP."


def _find_incomparable_column(columns: Sequence[str], schema: StructType) -> str | None:
    wrong = next((name for name in columns if isinstance(schema[name].dataType, MapType)), None)
    return f"'{wrong}' is a MAP, and maps cannot be compared." if wrong else None


def _find_type_mismatch(rule: References, here: StructType, there: StructType) -> str | None:
    """Returns types that differ. A comparison would have to cast them, which fails at the first value that cannot be cast."""
    for one, other in zip(rule.columns, rule.of_columns, strict=True):
        kinds = here[one].dataType, there[other].dataType
        nested = isinstance(kinds[0], MapType | ArrayType | StructType)
        if nested or (kinds[0].typeName() != kinds[1].typeName() and not _are_whole_numbers(kinds)):
            types = " and ".join(kind.simpleString().upper() for kind in kinds)
            return f"'{one}' and '{rule.of}.{other}' are of types {types}, which are not compared. Give them one type."
    return None


def _are_whole_numbers(kinds: Sequence[Any]) -> bool:
    return all(kind.typeName() in ("byte", "short", "integer", "long") for kind in kinds)


@dataclass(frozen=True)
class TableRuleHandler:
    """The functions for one class of expectations: how it is evaluated, and why it cannot work on given columns."""

    evaluate: Callable[[Any, WholeTable], TableRuleFinding]
    find_mistake: Callable[[Any, Schemas, str], str | None]


TABLE_RULE_HANDLERS: dict[type[TableExpectation], TableRuleHandler] = {
    Unique: TableRuleHandler(_evaluate_unique, _find_unique_mistake),
    RowCount: TableRuleHandler(_evaluate_row_count, _find_row_count_mistake),
    Fresh: TableRuleHandler(_evaluate_freshness, _find_freshness_mistake),
    References: TableRuleHandler(_evaluate_references, _find_references_mistake),
}
