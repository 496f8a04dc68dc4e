"""Walks Spark's query plans from Python, for all flows. Reads no data. Only classic PySpark gives access to plans.

A replay, a recompute or a comparison makes rows a second time: plans say whether the rows come out the same.
They also say which expressions cannot fail on rows that a transform leaves out, where a view's inputs are read, which of their columns matter,
and what a view may not read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.quality.clocks import CLOCK, find_moving_date

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


DELAY = "spark.watermarkDelayMs"
"""The marks that Spark puts on a column with a watermark, and on the windows made from it."""

_WINDOWS = ("spark.timeWindow", "spark.sessionWindow")
_NAMED = ("AttributeReference", "GetStructField")


def walk_plan_nodes(plan: Any) -> Iterator[Any]:
    """Yields a plan's node and all nodes below it."""
    yield plan
    for child in plan_children(plan):
        yield from walk_plan_nodes(child)


def walk_plan_with_subqueries(plan: Any) -> Iterator[Any]:
    """Yields the same nodes and those of its subqueries."""
    for node in walk_plan_nodes(plan):
        yield node
        for subquery in scala_to_list(node.subqueries()):
            yield from walk_plan_with_subqueries(subquery)


def plan_children(plan: Any) -> list[Any]:
    """Returns a node's children."""
    return scala_to_list(plan.children())


def scala_to_list(found: Any) -> list[Any]:
    """Returns a Scala sequence as a list."""
    return [found.apply(position) for position in range(found.size())]


def list_to_scala(like: Any, items: list[Any]) -> Any:
    """Returns the items as a Scala sequence. like: any Scala sequence, because Python cannot create one."""
    found = like.take(0)
    for item in items:
        found = found.appended(item)
    return found


def plan_output(plan: Any) -> list[Any]:
    """Returns the columns of a node."""
    return scala_to_list(plan.output())


def find_output_column(plan: Any, column: str) -> Any | None:
    """Returns the column of this name, or None if the plan has none."""
    return next((one for one in plan_output(plan) if one.name() == column), None)


def expression_id(attribute: Any) -> int:
    """Returns the id that distinguishes a column from all others of its name."""
    return int(attribute.exprId().id())


def is_watermarked(expression: Any) -> bool:
    """Whether Spark sees a key as the instant, or the window, that a watermark ends."""
    return expression.nodeName() in _NAMED and bool(expression.metadata().contains(DELAY))


def is_window_column(expression: Any) -> bool:
    """Whether `window` or `session_window` made a column. No other STRUCT is a window."""
    return expression.nodeName() == "AttributeReference" and any(expression.metadata().contains(mark) for mark in _WINDOWS)


def analyzed_plan(frame: DataFrame) -> Any:
    """Returns the plan as it was written, with its columns resolved."""
    return frame._jdf.queryExecution().analyzed()


def optimized_plan(frame: DataFrame) -> Any:
    """Returns the optimised plan. Works for a stream, too, for which a query execution refuses to give it."""
    return optimize_plan(frame.sparkSession, analyzed_plan(frame))


def optimize_plan(session: SparkSession, plan: Any) -> Any:
    """Optimises an analysed plan."""
    inner: Any = session._jsparkSession
    return inner.sessionState().optimizer().execute(plan)


def select_plan_columns(session: SparkSession, plan: Any, wanted: Mapping[str, int]) -> DataFrame:
    """Returns a frame of some columns of a part of a plan over tables. columns: their identities, by the names that they get."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    rows = DataFrame(spark_jvm().org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
    # Selected by position: two of a plan's columns may have the same name.
    position = {expression_id(one): number for number, one in enumerate(plan_output(plan))}
    numbered = rows.toDF(*(f"_{number}" for number in range(len(rows.columns))))
    return numbered.select(*(F.col(f"_{position[column]}").alias(name) for name, column in wanted.items()))


def spark_jvm() -> Any:
    """Returns Spark's JVM."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context._jvm  # type: ignore[union-attr]


