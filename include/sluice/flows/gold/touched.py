"""The part of a view that a batch of changes can touch: values of columns, and ranges of time."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.quoting import quote_column, quote_columns, quote_identifier
from sluice.flows.gold import in_time
from sluice.flows.gold.in_time import Spans
from sluice.flows.gold.probe import InputReach
from sluice.flows.gold.through_joins import find_touched_values
from sluice.flows.writing import targets
from sluice.flows.writing.difference import persist_frame
from sluice.flows.writing.ranges import Limits, limits_condition, truncation_range_condition
from sluice.lake.flow_report import ANY_ROW
from sluice.lake.table_frames import compute_aggregates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INPUT = "_input"
_TICK = "_tick"


@dataclass(frozen=True)
class ViewScope:
    """Some rows of a view: those with one of these distinct values, in these ranges, and in these spans of the reach's column.

    values: None if no column bounds the changes. spans: None if time does not.
    """

    reach: Mapping[str, InputReach]
    values: DataFrame | None
    ranges: Limits
    spans: Spans | None
    nullable: frozenset[str] = frozenset()
    """The columns in which a value is NULL."""
    distinct: int | None = None
    """How many values there are."""

    def of_input(self, name: str, frame: DataFrame) -> DataFrame:
        """Returns the rows of an input that the view's rows in scope are made of, and possibly others."""
        reach = self.reach[name]
        if self.spans is not None and reach.time is not None:
            frame = frame.where(reach.time.needed(self.spans))
        return self._narrowed(frame, reach.columns)

    def of_view(self, frame: DataFrame, made: bool = False) -> DataFrame:
        """Returns the rows in scope, of the view's table or of its transform's result."""
        time = self._time()
        if made:
            # The optimiser moves nothing past an expression that is not repeatable. Otherwise it takes a condition on a session's start
            # below the making of sessions, which then consist of other events (Spark 4.2).
            frame = frame.where(F.floor(F.rand()) == 0)
        if self.spans is not None and time is not None:
            frame = frame.where(in_time.time_spans_condition(time.column, time.kind, self.spans))
        return self._narrowed(frame, {column: quote_identifier(column) for column in frame.columns})

    def limits(self) -> Limits:
        """Returns the ranges by column of the view, times included."""
        time = self._time()
        spans = in_time.time_span_literals(time.kind, self.spans) if time is not None and self.spans is not None else None
        return {**self.ranges, **({time.column: spans} if time is not None and spans is not None else {})}

    def at_most(self, keys: Sequence[str]) -> int | None:
        """Returns how many rows of a view with these keys can be in scope: one for each value, or for each value and day. None: unknown."""
        time, days = self._time(), 1
        if self.values is None or self.distinct is None:
            return None
        bound = {*self.values.columns}
        if time is not None and self.spans is not None and time.kind == "date" and time.column in set(keys) - bound:
            bound.add(time.column)
            days = sum(last - first + 1 for first, last in self.spans)
        return self.distinct * days if bound >= set(keys) else None

    def _time(self) -> in_time.InTime | None:
        return next((one.time for one in self.reach.values() if one.time is not None), None)

    def _narrowed(self, frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
        """Returns the frame's rows whose values of these columns, given as expressions, are in scope. NULLs equal each other."""
        shared = [column for column in self.values.columns if column in columns] if self.values is not None else []
        if self.values is None or not shared:
            return frame
        near = frame.where(limits_condition(self.ranges, columns) & truncation_range_condition(self.ranges, columns))
        values = self.values.select(*(quote_column(column).alias(f"_touched_{column}") for column in shared))
        if len(shared) < len(self.values.columns):
            values = values.distinct()
        pairs = {column: (F.expr(columns[column]), F.col(f"`_touched_{column}`")) for column in shared}
        # A plain comparison if nothing is NULL: a NULL-safe one is hashed as two values per column.
        conditions = [of.eqNullSafe(value) if name in self.nullable else of == value for name, (of, value) in pairs.items()]
        return near.join(values, functools.reduce(lambda a, b: a & b, conditions), "left_semi")


News = Mapping[str, Spans | None]
"""For each input with changes in a batch, what they touch in time. None: no bound."""


def select_touched_names(feeds: Mapping[str, DataFrame], reach: Mapping[str, InputReach]) -> DataFrame:
    """Returns the names that changes of the inputs touch: `_input`, and for each input a struct of what finds the touched values and the time.

    feeds: the changes by input.
    """
    frames = []
    for name in sorted(reach):
        columns = [F.expr(expression).alias(column) for column, expression in reach[name].streamed.items()]
        columns += [time.tick.alias(_TICK)] if (time := reach[name].time) else []
        values = [F.struct(*columns).alias(name)] if columns else []
        frames.append(feeds[name].select(F.lit(name).alias(INPUT), *values))
    return functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)


