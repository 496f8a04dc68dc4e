"""What Spark makes of a stream's transform: which operators keep state, and by which rule they leave late rows out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sluice.declare.datasets.windowed import Windowed
from sluice.flows import plans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AnyStream = Windowed[Any]
Rule = Literal["time", "window", "timeless"]
"""By what an operator leaves a row out: the row's own instant is not after the watermark; or all windows of the row have ended by then, or
it has none since its instant is NULL; or that alone."""

AGGREGATE, JOIN = "Aggregate", "Join"
_WITH_STATE = (AGGREGATE, JOIN, "Deduplicate", "DeduplicateWithinWatermark")


@dataclass(frozen=True)
class WindowAggregation:
    """What an aggregation by windows aggregates: a plan, and its column that is the window."""

    plan: Any
    column: Any

    def ends(self, session: SparkSession) -> DataFrame:
        """When they end, as `_end`; of a plan over tables. A row comes once for each of its windows."""
        window = plans.select_plan_columns(session, self.plan, {"_window": plans.expression_id(self.column)})
        return window.selectExpr("_window.end AS _end")


def find_lateness_rules(stream: AnyStream, result: DataFrame, inputs: list[DataFrame]) -> dict[str, Rule]:
    """By input with a watermark, the rule of the first operator with state that its rows come to; inputs without one lose no row."""
    found: dict[str, Rule] = {}
    for name, frame in zip(stream.reads, inputs, strict=True):
        watermark = stream.watermarks.get(name)
        if watermark is None:
            continue
        time = plans.find_output_column(plans.analyzed_plan(frame), watermark.time)
        first = _find_operator_above_watermark(plans.analyzed_plan(result), plans.expression_id(time))
        rule = None if first is None else _lateness_rule(stream, first)
        if rule is not None:
            found[name] = rule
    return found


def _lateness_rule(stream: AnyStream, first: Any) -> Rule | None:
    if first.nodeName() != AGGREGATE:
        return "time"
    if stream.output == "complete":  # what is late is taken then; what is in no window is not
        return "timeless" if grouping_window(first) else None
    key = watermarked_key(first)
    if key is None:
        return "timeless" if grouping_window(first) else None
    return "window" if plans.is_window_column(key) else "time"


def watermarked_key(aggregate: Any) -> Any | None:
    """What the watermark ends of that which is grouped by: an instant or a window; None: nothing is ever ended, nor left out."""
    return next((one for one in plans.scala_to_list(aggregate.groupingExpressions()) if plans.is_watermarked(one)), None)


def grouping_window(aggregate: Any) -> Any | None:
    """The window that is grouped by: the one that the watermark ends, if one does."""
    keys = [one for one in plans.scala_to_list(aggregate.groupingExpressions()) if plans.is_window_column(one)]
    return next(iter(sorted(keys, key=plans.is_watermarked, reverse=True)), None)


def find_window_aggregations(result: DataFrame) -> list[WindowAggregation]:
    """Every aggregation by windows, those that come first first, with the plan of what it aggregates."""
    found = []
    for node in plans.walk_plan_nodes(plans.analyzed_plan(result)):
        column = grouping_window(node) if node.nodeName() == AGGREGATE else None
        if column is not None:
            found.append(WindowAggregation(node.children().apply(0), column))
    return found[::-1]


def find_first_stateful_operator(
    plan: Any, is_input: Callable[[Any], bool], keeps_state: Callable[[Any], bool]
) -> tuple[Any, int] | None:
    """The first operator with state above an input, and which of its children the input is below; None where there is none."""
    below: list[tuple[Any, int]] = []

    def walk(node: Any, above: list[tuple[Any, int]]) -> None:
        if is_input(node):
            below.extend(above[-1:])
        stateful = node.nodeName() in _WITH_STATE and keeps_state(node)
        for position, child in enumerate(plans.plan_children(node)):
            walk(child, [*above, (node, position)] if stateful else above)

    walk(plan, [])
    return below[0] if below else None


def is_stream_join(join: Any) -> bool:
    """Whether both sides of a join are streams."""
    return all(side.isStreaming() for side in plans.plan_children(join))


def _find_operator_above_watermark(plan: Any, column: int) -> Any | None:
    """The first operator with state above the watermark of this column."""

    def is_input(node: Any) -> bool:
        return node.nodeName() == "EventTimeWatermark" and plans.expression_id(node.eventTime()) == column

    found = find_first_stateful_operator(
        plan, is_input, lambda node: node.isStreaming() and (node.nodeName() != JOIN or is_stream_join(node))
    )
    return None if found is None else found[0]