def find_unrepeatable_call(expression: Any) -> str | None:
    """Describes the part of a JVM expression that gives another result each time. Returns None if there is no such part.

    An aggregate that depends on the order of its rows, such as a list, is accepted: most are sorted afterwards.
    """
    clock = CLOCK.search(str(expression.toString()))
    if clock:
        return f"{clock.group(1)}()"
    return None if expression.deterministic() or not _is_random(expression) else "something random"


def find_moving_date_in_plan(session: SparkSession, plan: Any) -> str | None:
    """Describes a date that Spark computes from the clock, such as DATE'today'. Returns None without one."""
    return find_moving_date(session, plan, walk_plan_with_subqueries(plan))


def _is_random(expression: Any) -> bool:
    """Whether an expression is random. Aggregates that count as random only because of their order do not count."""
    if expression.deterministic():
        return False
    below = plan_children(expression)
    if all(child.deterministic() for child in below):
        return not _is_aggregate_function(expression)
    return any(_is_random(child) for child in below)


def _is_aggregate_function(expression: Any) -> bool:
    return any(kind.getSimpleName() == "AggregateFunction" for kind in _java_superclasses(expression.getClass()))


def _java_superclasses(kind: Any) -> list[Any]:
    found = []
    while kind is not None:
        found.append(kind)
        kind = kind.getSuperclass()
    return found


_PASSING_VALUES_ON = frozenset({
    *("GetStructField", "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"),
    *("Coalesce", "If", "CaseWhen", "IsNull", "IsNotNull", "And", "Or", "Not", "In", "InSet"),
    *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
})
"""Expressions that give one of their values as it is, or only compare them."""
_NEVER_FAILING = _PASSING_VALUES_ON | {
    *("AttributeReference", "Literal"),
    *("TruncTimestamp", "TruncDate", "Year", "YearOfWeek", "Quarter", "Month", "WeekOfYear", "DayOfYear", "DayOfMonth"),
    *("DayOfWeek", "WeekDay", "Hour", "Minute", "Second", "LastDay", "DateAdd", "DateSub", "UnixDate", "UnixMicros"),
    *("UnixMillis", "UnixSeconds"),
    *("Upper", "Lower", "StringTrim", "StringTrimLeft", "StringTrimRight", "Concat", "Substring", "Length", "StringReplace"),
    *("StartsWith", "EndsWith", "Contains", "Murmur3Hash", "XxHash64"),
}
"""Expressions that give a value or NULL whatever their columns hold. The query that finds the rows that a change touches runs on all changed
rows and on all rows of an input, before the transform filters any of them out. A cast of a text that is no number would then fail the query
on a row that the transform leaves out. The common expressions that cannot fail are known here. Any other is assumed to fail, which costs time
but no rows."""
_WITH_EQUAL_FORMS = ("collate", "double", "float")
"""Types in whose values Spark holds different ones equal: 'a' and 'A' under a collation, 0.0 and -0.0."""


def keeps_equality(expression: Any) -> bool:
    """Whether a JVM expression gives equal values for equal values of its columns, so that it may stand for a group or a key."""
    children = plan_children(expression)
    if expression.getClass().getSimpleName() not in _PASSING_VALUES_ON:
        types = [child.dataType().simpleString() for child in children]
        is_float_cast = {*types, expression.dataType().simpleString()} == {"float", "double"}
        if not is_float_cast and any(form in kind for kind in types for form in _WITH_EQUAL_FORMS):
            return False
    return all(keeps_equality(child) for child in children)


def is_total_expression(expression: Any) -> bool:
    """Whether a JVM expression gives a value or NULL whatever its columns hold, and so cannot fail."""
    kind = expression.getClass().getSimpleName()
    if not (_is_safe_cast(expression) if kind == "Cast" else kind in _NEVER_FAILING):
        return False
    return all(is_total_expression(child) for child in plan_children(expression))


