"""Finds the rows of a view that a change touches if only a join tells: a changed customer touches the rows of that customer's orders.

No value of the customer says which orders these are, but the view's own plan does. Replace the input by the changed rows and leave
out what computes values: what remains is a query over the changed rows and the other inputs, and it returns the touched values of the view's
columns.

The plan is followed from the input upwards, through operators for which this is known to be right; no column is followed through any other
operator. An operator is right if the query returns the wanted values of every view row that an old or a new row of the input takes part in.
Changes of other inputs are found by their own bounds. If a join follows several inputs, `ViewBatch` decides at which version each of them
is joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.quoting import quote_column
from sluice.errors import SluiceError
from sluice.flows import plans
from sluice.flows.plans import is_total_expression, keeps_equality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CHANGED = "_changed_rows"
"""The name of the changed rows in the view's plan."""

Columns = frozenset[int]
"""The columns of a plan, by their identities."""


@dataclass(frozen=True)
class FollowedRows:
    """A part of a plan that reads the input. columns: those that are followed from its changed rows. select: makes the plan that gives some."""

    columns: Columns
    select: Callable[[Columns], Any]


@dataclass(frozen=True)
class JoinedColumns:
    """columns: those of the view whose touched values a join gives, in order. asked: the columns of the input that the join needs, in order."""

    columns: tuple[str, ...]
    asked: tuple[str, ...]


def find_joined_columns(
    result: DataFrame, is_input: Callable[[Any], bool], wanted: Sequence[tuple[str, ...]]
) -> JoinedColumns | None:
    """Returns the first of these sets of the view's columns that is followed from an input, or None. Reads no data.

    result: the view's frame over placeholders. is_input: tells whether a node of its plan is the input.
    """
    plan = plans.analyzed_plan(result)
    rows = follow_input(plan, is_input)
    for names in wanted if rows is not None else ():
        columns = _identify_columns(plan, names)
        if rows is None or not columns <= rows.columns:
            continue
        found = rows.select(columns)
        leaf = next(node for node in plans.walk_plan_nodes(found) if node.nodeName() == "Project" and is_input(node.child()))
        asked = tuple(sorted(str(one.name()) for one in plans.plan_output(leaf)))
        if asked and is_followed_by_equality(plans.optimize_plan(result.sparkSession, found), is_input):
            return JoinedColumns(names, asked)
    return None


def find_touched_values(
    view: MaterializedView[Any], name: str, joined: JoinedColumns, changed: DataFrame, inputs: Mapping[str, DataFrame]
) -> DataFrame:
    """Returns the values of the joined columns that changed rows of an input touch.

    changed: old and new rows, with the columns that the join needs. inputs: all inputs by name; only the columns of the changed one count.
    """
    asked = set(joined.asked)
    columns = [
        quote_column(field.name) if field.name in asked else F.lit(None).cast(field.dataType).alias(field.name)
        for field in inputs[name].schema
    ]
    changed_inputs = {**inputs, name: changed.select(*columns).alias(_CHANGED)}
    result = view(*(changed_inputs[one] for one in view.reads))
    plan = plans.analyzed_plan(result)
    rows = follow_input(plan, lambda node: node.nodeName() == "SubqueryAlias" and node.alias() == _CHANGED)
    if rows is None:
        raise SluiceError(f"View '{view.name}': its transform reads '{name}' in another way when it is called again.")
    found = rows.select(_identify_columns(plan, joined.columns))
    wanted = {column: plans.expression_id(plans.find_output_column(plan, column)) for column in joined.columns}
    return plans.select_plan_columns(result.sparkSession, found, wanted)


def _identify_columns(plan: Any, names: Iterable[str]) -> Columns:
    found = (plans.find_output_column(plan, name) for name in names)
    return frozenset(plans.expression_id(one) for one in found if one is not None)


def follow_input(plan: Any, is_input: Callable[[Any], bool]) -> FollowedRows | None:
    """Returns what can be followed in an analysed plan from the changed rows of an input. None if the plan does not read it exactly once.

    is_input: tells whether a node is the input.
    """
    read = [node for node in plans.walk_plan_with_subqueries(plan) if is_input(node)]
    return _follow_node(plan, is_input) if len(read) == 1 else None


def is_followed_by_equality(plan: Any, is_input: Callable[[Any], bool]) -> bool:
    """Whether an optimised plan finds the partners of changed rows by equal values. Otherwise each would be compared with every row."""
    keys = plans.spark_jvm().org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
    return all(
        keys.unapply(node).isDefined()
        for node in plans.walk_plan_nodes(plan)
        if node.nodeName() == "Join" and _reads_input(node, is_input)
    )


