"""Asks Spark's optimiser which part of a view a change of an input can touch.

A view's column bounds a recompute for an input if selecting rows of the view by that column is the same as selecting rows of the input. The
optimiser pushes a filter down to an input in exactly those cases. So the probe optimises an opaque filter on the view's column. If the
filter arrives right above every read of the input, always as the same expression over the input, then that expression gives,
for each changed row, the values of the view's column that it can touch. A column's name proves nothing.

The filter is `pmod(hash(c, (SELECT ...)), M) = 42`. Because of the subquery nobody can say what it gives for any value, a constant or NULL
among them, and so it moves only as every filter on the column would. Of a filter that the optimiser can compute, it asks whether the filter
discards the row that an outer join gives without a partner. If so, it makes the join an inner one, and takes `coalesce(c, 'none')` down to
the side without a partner. That column would seem to bound, though rows with 'none' appear and disappear that come from none of that side's.

If no expression over an input does, its changed rows can still be joined with the other inputs to find the values that they touch
(`through_joins.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.quoting import quote_column, quote_identifier
from sluice.flows import plans
from sluice.flows.gold.checked_view import call_checked_view
from sluice.flows.gold.in_time import InTime, resolve_time_reaches
from sluice.flows.gold.through_joins import JoinedColumns, find_joined_columns
from sluice.flows.placeholders import identify_placeholder, make_empty_placeholder
from sluice.flows.plans import (
    count_input_reads,
    find_used_columns,
    input_read_by_node,
    is_total_expression,
    keeps_equality,
)
from sluice.flows.writing.ranges import parse_truncation
from sluice.step_times import PLANNING, measure_step

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

PROBE_RULES = 2
"""Count this up when the probe finds other bounds for the same view. Each view is then probed at its next run, though nothing came for it,
and is recomputed once if its bounds are others: with wrong ones it may be wrong. flow.json has the number; it has none from before 2."""
_MODULUS = 1_000_003
_UNHASHED = ("map", "variant", "array", "struct")


@dataclass(frozen=True)
class InputReach:
    """How far changes of one input of a view reach.

    columns: by column of the view, the SQL expression over the input that gives the touched values. time: how far changes reach in time, if
    the view declares a reach. joined: the columns whose touched values a join with the other inputs gives, if there is neither. Without all
    three, a change can touch every row of the view. used: the columns of the input that the view needs, with their types; if these change, the
    whole view may change.
    """

    columns: Mapping[str, str]
    time: InTime | None = None
    used: tuple[str, ...] = ()
    joined: JoinedColumns | None = None

    @property
    def bounding(self) -> tuple[str, ...]:
        """Returns the columns of the view whose touched values are found, in order."""
        return self.joined.columns if self.joined else tuple(sorted(self.columns))

    @property
    def is_unbounded(self) -> bool:
        """Whether a change can touch every row of the view."""
        return not self.bounding and self.time is None

    @property
    def streamed(self) -> Mapping[str, str]:
        """Returns what is taken of a changed row: by name, the SQL expression over the input."""
        return {name: quote_identifier(name) for name in self.joined.asked} if self.joined else self.columns


_REACHES_BY_VIEW: WeakKeyDictionary[MaterializedView[Any], tuple[dict[str, StructType], dict[str, InputReach]]] = (
    WeakKeyDictionary()
)
"""What was found last for each view of this process, and for which columns of its inputs: a pipeline that is kept running asks each time."""


@measure_step(PLANNING)
def find_input_reaches(
    session: SparkSession, view: MaterializedView[Any], inputs: Mapping[str, StructType]
) -> dict[str, InputReach]:
    """Returns how far changes of each input of the view reach. Reads no data. inputs: their schemas by name, without technical columns.

    Of the columns that bound a recompute, it takes the view's keys, or others if no key is among them. Raises DeclarationError if an input is
    not used, or if a declared reach in time does not fit.
    """
    known = _REACHES_BY_VIEW.get(view)
    if known is None or known[0] != inputs:
        known = _REACHES_BY_VIEW[view] = dict(inputs), _probe_input_reaches(session, view, inputs)
    return dict(known[1])


def _probe_input_reaches(
    session: SparkSession, view: MaterializedView[Any], inputs: Mapping[str, StructType]
) -> dict[str, InputReach]:
    leaves, result = call_checked_view(session, view, inputs)
    names = {identify_placeholder(leaf): name for name, leaf in leaves.items()}
    optimised = result._jdf.queryExecution().optimizedPlan()
    bounding, needed = (
        _find_bounding_expressions(view, result, leaves, names, count_input_reads(optimised, names)),
        find_used_columns(optimised, names),
    )
    times = resolve_time_reaches(view, leaves, result.schema, bounding)
    columns = {name: _prefer_key_columns(view, found) for name, found in bounding.items()}
    unbounded = [name for name in columns if not columns[name] and name not in times]
    wanted = _order_column_sets(view, columns.values())
    joined = {name: find_joined_columns(result, _recognise_input(names, name), wanted) for name in unbounded}
    return {name: InputReach(one, times.get(name), needed.get(name, ()), joined.get(name)) for name, one in columns.items()}


def _find_bounding_expressions(
    view: MaterializedView[Any],
    result: DataFrame,
    leaves: Mapping[str, DataFrame],
    names: Mapping[int, str],
    read_counts: Mapping[str, int],
) -> dict[str, dict[str, str]]:
    """Returns, by input and by column of the view that bounds a recompute for it, the expression over the input.

    Keys are preferred, and each column costs an optimised plan. So other columns are tried only if no key bounds some input.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in leaves}
    asked = {*view.keys, *(reach.column for reach in view.reach.values())}
    for position, field in sorted(enumerate(result.schema), key=lambda one: one[1].name not in asked):
        if field.name not in asked and all(not one.keys().isdisjoint(view.keys) for one in found.values()):
            break
        # For a treated column the transform gives another value than the stored one.
        if field.dataType.typeName() in _UNHASHED or field.name in view.treatments:
            continue
        for name, expression in _find_filter_arrivals(result, field.name, _MODULUS + 2 * position, names, read_counts).items():
            if expression is not None and _is_writable_over_input(leaves[name], expression):
                found[name][field.name] = expression
    return found