def read_change_summary(changes: DataFrame, reach: Mapping[str, InputReach]) -> News:
    """Reads, in one pass, what must be known about a batch's changes before they are followed."""
    asked: list[Column] = []
    timed = [name for name in reach if reach[name].time is not None]
    for position, name in enumerate(reach):
        ours = F.col(INPUT) == name
        asked.append(F.count_if(ours).alias(f"rows_{position}"))
        if name in timed:
            tick = quote_column(_TICK, name)
            asked.append(F.collect_set(tick).alias(f"ticks_{position}"))
            asked.append(F.count_if(ours & tick.isNull()).alias(f"nulls_{position}"))
    found = compute_aggregates(changes, *asked)
    result: dict[str, Spans | None] = {}
    for position, name in enumerate(reach):
        time = reach[name].time
        if found[f"rows_{position}"]:
            bounded = time is not None and not found[f"nulls_{position}"]
            result[name] = time.touched(found[f"ticks_{position}"]) if time is not None and bounded else None
    return result


def reason_for_no_bound(found: News, reach: Mapping[str, InputReach]) -> str | None:
    """Returns why these changes can touch every row of the view, or None if they are bounded."""
    unbounded = [name for name in sorted(found) if not reach[name].bounding and found[name] is None]
    return f"a change of '{unbounded[0]}' {ANY_ROW}" if unbounded else None


Inputs = Mapping[str, "DataFrame"]
"""A view's inputs, by name."""


@contextmanager
def open_view_scopes(
    view: MaterializedView[Any],
    changes: DataFrame,
    found: News,
    reach: Mapping[str, InputReach],
    read_inputs_beside: Callable[[str], Inputs],
) -> Iterator[list[ViewScope]]:
    """Gives the scopes that the changes touch. Inputs that are bounded by the same columns share one.

    read_inputs_beside: returns the inputs that the changed rows of one are joined with, if a join follows it.
    """
    passes: dict[tuple[tuple[str, ...], bool], list[str]] = defaultdict(list)
    for name in sorted(found):
        passes[reach[name].bounding, found[name] is not None].append(name)

    def find_values(name: str) -> DataFrame:
        changed, joined = changes.where(F.col(INPUT) == name), reach[name].joined
        rows = changed.select(*(quote_column(column, name).alias(column) for column in reach[name].streamed))
        return rows if joined is None else find_touched_values(view, name, joined, rows, read_inputs_beside(name))

    with ExitStack() as stack:
        yield [_build_view_scope(stack, view, find_values, names, found, reach) for names in passes.values()]


def _build_view_scope(
    stack: ExitStack,
    view: MaterializedView[Any],
    find_values: Callable[[str], DataFrame],
    names: Sequence[str],
    found: News,
    reach: Mapping[str, InputReach],
) -> ViewScope:
    spans = [one for name in names if (one := found[name]) is not None]
    time = in_time.union_time_spans(spans) if spans else None
    columns = reach[names[0]].bounding
    if not columns:
        return ViewScope(reach, None, {}, time)
    of_each = [find_values(name).select(*quote_columns(columns)) for name in names]
    values = stack.enter_context(persist_frame(functools.reduce(lambda a, b: a.unionByName(b), of_each).distinct()))
    bounding = targets.choose_bounding_columns(view, values.schema, columns)
    # Asked even if no column has ranges: values that are computed and counted already are few enough to be sent to every worker.
    absent = [F.count_if(quote_column(column).isNull()).alias(f"_absent_{position}") for position, column in enumerate(columns)]
    asked = compute_aggregates(values, F.count(F.lit(1)).alias("_distinct"), *absent, *bounding.aggregates())
    nullable = frozenset(column for position, column in enumerate(columns) if asked[f"_absent_{position}"])
    return ViewScope(reach, values, bounding.limits(asked), time, nullable, asked["_distinct"])


def build_key_scope(target: DataFrame, view: MaterializedView[Any], keys: pa.Table, reach: Mapping[str, InputReach]) -> ViewScope:
    """Returns the scope of keys that are in memory, so that no job is needed to learn how many they are and where they lie.

    target: the view's table, which has the types of the keys. keys: may hold a key twice. reach: by input, the keys' columns.
    """
    types = StructType([StructField(name, target.schema[name].dataType) for name in keys.schema.names])
    frame = target.sparkSession.createDataFrame(keys, types).coalesce(1)
    bounding = targets.choose_bounding_columns(view, frame.schema, frame.columns)
    ranges = bounding.ranges_of_rows(keys)
    nullable = frozenset(name for name in keys.schema.names if keys[name].null_count)
    return ViewScope(reach, F.broadcast(frame), ranges, None, nullable, keys.num_rows)
