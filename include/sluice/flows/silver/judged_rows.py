"""Makes the rows of a silver table from bronze with today's code, with provenance and verdicts.

Transforms do not know of provenance. The analysed plan is rebuilt with the two provenance columns added to every projection. That works
for exactly those operators that treat each row by itself, so the same walk refuses a transform whose result could depend on where one
micro-batch ends.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructType

from sluice import delta_log
from sluice.declare.cdc import change_log
from sluice.declare.cdc.change_log import KNOWN
from sluice.declare.datasets.tables import AnyTable
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column, quote_columns
from sluice.errors import DeclarationError, SluiceError
from sluice.flows import plans
from sluice.flows.plans import find_unrepeatable_call
from sluice.flows.writing import enforced, targets
from sluice.flows.writing.difference import null_safe_equality
from sluice.lake import table_creation, table_frames
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import anonymised, treatments
from sluice.quality import verdicts
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column

_FEW = 100
TWO_FILES = "Table '{}' declares key_in_one_file, but a key of it came in two files."
_NOT_REPEATABLE = "Table '{}' uses {}: a replay would not give the same rows. Take it out of the transform."
_ROW_LOCAL = {"Project", "Filter", "Generate", "Union", "SubqueryAlias", "View"}
_MAKES_COLUMNS = {"Project", "Generate"}
_PASSES_ON = {"Alias", "Coalesce"}
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


def silver_table_schema(workspace: Workspace, table: AnyTable, source: Source) -> StructType | None:
    """Returns the columns of the table's transform, and the provenance. None while a source without a declared schema has had no record."""
    path = workspace.path(source.name)
    if not delta_log.is_delta_table(path):
        return None
    bronze = anonymised.bronze_rows_for_table(table, table_frames.read_table(workspace.session, path))
    if not delivered_columns(bronze.columns):
        return None
    rows = transform_source_rows(table, bronze)
    stored = check_table_columns(table, rows)
    verdicts.check_conditions(workspace.session, table, rows.schema)
    return stored


def transform_source_rows(table: AnyTable, bronze: DataFrame) -> DataFrame:
    """Applies the transform to records. Each row of the result has its provenance."""
    return replace_negative_zeros(carry_provenance(table(bronze), table.name))


def check_table_columns(table: AnyTable, rows: DataFrame) -> StructType:
    """Returns the columns of the transform's rows as they are stored. Raises DeclarationError if they differ from those declared."""
    enforced.check_declared_schema(table, rows.schema)
    targets.check_column_names(table, rows.columns, signs="`.")
    judged = verdicts.add_verdict_column(rows, ())
    stored = order_provenance_last(prepare_rows_for_storage(None, table, judged).drop(*verdicts.VERDICT).schema)
    targets.check_declared_columns(table, stored)
    return stored


def order_provenance_last(schema: StructType) -> StructType:
    """Returns the columns of a transform's result with the provenance last."""
    return StructType([schema[n] for n in schema.names if n not in PROVENANCE] + [schema[n] for n in PROVENANCE])


def make_judged_rows(
    workspace: Workspace, table: AnyTable, source: Source, live: Sequence[int], dated: Column | None = None
) -> DataFrame:
    """Returns the transform's rows of these deliveries, with verdicts. dated: a further condition on rows of bronze."""
    low, high = (min(live), max(live)) if live else (0, 0)
    everything = anonymised.bronze_rows_for_table(table, table_frames.read_table(workspace.session, workspace.path(source.name)))
    bronze = everything.where(F.col("_delivery").between(low, high))
    # A row-local transform commutes with the choice of deliveries. Made after it, the choice is not in the plan that is rebuilt.
    made = transform_source_rows(table, bronze if dated is None else bronze.where(dated))
    rows = select_deliveries(workspace, made, live)
    judged = judge_rows(workspace.settings, table, rows.select(*order_provenance_last(rows.schema).names))
    return prepare_rows_for_storage(workspace.settings, table, judged)


