"""Carries provenance through a transform that does not know of it, and refuses a transform that is not row-local.

The analysed plan of the transform is rebuilt with the two provenance columns added to every projection. That works for exactly those
operators that treat each row by itself, so the same walk finds whether the border between two micro-batches could show in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from sluice.errors import DeclarationError
from sluice.flows import plans
from sluice.flows.writing.repeatable import find_unrepeatable_call
from sluice.lake.workspace import PROVENANCE

_ROW_LOCAL = {"Project", "Filter", "Generate", "Union", "SubqueryAlias", "View"}
_WHAT = {
    "Sort": "ORDER BY",
    "Aggregate": "an aggregate",
    "Distinct": "DISTINCT",
    "Deduplicate": "dropDuplicates",
    "Join": "a join",
    "Window": "a window function",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Sample": "a sample",
    "Repartition": "repartition",
}


def carry_provenance(frame: DataFrame, table: str, names: Sequence[str] = PROVENANCE) -> DataFrame:
    """The transform's result with the provenance columns of the rows it was made from.

    Raises DeclarationError where the transform is not row-local or not deterministic.
    """
    jvm = plans.spark_jvm()
    # What WITH names in a SQL text is put in its place; the analyser leaves that to the optimiser.
    inlined = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False)
    plan = _rebuild_plan(inlined.apply(plans.analyzed_plan(frame)), table, names)
    return DataFrame(
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(frame.sparkSession._jsparkSession, plan),
        frame.sparkSession,
    )


def _rebuild_plan(plan: Any, table: str, names: Sequence[str]) -> Any:
    children = plans.plan_children(plan)
    if not children:
        _check_plan_leaf(plan, table, names)
        return plan
    kind = plan.nodeName()
    if kind not in _ROW_LOCAL:
        what = _WHAT.get(kind, kind)
        raise DeclarationError(
            f"Table '{table}' uses {what}, which looks at more than one row: a border between micro-batches would show in its result. "
            "Make it a @materialized_view."
        )
    _check_plan_expressions(plan, table)
    below = [_rebuild_plan(child, table, names) for child in children]
    if kind != "Project":
        return plan.withNewChildren(plans.list_to_scala(plan.children(), below))
    projected = plans.scala_to_list(plan.projectList())
    present = {item.name() for item in projected}
    available = {item.name(): item for item in plans.plan_output(below[0])}
    added = [available[name] for name in names if name not in present]
    return plans.spark_jvm().org.apache.spark.sql.catalyst.plans.logical.Project(
        plans.list_to_scala(plan.projectList(), [*projected, *added]), below[0]
    )


def _check_plan_leaf(plan: Any, table: str, names: Sequence[str]) -> None:
    """Raises DeclarationError for rows that come from no record, as those of `VALUES` or `range`: no delivery could take them back."""
    missing = set(names) - {item.name() for item in plans.plan_output(plan)}
    if missing:
        raise DeclarationError(
            f"Table '{table}' makes rows that come from no row of its source ({plan.nodeName()}). Take them out."
        )


def _check_plan_expressions(plan: Any, table: str) -> None:
    for expression in plans.scala_to_list(plan.expressions()):
        what = find_unrepeatable_call(expression)
        if what:
            raise DeclarationError(
                f"Table '{table}' uses {what}: a replay would not give the same rows. Take it out of the transform."
            )
    if not plan.subqueries().isEmpty():
        raise DeclarationError(
            f"Table '{table}' uses a subquery, which looks at more than one row. Make it a @materialized_view."
        )
