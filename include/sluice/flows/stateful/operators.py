"""Examines Spark's plan of a stream's transform: which operators keep state, the rule by which they leave late rows out, and what is refused.

A transform is refused if Spark does not run it as a stream, if it would silently lose rows, or if it keeps state for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException

from sluice.declare.datasets.windowed import AnyStream
from sluice.errors import DeclarationError
from sluice.flows import plans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_INNER = ("Inner", "Cross", "LeftSemi")


_STATE_OF_ONES_OWN = "WithState"
Rule = Literal["time", "window", "timeless"]
"""The rules by which an operator leaves a row out: the row's own instant is not after the watermark; or all of its windows have ended by
then, or it has none because its instant is NULL; or only the last."""
AGGREGATE, JOIN = "Aggregate", "Join"
_WITH_STATE = (AGGREGATE, JOIN, "Deduplicate", "DeduplicateWithinWatermark")


def check_stream_transform(stream: AnyStream, result: DataFrame) -> None:
    """Raises DeclarationError if the transform cannot be run as a stream, silently loses rows, or keeps state for ever."""
    owner = f"Stream '{stream.name}'"
    if not result.isStreaming:
        raise DeclarationError(f"{owner}: its transform does not give a stream; it must be made of the inputs that it is given.")
    for node in plans.walk_plan_nodes(plans.analyzed_plan(result)):
        _check_stream_node(owner, stream, node)
    for node in plans.walk_plan_nodes(plans.optimized_plan(result)):
        if stream.output == "update" and node.nodeName() == "Filter" and _has_stream_aggregation(node):
            # Spark evaluates below the aggregation what concerns only the columns that it groups by.
            raise DeclarationError(
                f"{owner}: a condition on what it aggregates is refused with output 'update': a row that no longer meets it would stay, since "
                "Spark gives out nothing for it. Use output='complete', or put the condition into a @view or a @materialized_view of this table."
            )
        if node.nodeName() == JOIN and is_stream_join(node):
            _check_stream_join(owner, node)
        elif node.nodeName() == "Deduplicate" and node.isStreaming() and not _is_deduplicated_by_watermark(node):
            raise DeclarationError(
                f"{owner}: dropDuplicates without the watermark's column keeps every key for ever. "
                "Write dropDuplicatesWithinWatermark, which keeps a key for as long as the watermark's delay."
            )
    try:
        _check_spark_support(stream, result)
    except PySparkException as error:
        said = str(error).splitlines()[0]
        raise DeclarationError(f"{owner}: Spark does not run this as a stream: {said} A @materialized_view can do it.") from None


def _check_stream_node(owner: str, stream: AnyStream, node: Any) -> None:
    if _STATE_OF_ONES_OWN in node.nodeName():
        raise DeclarationError(
            f"{owner}: a state of one's own ({node.nodeName()}) is refused: which rows it leaves out, and for how long it keeps them, no "
            "plan tells, so they could not be counted and kept. Group by F.window or F.session_window, or declare a @materialized_view."
        )
    if node.nodeName() == "Distinct" and node.isStreaming() and stream.watermarks:
        raise DeclarationError(
            f"{owner}: DISTINCT, or UNION without ALL, is refused: which rows it leaves out as late no plan tells, so they could not be "
            "counted and kept. Write dropDuplicatesWithinWatermark, and UNION ALL."
        )
    bare = node.nodeName() == AGGREGATE and node.isStreaming() and watermarked_key(node) is None
    if bare and stream.output == "update" and stream.watermarks:
        time = next(iter(stream.watermarks.values())).time
        raise DeclarationError(
            f"{owner}: what it groups by has nothing in it that the watermark ends, so that every key is kept for ever and no row is ever "
            f"late; a date or an hour that is made of '{time}' is not known to end. Group by F.window('{time}', ...) or by '{time}' "
            "itself; or leave the watermark out, where the state may grow with the keys."
        )


def _has_stream_aggregation(node: Any) -> bool:
    return any(one.nodeName() == AGGREGATE and one.isStreaming() for one in plans.walk_plan_nodes(node))


def _check_stream_join(owner: str, join: Any) -> None:
    kind = str(join.joinType().toString())
    if kind not in _INNER:
        raise DeclarationError(
            f"{owner}: an outer join of streams ({kind}) is refused. A row without a partner is given out when the watermark has passed it, "
            "and the watermarks of several inputs are not kept between runs: when one input goes quiet, such rows wait for ever. "
            "Declare a @materialized_view with this join: it has them at once, and the partner when it comes."
        )
    if not _is_join_bounded(join):
        raise DeclarationError(
            f"{owner}: its join of streams has no bounds in time, so that every row is kept for ever. Add to its condition how far apart the "
            "instants of both sides may be, such as `b.time BETWEEN a.time AND a.time + INTERVAL 1 hour`; both need a watermark."
        )


def _is_join_bounded(join: Any) -> bool:
    """Whether Spark finds, for both sides, an instant from which on a row cannot have a partner any more."""
    jvm = plans.spark_jvm()
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(join):
        return True
    left, right = join.left().outputSet(), join.right().outputSet()
    now = jvm.scala.Option.apply(1_000_000_000_000)  # beyond 32 bits, so a Long in the JVM
    return all(
        helper.getStateValueWatermark(mine, other, join.condition(), now).isDefined()
        for mine, other in ((left, right), (right, left))
    )


def _check_spark_support(stream: AnyStream, result: DataFrame) -> None:
    jvm = plans.spark_jvm()
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[stream.output]()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plans.analyzed_plan(result), mode)


def _is_deduplicated_by_watermark(node: Any) -> bool:
    return any(plans.is_watermarked(key) for key in plans.scala_to_list(node.keys()))


@dataclass(frozen=True)
class WindowAggregation:
    """What an aggregation by windows aggregates: a plan, and the column that holds the window."""

    plan: Any
    column: Any

    def ends(self, session: SparkSession) -> DataFrame:
        """Returns the ends of the windows as `_end`, for a plan over tables. A row comes once for each of its windows."""
        window = plans.select_plan_columns(session, self.plan, {"_window": plans.expression_id(self.column)})
        return window.selectExpr("_window.end AS _end")


def find_lateness_rules(stream: AnyStream, result: DataFrame, inputs: list[DataFrame]) -> dict[str, Rule]:
    """Returns, for each input with a watermark, the rule of the first operator with state that its rows reach. Other inputs lose no rows."""
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
    if stream.output == "complete":  # then late rows are taken, but not those in no window
        return "timeless" if grouping_window(first) else None
    key = watermarked_key(first)
    if key is None:
        return "timeless" if grouping_window(first) else None
    return "window" if plans.is_window_column(key) else "time"


def watermarked_key(aggregate: Any) -> Any | None:
    """Returns the grouping key that the watermark ends: an instant or a window. None: nothing ever ends, and nothing is left out."""
    return next((one for one in plans.scala_to_list(aggregate.groupingExpressions()) if plans.is_watermarked(one)), None)


def grouping_window(aggregate: Any) -> Any | None:
    """Returns the window that rows are grouped by: the one that the watermark ends, if there is one."""
    keys = [one for one in plans.scala_to_list(aggregate.groupingExpressions()) if plans.is_window_column(one)]
    return next(iter(sorted(keys, key=plans.is_watermarked, reverse=True)), None)


def find_window_aggregations(result: DataFrame) -> list[WindowAggregation]:
    """Returns every aggregation by windows with the plan of what it aggregates, in the order in which rows reach them."""
    found = []
    for node in plans.walk_plan_nodes(plans.analyzed_plan(result)):
        column = grouping_window(node) if node.nodeName() == AGGREGATE else None
        if column is not None:
            found.append(WindowAggregation(node.children().apply(0), column))
    return found[::-1]


def find_first_stateful_operator(
    plan: Any, is_input: Callable[[Any], bool], keeps_state: Callable[[Any], bool]
) -> tuple[Any, int] | None:
    """Returns the first operator with state above an input, and below which of its children the input is. None if there is none."""
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
    """Returns the first operator with state above the watermark of this column."""

    def is_input(node: Any) -> bool:
        return node.nodeName() == "EventTimeWatermark" and plans.expression_id(node.eventTime()) == column

    found = find_first_stateful_operator(
        plan, is_input, lambda node: node.isStreaming() and (node.nodeName() != JOIN or is_stream_join(node))
    )
    return None if found is None else found[0]
