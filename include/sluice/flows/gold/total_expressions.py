"""Which expressions give a value or NULL whatever their columns hold.

The query that finds the rows that a change touches runs on all changed rows and on all rows of an input, before the transform filters any
of them out. A cast of a text that is no number would then fail the query on a row that the transform leaves out. The common expressions
that cannot fail are known here. Any other is assumed to fail, which costs time but no rows.
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


def is_total_expression(expression: Any) -> bool:
    """Whether a JVM expression gives a value or NULL whatever its columns hold, and so cannot fail."""
    kind = expression.getClass().getSimpleName()
    if not (_is_safe_cast(expression) if kind == "Cast" else kind in _TOTAL):
        return False
    return all(is_total_expression(child) for child in plans.plan_children(expression))


def _is_safe_cast(cast: Any) -> bool:
    """Whether a cast cannot fail: to a wider type, from an instant to its day, or one that gives NULL instead."""
    known = plans.spark_jvm()
    given, wanted = cast.child().dataType(), cast.dataType()
    if str(cast.evalMode()) == "TRY" or (given.simpleString(), wanted.simpleString()) == ("timestamp", "date"):
        return True
    return bool(known.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(given, wanted))
