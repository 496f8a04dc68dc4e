"""Which rows of a batch come to the first operator with state: the transform's own filters leave out others, which are not late.

The transform is run again over the batch as tables, and its plan is cut below that operator. What tells the rows apart is not shown to the
transform, which may count its columns; it is carried through the plan afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.datasets.windowed import Windowed
from sluice.flows import plans
from sluice.flows.stateful import inputs, operators
from sluice.flows.stateful.inputs import ROW
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyStream = Windowed[Any]
END = "_end"


def at_operator(workspace: Workspace, stream: AnyStream, name: str, added: DataFrame) -> DataFrame | None:
    """By ROW, the rows of an input that arrive: once, or once for each of their windows with its end as END, where they are grouped by windows.

    END is NULL where the instant is NULL, and so in no window. None where it cannot be told which arrive.
    """
    try:
        return _arriving(workspace, stream, name, added)
    except Exception:
        # Of the transform, whatever it raises: the stream itself has gone through it, and nothing is to fail for its accounts.
        return None


def _arriving(workspace: Workspace, stream: AnyStream, name: str, added: DataFrame) -> DataFrame:
    numbered = [added if read == name else _nothing_of(workspace, read) for read in stream.reads]
    starts = [plans.identity(plans.named(plans.analyzed(frame), ROW)) for frame in numbered]
    ours = starts[stream.reads.index(name)]
    result = stream(*(inputs.as_marked(stream, read, frame) for read, frame in zip(stream.reads, numbered, strict=True)))
    found = operators.first(plans.analyzed(result), lambda node: ours in _ids(node), lambda node: _keeps_state(node, set(starts)))
    if found is None:
        raise LookupError("no operator with state")
    operator, side = found
    window = operators.window_of(operator) if operator.nodeName() == operators.AGGREGATE else None
    plan = plans.children(operator)[side]
    carried, row = _carried(plan if window is None else _with_timeless(plan), set(starts))
    wanted = {ROW: row} | ({"_window": plans.identity(window)} if window else {})
    rows = plans.columns(workspace.session, carried, wanted).where(F.col(ROW).isNotNull())
    return rows.select(ROW, F.col("_window.end").alias(END)) if window else rows


def _nothing_of(workspace: Workspace, name: str) -> DataFrame:
    """The columns of another input: no row of it counts here, nor has one a number."""
    return inputs.read_now(workspace, name).limit(0).withColumn(ROW, F.lit(None).cast("bigint"))


def _keeps_state(node: Any, starts: set[int]) -> bool:
    """Whether an operator over tables is one with state in the stream: a join is where both of its sides are inputs."""
    sides = plans.children(node)
    return all(any(starts & _ids(below) for below in plans.nodes(side)) for side in sides)


def _with_timeless(plan: Any) -> Any:
    """The plan without the filter by which Spark leaves out rows whose instant is NULL, before it makes their windows."""
    below = plans.children(plan)
    if plan.nodeName() == "Filter" and _is_of_windows(plan.condition()):
        return below[0]
    if len(below) != 1:
        return plan
    return plan.withNewChildren(plans.scala(plan.children(), [_with_timeless(below[0])]))


def _is_of_windows(condition: Any) -> bool:
    return bool(condition.nodeName() == "IsNotNull" and condition.child().dataType().typeName() == "timestamp")


def _carried(plan: Any, starts: set[int]) -> tuple[Any, int]:
    """The plan with the number of each row, and which of its columns that is.

    Raises LookupError where something stands between that cannot carry it.
    """
    here = starts & _ids(plan)
    if here:
        return plan, here.pop()
    below = plans.children(plan)
    holding = [child for child in below if any(starts & _ids(one) for one in plans.nodes(child))]
    if plan.nodeName() == "Union" and len(holding) == len(below) > 1:
        return _carried_by_union(plan, [_carried(child, starts) for child in below])
    if len(holding) != 1:
        raise LookupError(f"{plan.nodeName()} gives no row of one input")
    child, row = _carried(holding[0], starts)
    number = next(one for one in plans.output(child) if plans.identity(one) == row)
    made = _over(plan, [child if one is holding[0] else one for one in below], number)
    if row not in _ids(made):
        raise LookupError(f"{plan.nodeName()} carries no other column")
    return made, row


def _over(plan: Any, below: list[Any], number: Any) -> Any:
    """A node over other children, with one more of their columns."""
    logical: Any = plans.jvm().org.apache.spark.sql.catalyst.plans.logical
    if plan.nodeName() == "Project":
        return logical.Project(plan.projectList().appended(number), below[0])
    if plan.nodeName() == "Expand":
        ways = [one.appended(number) for one in plans.sequence(plan.projections())]
        return logical.Expand(plans.scala(plan.projections(), ways), plan.output().appended(number), below[0])
    return plan.withNewChildren(plans.scala(plan.children(), below))


def _carried_by_union(union: Any, carried: list[tuple[Any, int]]) -> tuple[Any, int]:
    """A union goes by positions: in each of its parts the number comes last."""
    logical: Any = plans.jvm().org.apache.spark.sql.catalyst.plans.logical
    parts = []
    for before, (part, row) in zip(plans.children(union), carried, strict=True):
        number = next(one for one in plans.output(part) if plans.identity(one) == row)
        parts.append(logical.Project(before.output().appended(number), part))
    made = union.withNewChildren(plans.scala(union.children(), parts))
    return made, plans.identity(plans.output(made)[-1])


def _ids(plan: Any) -> set[int]:
    return {plans.identity(one) for one in plans.output(plan)}
