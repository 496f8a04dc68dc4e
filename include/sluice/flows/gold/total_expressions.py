"""Which expressions give a value or NULL whatever their columns hold, and which give equal values for equal ones.

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


_PASS_ON = frozenset({
    *("GetStructField", "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"),
    *("Coalesce", "If", "CaseWhen", "IsNull", "IsNotNull", "And", "Or", "Not", "In", "InSet"),
    *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
})
"""They give one of their values as it is, or only compare them."""
_WITH_EQUAL_FORMS = ("collate", "double", "float")
"""Types in whose values Spark holds different ones equal: 'a' and 'A' under a collation, 0.0 and -0.0."""


def keeps_equality(expression: Any) -> bool:
    """Whether a JVM expression gives equal values for equal values of its columns, so that it may stand for a group or a key."""
    children = plans.plan_children(expression)
    if expression.getClass().getSimpleName() not in _PASS_ON:
        types = [child.dataType().simpleString() for child in children]
        is_float_cast = {*types, expression.dataType().simpleString()} == {"float", "double"}
        if not is_float_cast and any(form in kind for kind in types for form in _WITH_EQUAL_FORMS):
            return False
    return all(keeps_equality(child) for child in children)


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