def select_deliveries(workspace: Workspace, rows: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """Selects rows of these deliveries. A few numbers stand in the condition, which needs no Spark job; thousands would be slow to plan."""
    if len(numbers) <= _FEW:
        return rows.where(F.col("_delivery").isin(list(numbers)))
    chosen = table_creation.make_inline_frame(workspace.session, [(number,) for number in numbers], "_delivery BIGINT")
    return rows.join(F.broadcast(chosen), "_delivery", "left_semi")


def judge_rows(settings: Settings | None, table: AnyTable, rows: DataFrame) -> DataFrame:
    """Returns a transform's rows with their verdicts. settings: as of `prepare_rows_for_storage`.

    If the treatment of a change's key leaves nothing of it, the change lacks its key: the changes of different keys would be those of one.
    """
    judged = verdicts.add_verdict_column(rows, table.expectations)
    keys = {f"_treated_{name}": name for name in change_log.list_treated_keys(table)}
    if not keys:
        return judged
    copied = judged.withColumns({copy: quote_column(name) for copy, name in keys.items()})
    wanted = {copy: table.treatments[name] for copy, name in keys.items()}
    treated = treatments.apply_treatments(settings, copied, wanted, f"Table '{table.name}'")
    unknown = functools.reduce(operator.or_, (quote_column(copy).isNull() for copy in keys))
    failed = F.col(verdicts.FAILED_RULES)
    extended = F.when(unknown, F.array_union(failed, F.array(F.lit(KNOWN)))).otherwise(failed)
    return treated.withColumn(verdicts.FAILED_RULES, extended).drop(*keys)


def prepare_rows_for_storage(settings: Settings | None, table: AnyTable, judged: DataFrame) -> DataFrame:
    """Returns rows with a verdict as they are stored: personal columns treated, a change log in its shape. The verdict comes last.

    settings: None if only the columns matter.
    """
    rows = treatments.apply_treatments(settings, judged, table.treatments, f"Table '{table.name}'")
    shaped = table.shape(rows) if table.shape else rows
    return shaped.select(*order_provenance_last(shaped.drop(*verdicts.VERDICT).schema).names, *verdicts.VERDICT)


def select_accepted_rows(table: AnyTable, rows: DataFrame) -> DataFrame:
    """Returns the rows that their verdicts accept, without the verdict."""
    return rows.where(verdicts.is_row_accepted(table.expectations)).drop(*verdicts.VERDICT)


def select_rows_of_keys(table: AnyTable, rows: DataFrame, keys: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """Returns the rows whose key is among the keys; NULLs equal each other. by: columns to use instead of the table's keys."""
    names = by or table.keys
    condition = null_safe_equality(quote_columns(names, "rows"), quote_columns(names, "wanted"))
    wanted = keys.select(*quote_columns(names)).alias("wanted")
    return rows.alias("rows").join(wanted, condition, "left_semi")


def leave_out_rows_of_keys(rows: DataFrame, keys: DataFrame) -> DataFrame:
    """Returns the rows whose values in the columns of `keys` are in none of its rows; NULLs equal each other."""
    condition = null_safe_equality(
        quote_columns(keys.columns, "rows"),
        quote_columns(keys.columns, "found"),
    )
    return rows.alias("rows").join(keys.alias("found"), condition, "left_anti")


def check_key_in_one_file(table: AnyTable, good: DataFrame) -> None:
    """Raises SluiceError if a key has rows of two deliveries. Only one delivery of each file counts, so the key came in two files."""
    if table.key_in_one_file:
        keys = quote_columns(table.keys)
        if not good.groupBy(*keys).agg(F.count_distinct("_delivery").alias("files")).where("files > 1").isEmpty():
            raise SluiceError(TWO_FILES.format(table.name))


def carry_provenance(frame: DataFrame, table: str, names: Sequence[str] = PROVENANCE) -> DataFrame:
    """Returns the transform's result with the provenance columns of the rows that it was made from.

    Raises DeclarationError if the transform is not row-local or not deterministic.
    """
    jvm = plans.spark_jvm()
    # Common table expressions (WITH) are inlined; the analyser leaves that to the optimiser.
    inlined = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False)
    analyzed = plans.analyzed_plan(frame)
    if moving := plans.find_moving_date_in_plan(frame.sparkSession, analyzed):
        raise DeclarationError(_NOT_REPEATABLE.format(table, moving))
    plan = _rebuild_plan(inlined.apply(analyzed), table, names)
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
    _refuse_own_provenance(plan, below, table, names)
    if kind != "Project":
        return plan.withNewChildren(plans.list_to_scala(plan.children(), below))
    projected = plans.scala_to_list(plan.projectList())
    present = {item.name() for item in projected}
    available = {item.name(): item for item in plans.plan_output(below[0])}
    added = [available[name] for name in names if name not in present]
    return plans.spark_jvm().org.apache.spark.sql.catalyst.plans.logical.Project(
        plans.list_to_scala(plan.projectList(), [*projected, *added]), below[0]
    )


def _refuse_own_provenance(plan: Any, below: Sequence[Any], table: str, names: Sequence[str]) -> None:
    """Raises DeclarationError if a node makes another column with a name of the provenance, which rows would then be counted by."""
    kind = plan.nodeName()
    given = (
        plans.scala_to_list(plan.projectList() if kind == "Project" else plan.generatorOutput()) if kind in _MAKES_COLUMNS else []
    )
    carried = {item.name(): plans.expression_id(item) for item in plans.plan_output(below[0])} if given else {}
    for item in given:
        name = item.name()
        is_same = kind == "Project" and name in names and _find_carried_id(item) == carried[name]
        if name.lower() in names and not is_same:
            raise DeclarationError(
                f"Table '{table}' makes a column '{name}' of its own, which is Sluice's. Give it another name, or leave the column out "
                "of what changes all columns."
            )


def _find_carried_id(item: Any) -> Any:
    """The id of the column that an entry of a projection passes on; None if it makes a value. Provenance is never NULL."""
    while item.nodeName() in _PASSES_ON:
        item = item.children().apply(0)
    return plans.expression_id(item) if item.nodeName() == "AttributeReference" else None


def _check_plan_leaf(plan: Any, table: str, names: Sequence[str]) -> None:
    """Raises DeclarationError for rows that come from no record, such as those of `VALUES` or `range`: no delivery could take them back."""
    missing = set(names) - {item.name() for item in plans.plan_output(plan)}
    if missing:
        raise DeclarationError(
            f"Table '{table}' makes rows that come from no row of its source ({plan.nodeName()}). Take them out."
        )


def _check_plan_expressions(plan: Any, table: str) -> None:
    for expression in plans.scala_to_list(plan.expressions()):
        what = find_unrepeatable_call(expression)
        if what:
            raise DeclarationError(_NOT_REPEATABLE.format(table, what))
    if not plan.subqueries().isEmpty():
        raise DeclarationError(
            f"Table '{table}' uses a subquery, which looks at more than one row. Make it a @materialized_view."
        )


def replace_negative_zeros(frame: DataFrame) -> DataFrame:
    """Replaces -0.0 by 0.0. Spark holds them equal, but their texts differ, and ties are decided by text."""
    floating = [field.name for field in frame.schema if isinstance(field.dataType, DoubleType | FloatType)]
    return frame.withColumns({name: quote_column(name) + F.lit(0.0).cast(frame.schema[name].dataType) for name in floating})
