"""Finds the input columns that each column of a table comes from, by Spark's analysed plan of the declared transform. Reads no data.

The plan is walked from the inputs up. Each column of a node is known by Spark's identity for it, with the input columns that its value
comes from (identity, transformation, aggregation). A node may also choose, match or group rows by columns (filter, join, group by). These
count for every column above it and are kept once for the table. If Sluice does not know a node, such as a Python function over whole groups
of rows, each of its columns may come from everything that it is given.

Personal columns are treated before they are stored; such a column says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice.column_origins import (
    AGGREGATION,
    DIRECT,
    FILTER,
    GROUP_BY,
    IDENTITY,
    JOIN,
    SORT,
    TRANSFORMATION,
    WINDOW,
    Origin,
    TableOrigins,
    TracedColumn,
)
from sluice.declare.datasets.computed import MaskedProjection, View
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.flows import plans
from sluice.flows.placeholders import identify_placeholder, make_empty_placeholder
from sluice.flows.plans import input_read_by_node
from sluice.flows.silver import judged_rows
from sluice.flows.stateful.inputs import with_input_watermark
from sluice.lake.workspace import PROVENANCE
from sluice.privacy.treatments import apply_treatments, name_treatment
from sluice.quality import verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Leaves = Mapping[str, "DataFrame"]
_SUBQUERY_VALUES = ("ScalarSubquery", "LateralSubquery")
_Sources = dict[tuple[str, str], str]
"""By table and column, how the column counts."""


def trace_table_columns(
    session: SparkSession, declared: Dataset[Any] | View[Any], inputs: Mapping[str, StructType], mark: str
) -> TableOrigins:
    """Returns the columns that a table stores, each with its origins. inputs: their columns by name. mark: is kept with the result.

    Reads no data and starts no Spark job. Raises what the transform raises.
    """
    preview = declared.kind.preview_rows
    if preview is None:
        raise declared.kind.lacking_function_error("preview_rows")
    leaves = {name: make_empty_placeholder(session, schema) for name, schema in inputs.items()}
    frame = preview(declared, leaves)
    walk = _PlanWalk({identify_placeholder(leaf): name for name, leaf in leaves.items()})
    inlined = plans.spark_jvm().org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False)
    plan = inlined.apply(plans.analyzed_plan(frame))
    walk.trace_node(plan)
    treated = _name_treated_columns(declared)
    columns = [
        TracedColumn(
            field.name,
            field.dataType.simpleString(),
            _sort_origins(walk.columns.get(plans.expression_id(attribute), {})),
            treated.get(field.name),
        )
        for field, attribute in zip(frame.schema, plans.plan_output(plan), strict=True)
    ]
    rows_by = tuple(sorted(Origin(*one) for one in walk.rows_by if one[1] not in PROVENANCE))
    return TableOrigins(declared.name, mark, tuple(columns), rows_by)


def _name_treated_columns(declared: Dataset[Any] | View[Any]) -> dict[str, str]:
    """Returns what is done to each personal column before anybody sees it: a stored table treats it, a role's view masks it."""
    if isinstance(declared, View):
        return declared.function.mask_names() if isinstance(declared.function, MaskedProjection) else {}
    return {name: name_treatment(how) for name, how in declared.treatments.items()}


def preview_table_rows(table: Table[Any], leaves: Leaves) -> DataFrame:
    """Returns a frame of the table's rows as they are stored."""
    # Without the step that only writes -0.0 as 0.0: the column still comes from its input unchanged.
    rows = judged_rows.carry_provenance(table(leaves[table.reads[0]]), table.name)
    return judged_rows.prepare_rows_for_storage(None, table, verdicts.add_verdict_column(rows, ())).drop(*verdicts.VERDICT)


def preview_stream_rows(stream: Windowed[Any], leaves: Leaves) -> DataFrame:
    """Returns a frame of a stream's rows. Its plan over tables has the same columns as the one over streams."""
    given = (with_input_watermark(stream, name, _without_provenance(leaves[name])) for name in stream.reads)
    return apply_treatments(None, stream(*given), stream.treatments, f"Stream '{stream.name}'")


