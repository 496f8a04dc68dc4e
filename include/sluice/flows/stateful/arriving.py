"""Finds the rows of a batch that reach the first operator with state. The transform's own filters leave out others, which are not late.

The transform is run again over the batch as tables, and its plan is cut below that operator. The number that identifies a row is hidden
from the transform, which may count its columns; it is carried through the plan afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.datasets.windowed import AnyStream
from sluice.flows import plans
from sluice.flows.stateful import inputs, operators
from sluice.flows.stateful.inputs import ROW
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

END = "_end"


def find_arriving_rows(workspace: Workspace, stream: AnyStream, name: str, added: DataFrame) -> DataFrame | None:
    """Returns, by ROW, the rows of an input that arrive. If they are grouped by windows, a row comes once for each window, with its end as END.

    END is NULL if the instant is NULL and so in no window. Returns None if it cannot be told which rows arrive.
    """
    try:
        return _trace_arriving_rows(workspace, stream, name, added)
    except Exception:
        # Whatever the transform raises: the stream itself has run it without an error, and counting must not make the run fail.
        return None


def _trace_arriving_rows(workspace: Workspace, stream: AnyStream, name: str, added: DataFrame) -> DataFrame:
    numbered = [added if read == name else _empty_input(workspace, read) for read in stream.reads]
    starts = [plans.expression_id(plans.find_output_column(plans.analyzed_plan(frame), ROW)) for frame in numbered]
    ours = starts[stream.reads.index(name)]
    result = stream(
        *(inputs.mark_watermark_column(stream, read, frame) for read, frame in zip(stream.reads, numbered, strict=True))
    )
    found = operators.find_first_stateful_operator(
        plans.analyzed_plan(result), lambda node: ours in _output_ids(node), lambda node: _is_stateful_node(node, set(starts))
    )
    if found is None:
        raise LookupError("no operator with state")
    operator, side = found
    window = operators.grouping_window(operator) if operator.nodeName() == operators.AGGREGATE else None
    plan = plans.plan_children(operator)[side]
    carried, row = _carry_row_number(plan if window is None else _remove_window_filter(plan), set(starts))
    wanted = {ROW: row} | ({"_window": plans.expression_id(window)} if window else {})
    rows = plans.select_plan_columns(workspace.session, carried, wanted).where(F.col(ROW).isNotNull())
    # A session without a gap is not a window.
    return rows.select(ROW, F.expr("IF(_window.end > _window.start, _window.end, NULL)").alias(END)) if window else rows


def _empty_input(workspace: Workspace, name: str) -> DataFrame:
    """Returns another input without rows: its rows do not count here, and have no numbers."""
    return inputs.read_stream_input(workspace, name).limit(0).withColumn(ROW, F.lit(None).cast("bigint"))


def _is_stateful_node(node: Any, starts: set[int]) -> bool:
    """Whether an operator over tables has state in the stream. A join has if both of its sides are inputs."""
    sides = plans.plan_children(node)
    return all(any(starts & _output_ids(below) for below in plans.walk_plan_nodes(side)) for side in sides)


def _remove_window_filter(plan: Any) -> Any:
    """Returns the plan without the filter that Spark puts after making windows, which leaves out rows that are in no window.

    If the windows' length is not a multiple of the distance between their starts, the filter also leaves out windows that a row is not in.
    """
    below = plans.plan_children(plan)
    if plan.nodeName() == "Filter" and _is_null_window_filter(plan.condition()):
        return below[0]
    if plan.nodeName() == "Filter" and _is_window_membership_filter(plan.condition()):
        catalyst: Any = plans.spark_jvm().org.apache.spark.sql.catalyst
        timeless = catalyst.expressions.IsNull(plan.condition().left().left())
        return catalyst.plans.logical.Filter(catalyst.expressions.Or(plan.condition(), timeless), below[0])
    if len(below) != 1:
        return plan
    return plan.withNewChildren(plans.list_to_scala(plan.children(), [_remove_window_filter(below[0])]))


def _is_null_window_filter(condition: Any) -> bool:
    """Whether a filter leaves out rows whose instant is NULL, and for sessions those whose end is not after their start."""
    if condition.nodeName() == "And" and _condition_side_names(condition) == ["IsNotNull", "GreaterThan"]:
        return _is_null_window_filter(condition.left()) and _window_field_names(condition.right()) == ["end", "start"]
    return bool(condition.nodeName() == "IsNotNull" and condition.child().dataType().typeName() == "timestamp")


def _is_window_membership_filter(condition: Any) -> bool:
    """Whether a condition asks if an instant lies in a window, as Spark does after making windows."""
    if condition.nodeName() != "And" or _condition_side_names(condition) != ["GreaterThanOrEqual", "LessThan"]:
        return False
    return [_window_field_names(condition.left())[1:], _window_field_names(condition.right())[1:]] == [["start"], ["end"]]


def _condition_side_names(condition: Any) -> list[str]:
    return [condition.left().nodeName(), condition.right().nodeName()]


def _window_field_names(comparison: Any) -> list[str]:
    """Returns the names of the window's fields that are compared. Empty for anything else."""
    sides = (comparison.left(), comparison.right())
    return [one.childSchema().apply(one.ordinal()).name() if one.nodeName() == "GetStructField" else "" for one in sides]