def _is_safe_cast(cast: Any) -> bool:
    """Whether a cast cannot fail: to a wider type, from an instant to its day, or one that gives NULL instead."""
    known = spark_jvm()
    given, wanted = cast.child().dataType(), cast.dataType()
    if str(cast.evalMode()) == "TRY" or (given.simpleString(), wanted.simpleString()) == ("timestamp", "date"):
        return True
    return bool(known.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(given, wanted))


_GIVES_OWN_COLUMNS = ("Project", "Aggregate")
_FROM_ELSEWHERE = ("LogicalRelation", "HiveTableRelation", "DataSourceV2Relation", "DataSourceV2ScanRelation")


def count_input_reads(plan: Any, names: Mapping[int, str]) -> Counter[str]:
    """Returns how often a plan reads each input. names: by the id of the input's rows."""
    return Counter(name for one in walk_plan_with_subqueries(plan) if (name := input_read_by_node(one, names)) is not None)


def input_read_by_node(plan: Any, names: Mapping[int, str]) -> str | None:
    """Returns the input that a node reads."""
    return names.get(int(plan.rdd().id())) if plan.nodeName() == "LogicalRDD" else None


def find_used_columns(plan: Any, names: Mapping[int, str]) -> dict[str, tuple[str, ...]]:
    """Returns, by input, the columns that an optimised plan needs, with their types. Another column or type may change the view."""
    found = find_used_types(plan, names)
    return {name: tuple(sorted(f"{column} {kind}" for column, kind in used.items())) for name, used in found.items()}


def find_used_types(plan: Any, names: Mapping[int, str]) -> dict[str, dict[str, str]]:
    """Returns, by input, the types of the columns that an optimised plan needs, by column."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def walk(node: Any, needed: Any) -> None:
        name = input_read_by_node(node, names)
        if name is not None:
            columns = (one for one in scala_to_list(node.output()) if needed.contains(one))
            found[name].update({str(one.name()): str(one.dataType().simpleString()) for one in columns})
        for subquery in scala_to_list(node.subqueries()):
            walk(subquery, subquery.outputSet())
        below = node.references() if node.nodeName() in _GIVES_OWN_COLUMNS else getattr(needed, "$plus$plus")(node.references())
        for child in scala_to_list(node.children()):
            walk(child, child.outputSet() if node.nodeName() == "Union" else below)

    walk(plan, plan.outputSet())
    return found


def refuse_unfollowed_reads(session: SparkSession, view: str, plan: Any) -> None:
    """Raises DeclarationError if an analysed plan uses a clock or random numbers, or reads what the view does not declare.

    Nothing reports when these change, so rows that were computed before would stay as they were.
    """
    if any(
        one.getClass().getSimpleName() in _FROM_ELSEWHERE for one in walk_plan_with_subqueries(plan) if one.children().isEmpty()
    ):
        raise DeclarationError(
            f"View '{view}' reads a table or files that it does not name in reads: it would not follow their changes. Name them there."
        )
    what = _find_sample(plan) or _find_unrepeatable_in_plan(plan) or find_moving_date_in_plan(session, plan)
    if what:
        raise DeclarationError(
            f"View '{view}' uses {what}: rows that no change touches would stay as they were made. Take it out of the transform; "
            "what depends on today belongs into a @view, which is computed when it is read."
        )


def _find_sample(plan: Any) -> str | None:
    """Describes a sample: which rows it has depends on their files, even with a seed, and no expression of the plan shows that."""
    nodes = walk_plan_with_subqueries(plan)
    return "a sample" if any(node.nodeName() == "Sample" for node in nodes) else None


def _find_unrepeatable_in_plan(plan: Any) -> str | None:
    """Returns what in a plan gives another result each time. Single expressions are inspected only if the whole plan is not repeatable."""
    patterns = spark_jvm().org.apache.spark.sql.catalyst.trees.TreePattern
    if plan.deterministic() and not plan.containsPattern(patterns.CURRENT_LIKE()):
        return None
    return next(
        (
            said
            for node in walk_plan_with_subqueries(plan)
            for one in scala_to_list(node.expressions())
            if (said := find_unrepeatable_call(one))
        ),
        None,
    )