def preview_view_rows(view: MaterializedView[Any], leaves: Leaves) -> DataFrame:
    """Returns a frame of a materialised view's rows."""
    rows = view(*(_without_provenance(leaves[name]) for name in view.reads))
    return apply_treatments(None, rows, view.treatments, f"View '{view.name}'")


def preview_computed_rows(view: View[Any], leaves: Leaves) -> DataFrame:
    """Returns what a reader of a computed view gets."""
    return view(*(_without_provenance(leaves[name]) for name in view.reads))


def _without_provenance(frame: DataFrame) -> DataFrame:
    return frame.drop(*PROVENANCE)


def _sort_origins(sources: _Sources) -> tuple[Origin, ...]:
    return tuple(sorted(Origin(table, column, way) for (table, column), way in sources.items()))


@dataclass
class _PlanWalk:
    """One walk through a plan. names: the inputs by the id of their rows. columns: by identity, the origins found so far."""

    names: Mapping[int, str]
    columns: dict[int, _Sources] = field(default_factory=dict)
    rows_by: set[tuple[str, str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._patterns = plans.spark_jvm().org.apache.spark.sql.catalyst.trees.TreePattern

    def trace_node(self, plan: Any) -> None:
        """Takes in a node and everything below it."""
        children = plans.plan_children(plan)
        for child in children:
            self.trace_node(child)
        if plan.containsPattern(self._patterns.PLAN_EXPRESSION()):
            for subquery in plans.scala_to_list(plan.subqueries()):
                self.trace_node(subquery)
        trace = _NODES.get(plan.nodeName())
        if trace is not None:
            trace(self, plan)
        self._take_unknown_output(plan, children)

    def define_columns(self, named: Iterable[Any]) -> None:
        """Takes in named expressions, which a node returns as its columns."""
        for one in named:
            number = plans.expression_id(one)
            if one.nodeName() != "AttributeReference":
                self.columns[number] = self.find_sources(one)
            else:
                self.columns.setdefault(number, {})

    def choose_rows_by(self, way: str, expressions: Iterable[Any]) -> None:
        """Takes in expressions that decide which rows there are."""
        for one in expressions:
            self.rows_by |= {(table, column, way) for table, column in self.find_sources(one)}

    def find_sources(self, expression: Any) -> _Sources:
        """Returns the input columns that an expression is made of."""
        found: _Sources = {}
        way = self._find_way(expression)
        for attribute in plans.scala_to_list(expression.references().toSeq()):
            _merge_sources(found, self.columns.get(plans.expression_id(attribute), {}), way)
        if expression.containsPattern(self._patterns.PLAN_EXPRESSION()):
            for one in plans.walk_plan_nodes(expression):
                if one.getClass().getSimpleName() in _SUBQUERY_VALUES:
                    first = plans.plan_output(one.plan())[:1]
                    for attribute in first:
                        _merge_sources(found, self.columns.get(plans.expression_id(attribute), {}), TRANSFORMATION)
        return found

    def _find_way(self, expression: Any) -> str:
        below = expression.child() if expression.nodeName() == "Alias" else expression
        if below.nodeName() == "AttributeReference":
            return IDENTITY
        return AGGREGATION if expression.containsPattern(self._patterns.AGGREGATE_EXPRESSION()) else TRANSFORMATION

    def _take_unknown_output(self, plan: Any, children: list[Any]) -> None:
        """Takes in columns that no rule has explained: those of an input come from it, all others from everything that the node is given."""
        unknown = [one for one in plans.plan_output(plan) if plans.expression_id(one) not in self.columns]
        if not unknown:
            return
        name = input_read_by_node(plan, self.names)
        given: _Sources = {}
        for child in children:
            for attribute in plans.plan_output(child):
                _merge_sources(given, self.columns.get(plans.expression_id(attribute), {}), TRANSFORMATION)
        for one in unknown:
            self.columns[plans.expression_id(one)] = {(name, str(one.name())): IDENTITY} if name is not None else dict(given)


def _merge_sources(found: _Sources, more: _Sources, way: str) -> None:
    """Adds sources that an expression is made of in some way."""
    for source, before in more.items():
        found[source] = max(found.get(source, IDENTITY), before, way, key=DIRECT.index)


def _trace_project(walk: _PlanWalk, plan: Any) -> None:
    walk.define_columns(plans.scala_to_list(plan.projectList()))


def _trace_filter(walk: _PlanWalk, plan: Any) -> None:
    walk.choose_rows_by(FILTER, [plan.condition()])


def _trace_join(walk: _PlanWalk, plan: Any) -> None:
    if plan.condition().isDefined():
        walk.choose_rows_by(JOIN, [plan.condition().get()])


def _trace_aggregate(walk: _PlanWalk, plan: Any) -> None:
    walk.choose_rows_by(GROUP_BY, plans.scala_to_list(plan.groupingExpressions()))
    walk.define_columns(plans.scala_to_list(plan.aggregateExpressions()))


def _trace_window(walk: _PlanWalk, plan: Any) -> None:
    walk.choose_rows_by(WINDOW, [*plans.scala_to_list(plan.partitionSpec()), *plans.scala_to_list(plan.orderSpec())])
    for one in plans.scala_to_list(plan.windowExpressions()):
        # Only the function: the window's own columns decide which rows it sees, and are taken in above.
        sources = walk.find_sources(one.child().windowFunction())
        walk.columns[plans.expression_id(one)] = dict.fromkeys(sources, AGGREGATION)


def _trace_sort(walk: _PlanWalk, plan: Any) -> None:
    walk.choose_rows_by(SORT, plans.scala_to_list(plan.order()))


def _trace_deduplication(walk: _PlanWalk, plan: Any) -> None:
    walk.choose_rows_by(GROUP_BY, plans.scala_to_list(plan.keys()))


def _trace_distinct(walk: _PlanWalk, plan: Any) -> None:
    walk.choose_rows_by(GROUP_BY, plans.plan_output(plan))


def _trace_generate(walk: _PlanWalk, plan: Any) -> None:
    sources = {key: TRANSFORMATION for key in walk.find_sources(plan.generator())}
    for one in plans.scala_to_list(plan.generatorOutput()):
        walk.columns[plans.expression_id(one)] = dict(sources)


def _trace_by_position(walk: _PlanWalk, plan: Any) -> None:
    """Takes in a union: each column comes from the columns at its position in all parts."""
    for number, one in enumerate(plans.plan_output(plan)):
        found: _Sources = {}
        for child in plans.plan_children(plan):
            part = plans.plan_output(child)[number]
            _merge_sources(found, walk.columns.get(plans.expression_id(part), {}), IDENTITY)
        walk.columns[plans.expression_id(one)] = found


def _trace_set_difference(walk: _PlanWalk, plan: Any) -> None:
    """Takes in INTERSECT and EXCEPT: values come from the left side, and the right side decides which rows stay."""
    for child in plans.plan_children(plan):
        walk.choose_rows_by(FILTER, plans.plan_output(child))


def _trace_expand(walk: _PlanWalk, plan: Any) -> None:
    """Takes in ROLLUP, CUBE and GROUPING SETS: each column comes from the columns at its position in all projections."""
    projections = [plans.scala_to_list(one) for one in plans.scala_to_list(plan.projections())]
    for number, one in enumerate(plans.plan_output(plan)):
        found: _Sources = {}
        for projection in projections:
            part = projection[number]
            _merge_sources(found, walk.find_sources(part), IDENTITY)
        walk.columns[plans.expression_id(one)] = found


_NODES: Mapping[str, Callable[[_PlanWalk, Any], None]] = {
    "Project": _trace_project,
    "Filter": _trace_filter,
    "Join": _trace_join,
    "LateralJoin": _trace_join,
    "Aggregate": _trace_aggregate,
    "Window": _trace_window,
    "Sort": _trace_sort,
    "Deduplicate": _trace_deduplication,
    "DeduplicateWithinWatermark": _trace_deduplication,
    "Distinct": _trace_distinct,
    "Generate": _trace_generate,
    "Union": _trace_by_position,
    "Intersect": _trace_set_difference,
    "Except": _trace_set_difference,
    "Expand": _trace_expand,
}
"""What each kind of node says about its columns and rows. Any other passes columns on, or makes them from everything that it is given."""
