"""Expressions that give a value for every row: of a transform's own, those may be asked of rows that it filters out first.

A text that is no number is cast in vain, and fails the query, whether or not the transform would have left its row out. What bounds a
view's recompute is asked of all changed rows and of all rows of an input, so what can fail is no bound. Known are the common ones; of
all others it is taken that they can fail, which costs time and no rows.
"""

from __future__ import annotations

from typing import Any

from sluice.flows import plans

_TOTAL = frozenset({
    *("AttributeReference", "Literal", "KnownNullable", "KnownNotNull", "GetStructField", "NormalizeNaNAndZero"),
    *("KnownFloatingPointNormalized", "Coalesce", "If", "CaseWhen", "IsNull", "IsNotNull", "And", "Or", "Not", "In", "InSet"),
    *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
    *("TruncTimestamp", "TruncDate", "Year", "YearOfWeek", "Quarter", "Month", "WeekOfYear", "DayOfYear", "DayOfMonth"),
    *("DayOfWeek", "WeekDay", "Hour", "Minute", "Second", "LastDay", "DateAdd", "DateSub", "UnixDate", "UnixMicros"),
    *("UnixMillis", "UnixSeconds"),
    *("Upper", "Lower", "StringTrim", "StringTrimLeft", "StringTrimRight", "Concat", "Substring", "Length", "StringReplace"),
    *("StartsWith", "EndsWith", "Contains", "Murmur3Hash", "XxHash64"),
})


def total(expression: Any) -> bool:
    """Whether an expression of the JVM's gives a value, or NULL, whatever its columns hold."""
    kind = expression.getClass().getSimpleName()
    if not (_cannot_fail(expression) if kind == "Cast" else kind in _TOTAL):
        return False
    return all(total(child) for child in plans.children(expression))


def _cannot_fail(cast: Any) -> bool:
    """Whether a cast is to a wider type, from an instant to its day, or gives NULL where it fails."""
    known = plans.jvm()
    given, wanted = cast.child().dataType(), cast.dataType()
    if str(cast.evalMode()) == "TRY" or (given.simpleString(), wanted.simpleString()) == ("timestamp", "date"):
        return True
    return bool(known.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(given, wanted))
