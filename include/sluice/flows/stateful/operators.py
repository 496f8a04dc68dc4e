"""What Spark makes of a stream's transform: which operators keep state, by which rule they leave late rows out, and what is refused.

Plans are asked, no data is read. Only classic PySpark gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException

from sluice.declare.datasets.windowed import Windowed
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AnyStream = Windowed[Any]
Rule = Literal["time", "window"]
"""By what an operator leaves a row out: the row's own instant is not after the watermark; or all windows of the row have ended by then."""

_AGGREGATE, _JOIN = "Aggregate", "Join"
_WITH_STATE = (_AGGREGATE, _JOIN, "Deduplicate", "DeduplicateWithinWatermark")
_INNER = ("Inner", "Cross", "LeftSemi")
_DELAY = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class Window:
    """What an aggregation by windows aggregates: a plan, and the identity of its column that is the window."""

    plan: Any
    column: int

    def beside(self, name: str) -> Window | None:
        """The same windows where they stand beside a column of this name, before the transform drops it; None where they never do."""
        plan, column = self.plan, self.column
        while plan.nodeName() in ("Project", "Filter", "SubqueryAlias"):
            names = {str(one.name()) for one in _sequence(plan.output())}
            if name in names or column not in {_id(one) for one in _sequence(plan.output())}:
                break
            column = _source(plan, column)
            plan = plan.children().apply(0)
        columns = {str(one.name()): _id(one) for one in _sequence(plan.output())}
        return Window(plan, column) if name in columns and column in columns.values() else None

    def ends(self, session: SparkSession, *others: str) -> DataFrame:
        """The ends of the windows as `_end`, with other columns of the plan; of a plan over tables. A row comes once for each of its windows."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        jvm: Any = session._jvm
        rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, self.plan), session)
        name = next(str(one.name()) for one in _sequence(self.plan.output()) if _id(one) == self.column)
        return rows.select(F.col(f"`{name}`.end").alias("_end"), *(F.col(f"`{other}`") for other in others))


def rules(stream: AnyStream, result: DataFrame, inputs: list[DataFrame]) -> dict[str, Rule]:
    """By input with a watermark, the rule of the first operator with state that its rows come to; inputs without one lose no row."""
    if stream.output == "complete":
        return {}  # Spark keeps everything then, also what is late
    found: dict[str, Rule] = {}
    for name, frame in zip(stream.reads, inputs, strict=True):
        watermark = stream.watermarks.get(name)
        first = _first(_analyzed(result), _identity(frame, watermark.time)) if watermark else None
        if first is None:
            continue
        if first.nodeName() != _AGGREGATE:
            found[name] = "time"
        elif _grouping(first, "struct"):
            found[name] = "window"
        elif _grouping(first, "timestamp"):
            found[name] = "time"
    return found


def windows(result: DataFrame) -> list[Window]:
    """Every aggregation by windows, those that come first first, with the plan of what it aggregates."""
    found = []
    for node in _nodes(_analyzed(result)):
        columns = _grouping(node, "struct") if node.nodeName() == _AGGREGATE else []
        if columns:
            found.append(Window(node.children().apply(0), columns[0]))
    return found[::-1]


def check(stream: AnyStream, result: DataFrame) -> None:
    """Raises DeclarationError where the transform cannot be run as a stream, loses rows in silence, or keeps state for ever."""
    owner = f"Stream '{stream.name}'"
    if not result.isStreaming:
        raise DeclarationError(f"{owner}: its transform does not give a stream; it must be made of the inputs that it is given.")
    for node in _nodes(_optimized(result)):
        if node.nodeName() == _JOIN and all(_streams(node)):
            _check_join(owner, node)
        elif node.nodeName() == "Deduplicate" and node.isStreaming() and not _by_watermark(node):
            raise DeclarationError(
                f"{owner}: dropDuplicates without the watermark's column keeps every key for ever. "
                "Write dropDuplicatesWithinWatermark, which keeps a key for as long as the watermark's delay."
            )
    try:
        _supported(stream, result)
    except PySparkException as error:
        said = str(error).splitlines()[0]
        raise DeclarationError(f"{owner}: Spark does not run this as a stream: {said} A @materialized_view can do it.") from None


def _check_join(owner: str, join: Any) -> None:
    kind = str(join.joinType().toString())
    if kind not in _INNER:
        raise DeclarationError(
            f"{owner}: an outer join of streams ({kind}) is refused. A row without a partner is given out when the watermark has passed it, "
            "and the watermarks of several inputs are not kept between runs: when one input goes quiet, such rows wait for ever. "
            "Declare a @materialized_view with this join: it has them at once, and the partner when it comes."
        )
    if not _bounded(join):
        raise DeclarationError(
            f"{owner}: its join of streams has no bounds in time, so that every row is kept for ever. Add to its condition how far apart the "
            "instants of both sides may be, such as `b.time BETWEEN a.time AND a.time + INTERVAL 1 hour`; both need a watermark."
        )


def _bounded(join: Any) -> bool:
    """Whether Spark finds, of both sides, an instant from which on a row cannot have a partner any more."""
    jvm = _jvm()
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(join):
        return True
    left, right = join.left().outputSet(), join.right().outputSet()
    now = jvm.scala.Option.apply(1_000_000_000_000)  # beyond 32 bits: a Long for the JVM
    return all(
        helper.getStateValueWatermark(mine, other, join.condition(), now).isDefined()
        for mine, other in ((left, right), (right, left))
    )


def _supported(stream: AnyStream, result: DataFrame) -> None:
    jvm = _jvm()
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[stream.output]()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(_analyzed(result), mode)


def _first(plan: Any, column: int) -> Any | None:
    """The first operator with state above the watermark of this column."""
    below: list[Any] = []

    def walk(node: Any, above: list[Any]) -> None:
        if node.nodeName() == "EventTimeWatermark" and _id(node.eventTime()) == column:
            below.extend(above[-1:])
        stateful = node.nodeName() in _WITH_STATE and node.isStreaming() and (node.nodeName() != _JOIN or all(_streams(node)))
        for child in _children(node):
            walk(child, [*above, node] if stateful else above)

    walk(plan, [])
    return below[0] if below else None


def _streams(join: Any) -> tuple[bool, bool]:
    return bool(join.left().isStreaming()), bool(join.right().isStreaming())


def _by_watermark(node: Any) -> bool:
    return any(key.metadata().contains(_DELAY) for key in _sequence(node.keys()))


def _source(project: Any, column: int) -> int:
    """The column below a projection that one of its columns is, under another name maybe; itself where it is made here."""
    if project.nodeName() == "Project":
        for one in _sequence(project.projectList()):
            if _id(one) == column and one.nodeName() == "Alias" and one.child().nodeName() == "AttributeReference":
                return _id(one.child())
    return column


def _grouping(aggregate: Any, kind: str) -> list[int]:
    """The columns of this type that are grouped by."""
    found: list[int] = []
    for expression in _sequence(aggregate.groupingExpressions()):
        references = expression.references().toSeq()
        found += [_id(one) for one in _sequence(references) if one.dataType().typeName() == kind]
    return found


def _identity(frame: DataFrame, column: str) -> int:
    return next(_id(one) for one in _sequence(_analyzed(frame).output()) if one.name() == column)


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _children(plan):
        yield from _nodes(child)


def _children(plan: Any) -> list[Any]:
    return _sequence(plan.children())


def _sequence(found: Any) -> list[Any]:
    return [found.apply(position) for position in range(found.size())]


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _optimized(frame: DataFrame) -> Any:
    """The optimised plan of a stream; that of a query execution is refused for one."""
    session: Any = frame.sparkSession._jsparkSession
    return session.sessionState().optimizer().execute(_analyzed(frame))


def _jvm() -> Any:
    from pyspark import SparkContext

    return SparkContext._active_spark_context._jvm  # type: ignore[union-attr]