def _carry_row_number(plan: Any, starts: set[int]) -> tuple[Any, int]:
    """Returns the plan with the number of each row, and the column that holds it.

    Raises LookupError if an operator between cannot carry it.
    """
    here = starts & _output_ids(plan)
    if here:
        return plan, here.pop()
    below = plans.plan_children(plan)
    holding = [child for child in below if any(starts & _output_ids(one) for one in plans.walk_plan_nodes(child))]
    if plan.nodeName() == "Union" and len(holding) == len(below) > 1:
        return _carry_through_union(plan, [_carry_row_number(child, starts) for child in below])
    if len(holding) != 1:
        raise LookupError(f"{plan.nodeName()} gives no row of one input")
    child, row = _carry_row_number(holding[0], starts)
    number = next(one for one in plans.plan_output(child) if plans.expression_id(one) == row)
    made = _rebuild_with_row_number(plan, [child if one is holding[0] else one for one in below], number)
    if row not in _output_ids(made):
        raise LookupError(f"{plan.nodeName()} carries no other column")
    return made, row


def _rebuild_with_row_number(plan: Any, below: list[Any], number: Any) -> Any:
    """Returns a node over other children, with one more of their columns."""
    logical: Any = plans.spark_jvm().org.apache.spark.sql.catalyst.plans.logical
    if plan.nodeName() == "Project":
        return logical.Project(plan.projectList().appended(number), below[0])
    if plan.nodeName() == "Expand":
        ways = [one.appended(number) for one in plans.scala_to_list(plan.projections())]
        return logical.Expand(plans.list_to_scala(plan.projections(), ways), plan.output().appended(number), below[0])
    return plan.withNewChildren(plans.list_to_scala(plan.children(), below))


def _carry_through_union(union: Any, carried: list[tuple[Any, int]]) -> tuple[Any, int]:
    """Carries the number through a union. A union matches columns by position, so the number comes last in each part."""
    logical: Any = plans.spark_jvm().org.apache.spark.sql.catalyst.plans.logical
    parts = []
    for before, (part, row) in zip(plans.plan_children(union), carried, strict=True):
        number = next(one for one in plans.plan_output(part) if plans.expression_id(one) == row)
        parts.append(logical.Project(before.output().appended(number), part))
    made = union.withNewChildren(plans.list_to_scala(union.children(), parts))
    return made, plans.expression_id(plans.plan_output(made)[-1])


def _output_ids(plan: Any) -> set[int]:
    return {plans.expression_id(one) for one in plans.plan_output(plan)}
