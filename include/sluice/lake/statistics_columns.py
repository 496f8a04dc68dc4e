"""Which columns of a table have least and greatest values in its log."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import DataType, DecimalType, StructType

_MOST_STATISTICS_COLUMNS = 32
_SAFE_DIGITS = 15
"""How many digits of a decimal a floating-point number holds."""
_WITH_STATISTICS = (
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
)


def choose_statistics_columns(schema: StructType, private: Iterable[str], first: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the columns that get statistics: those named first, then the others in order; never personal ones, and at most 32.

    Fractions get them only if they are named first: with such statistics only Spark can write the table.
    """
    hidden = {name.lower() for name in private}  # Spark ignores case
    fit = [f for f in schema if f.dataType.typeName().split("(")[0] in _WITH_STATISTICS and f.name.lower() not in hidden]
    names = [field.name for field in fit]
    others = [field.name for field in fit if not has_misread_statistics(field.dataType)]
    ordered = dict.fromkeys([*(name for name in first if name in names), *others])
    return tuple(list(ordered)[:_MOST_STATISTICS_COLUMNS])


def has_misread_statistics(kind: DataType) -> bool:
    """Whether delta-rs writes least and greatest values of a type that would make Spark miss rows.

    It leaves NaN out of them and writes decimals as floating-point numbers. Source: deltalake 1.6.6, tried.
    """
    return kind.typeName() in ("float", "double") or (isinstance(kind, DecimalType) and kind.precision > _SAFE_DIGITS)
