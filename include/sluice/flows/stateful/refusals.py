"""What is refused of a stream's transform: what Spark does not run, what would lose rows in silence, and what keeps state for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from sluice.declare.datasets.windowed import Windowed
from sluice.errors import DeclarationError
from sluice.flows import plans
from sluice.flows.stateful import operators

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyStream = Windowed[Any]
_INNER = ("Inner", "Cross", "LeftSemi")
_STATE_OF_ONES_OWN = "WithState"


def check_stream_transform(stream: AnyStream, result: DataFrame) -> None:
    """Raises DeclarationError where the transform cannot be run as a stream, loses rows in silence, or keeps state for ever."""
    owner = f"Stream '{stream.name}'"
    if not result.isStreaming:
        raise DeclarationError(f"{owner}: its transform does not give a stream; it must be made of the inputs that it is given.")
    for node in plans.walk_plan_nodes(plans.analyzed_plan(result)):
        _check_stream_node(owner, stream, node)
    for node in plans.walk_plan_nodes(plans.optimized_plan(result)):
        if node.nodeName() == operators.JOIN and operators.is_stream_join(node):
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
    bare = node.nodeName() == operators.AGGREGATE and node.isStreaming() and operators.watermarked_key(node) is None
    if bare and stream.output == "update" and stream.watermarks:
        time = next(iter(stream.watermarks.values())).time
        raise DeclarationError(
            f"{owner}: what it groups by has nothing in it that the watermark ends, so that every key is kept for ever and no row is ever "
            f"late; a date or an hour that is made of '{time}' is not known to end. Group by F.window('{time}', ...) or by '{time}' "
            "itself; or leave the watermark out, where the state may grow with the keys."
        )


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
    """Whether Spark finds, of both sides, an instant from which on a row cannot have a partner any more."""
    jvm = plans.spark_jvm()
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(join):
        return True
    left, right = join.left().outputSet(), join.right().outputSet()
    now = jvm.scala.Option.apply(1_000_000_000_000)  # beyond 32 bits: a Long for the JVM
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
