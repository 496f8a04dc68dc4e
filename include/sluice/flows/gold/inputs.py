"""A view's inputs in the plan of its transform: where they are read, which columns matter, and what may not be read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.flows import plans
from sluice.flows.plans import find_unrepeatable_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GIVES_OWN_COLUMNS = ("Project", "Aggregate")
_FROM_ELSEWHERE = ("LogicalRelation", "HiveTableRelation", "DataSourceV2Relation", "DataSourceV2ScanRelation")


def count_input_reads(plan: Any, names: Mapping[int, str]) -> Counter[str]:
    """Returns how often a plan reads each input. names: by the id of the input's rows."""
    return Counter(name for one in plans.walk_plan_with_subqueries(plan) if (name := input_read_by_node(one, names)) is not None)


def input_read_by_node(plan: Any, names: Mapping[int, str]) -> str | None:
    """Returns the input that a node reads."""
    return names.get(int(plan.rdd().id())) if plan.nodeName() == "LogicalRDD" else None


def find_used_columns(plan: Any, names: Mapping[int, str]) -> dict[str, tuple[str, ...]]:
    """Returns, by input, the columns that an optimised plan needs, with their types. Another column or type may change the view."""
    found: defaultdict[str, set[str]] = defaultdict(set)

    def walk(node: Any, needed: Any) -> None:
        name = input_read_by_node(node, names)
        if name is not None:
            columns = (one for one in plans.scala_to_list(node.output()) if needed.contains(one))
            found[name].update(f"{one.name()} {one.dataType().simpleString()}" for one in columns)
        for subquery in plans.scala_to_list(node.subqueries()):
            walk(subquery, subquery.outputSet())
        below = node.references() if node.nodeName() in _GIVES_OWN_COLUMNS else getattr(needed, "$plus$plus")(node.references())
        for child in plans.scala_to_list(node.children()):
            walk(child, child.outputSet() if node.nodeName() == "Union" else below)

    walk(plan, plan.outputSet())
    return {name: tuple(sorted(columns)) for name, columns in found.items()}


def refuse_unfollowed_reads(session: SparkSession, view: str, plan: Any) -> None:
    """Raises DeclarationError if an analysed plan uses a clock or random numbers, or reads what the view does not declare.

    Nothing reports when these change, so rows that were computed before would stay as they were.
    """
    if any(
        one.getClass().getSimpleName() in _FROM_ELSEWHERE
        for one in plans.walk_plan_with_subqueries(plan)
        if one.children().isEmpty()
    ):
        raise DeclarationError(
            f"View '{view}' reads a table or files that it does not name in reads: it would not follow their changes. Name them there."
        )
    what = _find_sample(plan) or _find_unrepeatable_in_plan(plan) or plans.find_moving_date_in_plan(session, plan)
    if what:
        raise DeclarationError(
            f"View '{view}' uses {what}: rows that no change touches would stay as they were made. Take it out of the transform; "
            "what depends on today belongs into a @view, which is computed when it is read."
        )


def _find_sample(plan: Any) -> str | None:
    """Describes a sample: which rows it has depends on their files, even with a seed, and no expression of the plan shows that."""
    nodes = plans.walk_plan_with_subqueries(plan)
    return "a sample" if any(node.nodeName() == "Sample" for node in nodes) else None


def _find_unrepeatable_in_plan(plan: Any) -> str | None:
    """Returns what in a plan gives another result each time. Single expressions are inspected only if the whole plan is not repeatable."""
    patterns = plans.spark_jvm().org.apache.spark.sql.catalyst.trees.TreePattern
    if plan.deterministic() and not plan.containsPattern(patterns.CURRENT_LIKE()):
        return None
    return next(
        (
            said
            for node in plans.walk_plan_with_subqueries(plan)
            for one in plans.scala_to_list(node.expressions())
            if (said := find_unrepeatable_call(one))
        ),
        None,
    )