def _follow_node(node: Any, is_input: Callable[[Any], bool]) -> FollowedRows | None:
    if is_input(node):
        return FollowedRows(
            _identify_all(plans.plan_output(node)), lambda wanted: _project_entries(plans.plan_output(node), wanted, node)
        )
    reading = [child for child in plans.plan_children(node) if _reads_input(child, is_input)]
    follow = _OPERATORS.get(str(node.nodeName()))
    below = _follow_node(reading[0], is_input) if follow is not None and reading else None
    return follow(node, reading[0], below) if follow is not None and below is not None else None


def _reads_input(node: Any, is_input: Callable[[Any], bool]) -> bool:
    return any(is_input(one) for one in plans.walk_plan_nodes(node))


def _follow_unchanged(node: Any, child: Any, below: FollowedRows) -> FollowedRows:
    """Follows an operator that passes on each row or leaves some out. Without it there are only more rows."""
    return below


def _follow_project(node: Any, child: Any, below: FollowedRows) -> FollowedRows:
    return _follow_entries(plans.scala_to_list(node.projectList()), below)


def _follow_aggregate(node: Any, child: Any, below: FollowedRows) -> FollowedRows | None:
    """Follows the groups that a row is in. An entry is either an aggregate, which is no total expression, or made of what is grouped by."""
    if node.groupingExpressions().isEmpty():
        return None
    return _follow_entries(plans.scala_to_list(node.aggregateExpressions()), below)


def _follow_entries(entries: Sequence[Any], below: FollowedRows) -> FollowedRows:
    needed = {
        plans.expression_id(entry): _identify_all(plans.scala_to_list(entry.references().toSeq()))
        for entry in entries
        if _gives_followed_value(entry.child() if entry.nodeName() == "Alias" else entry)
    }
    followed = frozenset(column for column, columns in needed.items() if columns <= below.columns)
    return FollowedRows(
        followed,
        lambda wanted: _project_entries(entries, wanted, below.select(_unite_columns(needed[column] for column in wanted))),
    )


def _gives_followed_value(expression: Any) -> bool:
    return is_total_expression(expression) and keeps_equality(expression)


def _follow_filter(node: Any, child: Any, below: FollowedRows) -> FollowedRows:
    """Follows a filter without the conditions that the rows below cannot answer, or that could fail on a row that the transform leaves out before."""
    kept = [
        part
        for part in _split_conjuncts(node.condition())
        if is_total_expression(part) and _referenced_columns(part) <= below.columns
    ]
    if not kept:
        return below
    condition = kept[0]
    for part in kept[1:]:
        condition = plans.spark_jvm().org.apache.spark.sql.catalyst.expressions.And(condition, part)
    asked = _unite_columns(map(_referenced_columns, kept))
    return FollowedRows(below.columns, lambda wanted: _plan_operators().Filter(condition, below.select(wanted | asked)))


@dataclass(frozen=True)
class _JoinRule:
    """How a join is made over the changed rows of one of its sides, which then stands left.

    own, other: whether columns of that side, and of the other, are followed. If a row without a partner has NULL in a side's columns, the
    change that removes the partner touches NULL, which no partner gives.
    """

    kind: str
    own: bool = True
    other: bool = True


_JOINS: Mapping[tuple[str, bool], _JoinRule] = {
    ("INNER", True): _JoinRule("inner"),
    ("INNER", False): _JoinRule("inner"),
    ("CROSS", True): _JoinRule("inner"),
    ("CROSS", False): _JoinRule("inner"),
    ("LEFT OUTER", True): _JoinRule("leftouter"),
    ("LEFT OUTER", False): _JoinRule("inner", own=False),
    ("RIGHT OUTER", True): _JoinRule("inner", own=False),
    ("RIGHT OUTER", False): _JoinRule("leftouter"),
    ("FULL OUTER", True): _JoinRule("leftouter", own=False),
    ("FULL OUTER", False): _JoinRule("leftouter", own=False),
    ("LEFT SEMI", True): _JoinRule("leftsemi", other=False),
    ("LEFT SEMI", False): _JoinRule("inner", own=False),
    ("LEFT ANTI", True): _JoinRule("leftanti", other=False),
    ("LEFT ANTI", False): _JoinRule("inner", own=False),
}
"""The rules by the kind of join and by whether the input is read on its left side."""


