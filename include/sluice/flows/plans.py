"""Spark's query plans, walked from Python, for all flows. No data is read. Only classic PySpark gives plans.

Rows are made more than once, by a replay, a recompute, a comparison: plans say whether they come out the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sluice.quality.verdicts import CLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELAY = "spark.watermarkDelayMs"
"""What Spark notes of a column that a watermark is of, and of the windows that are made of it."""

_WINDOWS = ("spark.timeWindow", "spark.sessionWindow")
_NAMED = ("AttributeReference", "GetStructField")


def walk_plan_nodes(plan: Any) -> Iterator[Any]:
    """A plan and all that is below it."""
    yield plan
    for child in plan_children(plan):
        yield from walk_plan_nodes(child)


def walk_plan_with_subqueries(plan: Any) -> Iterator[Any]:
    """The same, and what its subqueries are made of."""
    for node in walk_plan_nodes(plan):
        yield node
        for subquery in scala_to_list(node.subqueries()):
            yield from walk_plan_with_subqueries(subquery)


def plan_children(plan: Any) -> list[Any]:
    """What a node is made of."""
    return scala_to_list(plan.children())


def scala_to_list(found: Any) -> list[Any]:
    """A Scala sequence."""
    return [found.apply(position) for position in range(found.size())]


def list_to_scala(like: Any, items: list[Any]) -> Any:
    """A Scala sequence of these. like: any other, since Python cannot begin one."""
    found = like.take(0)
    for item in items:
        found = found.appended(item)
    return found


def plan_output(plan: Any) -> list[Any]:
    """The columns that a node gives."""
    return scala_to_list(plan.output())


def find_output_column(plan: Any, column: str) -> Any | None:
    """The column of this name; None where the plan gives none."""
    return next((one for one in plan_output(plan) if one.name() == column), None)


def expression_id(attribute: Any) -> int:
    """What tells a column from all others of that name."""
    return int(attribute.exprId().id())


def is_watermarked(expression: Any) -> bool:
    """Whether Spark takes a key for the instant, or the window, that a watermark ends."""
    return expression.nodeName() in _NAMED and bool(expression.metadata().contains(DELAY))


def is_window_column(expression: Any) -> bool:
    """Whether a column is what `window` or `session_window` made. Any other STRUCT is none."""
    return expression.nodeName() == "AttributeReference" and any(expression.metadata().contains(mark) for mark in _WINDOWS)


def analyzed_plan(frame: DataFrame) -> Any:
    """The plan as it was written, columns resolved."""
    return frame._jdf.queryExecution().analyzed()


def optimized_plan(frame: DataFrame) -> Any:
    """The optimised plan, of a stream as well, for which a query execution refuses it."""
    return optimize_plan(frame.sparkSession, analyzed_plan(frame))


def optimize_plan(session: SparkSession, plan: Any) -> Any:
    """What the optimiser makes of an analysed plan."""
    inner: Any = session._jsparkSession
    return inner.sessionState().optimizer().execute(plan)


def select_plan_columns(session: SparkSession, plan: Any, wanted: Mapping[str, int]) -> DataFrame:
    """Columns that a part of a plan over tables gives: their identities, by the names that they are to have."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    rows = DataFrame(spark_jvm().org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
    # By position: two of a plan's columns may have one name.
    position = {expression_id(one): number for number, one in enumerate(plan_output(plan))}
    numbered = rows.toDF(*(f"_{number}" for number in range(len(rows.columns))))
    return numbered.select(*(F.col(f"_{position[column]}").alias(name) for name, column in wanted.items()))


def spark_jvm() -> Any:
    """Spark's JVM."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context._jvm  # type: ignore[union-attr]


def find_unrepeatable_call(expression: Any) -> str | None:
    """What an expression of the JVM asks that is another thing each time, in words; None where nothing is.

    An aggregate that depends on the order of its rows, such as a list, is taken as it is: most are sorted afterwards.
    """
    clock = CLOCK.search(str(expression.toString()))
    if clock:
        return f"{clock.group(1)}()"
    return None if expression.deterministic() or not _is_random(expression) else "something random"


def _is_random(expression: Any) -> bool:
    """Whether chance is in it, beside aggregates that count as such only for their order."""
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
