"""Whether expectations can work on their table: checked against its columns, before any data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructType

from sluice.declare.datasets.tables import Dataset
from sluice.declare.quality.expectations import Expectation
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOCK = re.compile(r"\b(current_timestamp|current_date|current_time|localtimestamp|now|curdate)\(", re.IGNORECASE)
_WHAT = {"Aggregate": "an aggregate", "Window": "a window function", "Generate": "a generator"}
_UNRESOLVED = "UNRESOLVED_COLUMN"


def check_conditions(session: SparkSession, dataset: Dataset[Any], columns: StructType) -> None:
    """Raises DeclarationError with the first expectation that cannot work on rows of these columns."""
    found = find_condition_mistakes(session, dataset, columns)
    if found:
        raise DeclarationError(found[0])


def find_condition_mistakes(session: SparkSession, dataset: Dataset[Any], columns: StructType) -> list[str]:
    """What is wrong with a table's expectations on rows, one text for each that cannot work. columns: those that the transform gives."""
    if not dataset.expectations:
        return []
    rows = session.createDataFrame([], columns)
    clock = dataset.kind.may_ask_clock
    if _all_conditions_work(rows, dataset.expectations, clock):
        return []
    each = [(one.name, _find_condition_mistake(rows, one, clock)) for one in dataset.expectations]
    return [f"{dataset.label}, expectation '{name}': {mistake}" for name, mistake in each if mistake]


def _all_conditions_work(rows: DataFrame, expectations: Sequence[Expectation], clock: bool) -> bool:
    """Whether all of them can work, which is the usual case, by one analysis."""
    try:
        judged = rows.select(*(F.expr(one.condition) for one in expectations))
    except PySparkException:
        return False
    return _are_all_boolean(judged) and _find_forbidden_construct(judged, clock) is None


def _find_condition_mistake(rows: DataFrame, expectation: Expectation, clock: bool) -> str | None:
    try:
        judged = rows.select(F.expr(expectation.condition))
    except AnalysisException as error:
        return _explain_analysis_error(error, rows.columns)
    except PySparkException as error:
        return f"its condition is no SQL over one row: {str(error).strip().splitlines()[0]}"
    if wrong := _find_forbidden_construct(judged, clock):
        return wrong
    if _are_all_boolean(judged):
        return None
    kind = ", ".join(field.dataType.simpleString().upper() for field in judged.schema)
    return f"its condition is of type {kind}; it must be BOOLEAN, as in 'heartrate > 0'."


def _are_all_boolean(judged: DataFrame) -> bool:
    return all(isinstance(field.dataType, BooleanType) for field in judged.schema)


def _find_forbidden_construct(judged: DataFrame, clock: bool) -> str | None:
    """Why a condition is not about one row alone, or changes with time; None where neither holds."""
    plan = judged._jdf.queryExecution().analyzed()
    below = _plan_node_names(plan)
    if len(below) > 2 or below[0] != "Project" or not plan.subqueries().isEmpty():
        what = next((_WHAT[node] for node in below if node in _WHAT), "a subquery")
        return f"its condition uses {what}, which looks at more than one row. It may use this row's columns only."
    for index in range(plan.expressions().size()):
        expression = plan.expressions().apply(index)
        asked = CLOCK.search(str(expression.toString()))
        if asked and not clock:
            return f"its condition uses {asked.group(1)}(): a replay would judge otherwise. Compare with a column of the row."
        if not asked and not expression.deterministic():
            return "its condition uses something random: a replay would judge otherwise."
        if "cast(" in expression.toString() and (kind := _find_raising_text_cast(expression)):
            return f"its condition reads text as {kind}, and one text that is none fails the run. Write try_cast(... AS {kind}), which is NULL then."
    return None


def _plan_node_names(plan: Any) -> list[str]:
    """The kinds of a plan's nodes, from the top down the first branch."""
    found = [str(plan.nodeName())]
    while not plan.children().isEmpty():
        plan = plan.children().apply(0)
        found.append(str(plan.nodeName()))
    return found


def _find_raising_text_cast(expression: Any) -> str | None:
    """The type that a text of the row is cast to, explicitly or by a comparison, in a way that can raise; None without such a cast."""
    if expression.nodeName() == "Cast" and str(expression.evalMode()) == "ANSI":
        text, kind = expression.child(), str(expression.dataType().sql())
        if text.dataType().typeName() == "string" and kind not in ("STRING", "BINARY") and not text.foldable():
            return kind
    children = expression.children()
    found = (_find_raising_text_cast(children.apply(index)) for index in range(children.size()))
    return next((kind for kind in found if kind), None)


def _explain_analysis_error(error: AnalysisException, columns: Sequence[str]) -> str:
    """An analysis error in our own words where it names a column; otherwise Spark's first line, which names only types and functions."""
    name = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "")
    if str(error.getCondition()).startswith(_UNRESOLVED) and name:
        return f"its condition names '{name}', no column of it.{nearest_name_hint(name, columns)}"
    return f"its condition is no SQL over one row: {str(error).strip().splitlines()[0]}"