def _follow_join(node: Any, child: Any, below: FollowedRows) -> FollowedRows | None:
    left = bool(node.left().equals(child))
    rule = _JOINS.get((str(node.joinType().sql()), left))
    other = node.right() if left else node.left()
    condition = node.condition()
    if rule is None or (condition.isDefined() and not is_total_expression(condition.get())):
        return None
    own, others = _identify_all(plans.plan_output(child)), _identify_all(plans.plan_output(other))
    asked = _referenced_columns(condition.get()) & own if condition.isDefined() else frozenset()
    if not asked <= below.columns:
        return None
    kind = plans.spark_jvm().org.apache.spark.sql.catalyst.plans.JoinType.apply(rule.kind)
    followed = (below.columns if rule.own else frozenset()) | (others if rule.other else frozenset())
    return FollowedRows(
        followed, lambda wanted: _plan_operators().Join(below.select((wanted & own) | asked), other, kind, condition, node.hint())
    )


def _follow_window(node: Any, child: Any, below: FollowedRows) -> FollowedRows:
    """Follows the partitions that a row is in. Other rows of a partition are touched as well, and they share only the partition's columns."""
    partitioned = [one for one in plans.scala_to_list(node.partitionSpec()) if one.nodeName() == "AttributeReference"]
    return FollowedRows(below.columns & _identify_all(partitioned), below.select)


def _follow_deduplicate(node: Any, child: Any, below: FollowedRows) -> FollowedRows:
    """Follows the keys that a row has. A change may let another row of a key be taken."""
    return FollowedRows(below.columns & _identify_all(plans.scala_to_list(node.keys())), below.select)


def _follow_union(node: Any, child: Any, below: FollowedRows) -> FollowedRows:
    """Follows the branch that reads the input. A union's columns have the identities of its first branch's columns."""
    given = dict(zip(map(plans.expression_id, plans.plan_output(node)), plans.plan_output(child), strict=True))
    outputs = {plans.expression_id(one): one for one in plans.plan_output(node)}
    source = {column: plans.expression_id(one) for column, one in given.items()}

    def select(wanted: Columns) -> Any:
        renamed = [_rename_column(given[column], outputs[column]) for column in sorted(wanted)]
        rows = below.select(frozenset(source[column] for column in wanted))
        return _plan_operators().Project(plans.list_to_scala(node.output(), renamed), rows)

    return FollowedRows(frozenset(column for column, one in source.items() if one in below.columns), select)


_OPERATORS: Mapping[str, Callable[[Any, Any, FollowedRows], FollowedRows | None]] = {
    "Project": _follow_project,
    "Filter": _follow_filter,
    "Join": _follow_join,
    "Aggregate": _follow_aggregate,
    "Window": _follow_window,
    "Distinct": _follow_unchanged,
    "Deduplicate": _follow_deduplicate,
    "Union": _follow_union,
    "SubqueryAlias": _follow_unchanged,
    "View": _follow_unchanged,
    "Sort": _follow_unchanged,
    "ResolvedHint": _follow_unchanged,
}
"""The operators that are followed. Any other ends the search."""


def _project_entries(entries: Sequence[Any], wanted: Columns, below: Any) -> Any:
    kept = [entry for entry in entries if plans.expression_id(entry) in wanted]
    return _plan_operators().Project(plans.list_to_scala(below.output(), kept), below)


def _rename_column(column: Any, named: Any) -> Any:
    """Returns a column under the name and the identity of another."""
    jvm = plans.spark_jvm()
    nothing = jvm.scala.Option.empty()
    names = named.qualifier()
    return jvm.org.apache.spark.sql.catalyst.expressions.Alias(
        column, named.name(), named.exprId(), names, nothing, names.take(0)
    )


def _split_conjuncts(condition: Any) -> list[Any]:
    if condition.nodeName() != "And":
        return [condition]
    return [part for child in plans.plan_children(condition) for part in _split_conjuncts(child)]


def _referenced_columns(expression: Any) -> Columns:
    return _identify_all(plans.scala_to_list(expression.references().toSeq()))


def _identify_all(columns: Iterable[Any]) -> Columns:
    return frozenset(map(plans.expression_id, columns))


def _unite_columns(columns: Iterable[Columns]) -> Columns:
    return frozenset().union(*columns)


def _plan_operators() -> Any:
    return plans.spark_jvm().org.apache.spark.sql.catalyst.plans.logical