def _recognise_input(names: Mapping[int, str], name: str) -> Callable[[Any], bool]:
    """Returns a function that tells whether a node reads this input."""
    return lambda node: input_read_by_node(node, names) == name


def _order_column_sets(view: MaterializedView[Any], bounding: Collection[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Orders the sets of columns that bound an input: keys first, then those by which most inputs are read in part, then those with fewer values."""

    def rank(columns: tuple[str, ...]) -> tuple[object, ...]:
        narrowed = sum(not one.keys().isdisjoint(columns) for one in bounding)
        return set(columns).isdisjoint(view.keys), -narrowed, len(columns), columns

    return sorted({tuple(sorted(one)) for one in bounding if one}, key=rank)


def _prefer_key_columns(view: MaterializedView[Any], columns: dict[str, str]) -> dict[str, str]:
    keys = {key: columns[key] for key in view.keys if key in columns}
    return keys or columns


def _make_unknown_value(session: SparkSession) -> Column:
    """Returns a value that the optimiser cannot know, and so can compute nothing with: a subquery over rows that nobody has read."""
    return make_empty_placeholder(session, "unknown INT").agg(F.max("unknown")).scalar()


def _find_filter_arrivals(
    result: DataFrame, column: str, modulus: int, names: Mapping[int, str], read_counts: Mapping[str, int]
) -> dict[str, str | None]:
    """Returns, by input, the expression as which the filter on the column arrived wherever the input is read, or None if it missed one read.

    read_counts: how often the plan without the filter reads each input. A read that is gone with the filter counts as missed.
    """
    hashed = F.hash(quote_column(column), _make_unknown_value(result.sparkSession))
    filtered = result.where(F.pmod(hashed, F.lit(modulus)) == F.lit(42))
    found: dict[str, str | None] = {}
    seen: Counter[str] = Counter()

    def walk(plan: Any, conditions: list[Any]) -> None:
        kind = plan.nodeName()
        if kind == "Filter":
            conditions = [*conditions, plan.condition()]
        elif kind != "Project" and plan.children().size() > 0:
            conditions = []
        name = input_read_by_node(plan, names)
        if name is not None:
            here = next((text for condition in conditions if (text := _find_hashed_expression(condition, modulus, plan))), None)
            found[name] = here if name not in found or found[name] == here else None
            seen[name] += 1
        for subquery in plans.scala_to_list(plan.subqueries()):
            walk(subquery, [])
        for child in plans.scala_to_list(plan.children()):
            walk(child, conditions)

    walk(filtered._jdf.queryExecution().optimizedPlan(), [])
    return found | {name: None for name in names.values() if seen[name] == 0 or seen[name] < read_counts[name]}


def _find_hashed_expression(condition: Any, modulus: int, leaf: Any) -> str | None:
    """Returns what the probe's filter hashes, as SQL over the input's columns, or None if the condition has no such filter."""
    kind = condition.getClass().getSimpleName()
    parts = condition.children()
    if kind == "And":
        return _find_hashed_expression(parts.apply(0), modulus, leaf) or _find_hashed_expression(parts.apply(1), modulus, leaf)
    if kind != "EqualTo" or str(modulus) not in parts.apply(0).toString():
        return None
    remainder = parts.apply(0)
    if remainder.getClass().getSimpleName() != "Pmod":
        return None
    hashed = remainder.children().apply(0)
    if hashed.getClass().getSimpleName() != "Murmur3Hash" or hashed.children().size() != 2:
        return None
    # Where the column is a constant, as in one branch of a union, no value of the input says what a change touches.
    if condition.references().isEmpty() or not condition.references().subsetOf(leaf.outputSet()):
        return None
    expression = hashed.children().apply(0)
    text = _unqualified_sql(expression)
    is_bound = keeps_equality(expression) and (parse_truncation(text) or is_total_expression(expression))
    return text if is_bound else None


def _unqualified_sql(expression: Any) -> str:
    """Returns the expression as SQL with unqualified column names, because an alias from the transform is not known here."""
    return str(_strip_qualifiers(expression).sql())


def _strip_qualifiers(expression: Any) -> Any:
    kind, children = expression.getClass().getSimpleName(), expression.children()
    if kind == "AttributeReference":
        nothing = expression.qualifier().take(0)
        return expression.withQualifier(nothing)
    if children.isEmpty():
        return expression
    if kind == "KnownNullable":
        return _strip_qualifiers(children.apply(0))
    if kind == "PreciseTimestampConversion":
        return _rewrite_window_conversion(expression, _strip_qualifiers(children.apply(0)))
    # Made from the expression's own kind of sequence, so that nothing has to be looked up in the JVM.
    bare = children.take(0)
    for position in range(children.size()):
        bare = bare.appended(_strip_qualifiers(children.apply(position)))
    return expression.withNewChildren(bare)


def _rewrite_window_conversion(conversion: Any, child: Any) -> Any:
    """Rewrites the start and end of a tumbling window, which SQL cannot express, with two functions that mean the same.

    Nothing else is rewritten. A session's start looks like the instant of its first event, and the optimiser pushes filters through the making
    of sessions as if it were, which gives wrong bounds (Spark 4.2).
    """
    known = plans.spark_jvm()
    expressions = known.org.apache.spark.sql.catalyst.expressions
    kinds = conversion.fromType().simpleString(), conversion.toType().simpleString()
    if kinds == ("timestamp", "bigint"):
        return expressions.UnixMicros(child)
    written = expressions.MicrosToTimestamp(child) if kinds == ("bigint", "timestamp") else conversion
    return written if parse_truncation(written.sql()) else conversion


def _is_writable_over_input(leaf: DataFrame, expression: str) -> bool:
    """Whether the expression can be written over the input. One that cannot is no bound, and the view is recomputed in full."""
    try:
        leaf.select(F.expr(expression))
    except PySparkException:
        return False
    return True
