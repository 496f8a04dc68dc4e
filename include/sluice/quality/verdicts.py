"""Expectations on rows: checks against a table's columns that they can work, before any data; and the verdict on each row.

A verdict lists the expectations that the row fails. It is never NULL: a condition that is NULL counts as not met.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructType

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.quality.expectations import ACTION_COUNTS, Action, Expectation
from sluice.errors import DeclarationError, RuleNotMet, nearest_name_hint
from sluice.printable import count_noun, match_number
from sluice.quality.clocks import CLOCK, find_moving_date

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_WHAT = {"Aggregate": "an aggregate", "Window": "a window function", "Generate": "a generator"}
_UNRESOLVED = "UNRESOLVED_COLUMN"


def check_conditions(session: SparkSession, dataset: Dataset[Any], columns: StructType) -> None:
    """Raises DeclarationError for the first expectation that cannot work on rows with these columns."""
    found = find_condition_mistakes(session, dataset, columns)
    if found:
        raise DeclarationError(found[0])


def find_condition_mistakes(session: SparkSession, dataset: Dataset[Any], columns: StructType) -> list[str]:
    """Returns why expectations on rows cannot work, one text for each. columns: those that the transform returns."""
    if not dataset.expectations:
        return []
    rows = session.createDataFrame([], columns)
    clock = dataset.kind.may_ask_clock
    if _all_conditions_work(rows, dataset.expectations, clock):
        return []
    each = [(one.name, _find_condition_mistake(rows, one, clock)) for one in dataset.expectations]
    return [f"{dataset.label}, expectation '{name}': {mistake}" for name, mistake in each if mistake]


def _all_conditions_work(rows: DataFrame, expectations: Sequence[Expectation], clock: bool) -> bool:
    """Whether all of them can work, the usual case, found by one analysis."""
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
    """Returns why a condition is not about one row alone, or why it changes with time; None if it is neither."""
    plan = judged._jdf.queryExecution().analyzed()
    below = _plan_node_names(plan)
    if len(below) > 2 or below[0] != "Project" or not plan.subqueries().isEmpty():
        what = next((_WHAT[node] for node in below if node in _WHAT), "a subquery")
        return f"its condition uses {what}, which looks at more than one row. It may use this row's columns only."
    if not clock and (moving := find_moving_date(judged.sparkSession, plan, [plan])):
        return f"its condition uses {moving}, which moves from day to day: a replay would judge differently. Compare with a column of the row."
    for index in range(plan.expressions().size()):
        expression = plan.expressions().apply(index)
        asked = CLOCK.search(str(expression.toString()))
        if asked and not clock:
            return f"its condition uses {asked.group(1)}(): a replay would judge differently. Compare with a column of the row."
        if not asked and not expression.deterministic():
            return "its condition uses something random: a replay would judge differently."
        if "cast(" in expression.toString() and (kind := _find_raising_text_cast(expression)):
            return f"its condition reads text as {kind}, and any other text fails the run. Write try_cast(... AS {kind}), which is NULL then."
    return None


def _plan_node_names(plan: Any) -> list[str]:
    """The kinds of a plan's nodes, from the top down along the first branch."""
    found = [str(plan.nodeName())]
    while not plan.children().isEmpty():
        plan = plan.children().apply(0)
        found.append(str(plan.nodeName()))
    return found


def _find_raising_text_cast(expression: Any) -> str | None:
    """The type that a text is cast to, explicitly or by a comparison, if that cast can raise; None without such a cast."""
    if expression.nodeName() == "Cast" and str(expression.evalMode()) == "ANSI":
        text, kind = expression.child(), str(expression.dataType().sql())
        if text.dataType().typeName() == "string" and kind not in ("STRING", "BINARY") and not text.foldable():
            return kind
    children = expression.children()
    found = (_find_raising_text_cast(children.apply(index)) for index in range(children.size()))
    return next((kind for kind in found if kind), None)


def _explain_analysis_error(error: AnalysisException, columns: Sequence[str]) -> str:
    """Explains an analysis error that names a column; for others returns Spark's first line, which holds only types and functions."""
    name = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "")
    if str(error.getCondition()).startswith(_UNRESOLVED) and name:
        return f"its condition names '{name}', no column of it.{nearest_name_hint(name, columns)}"
    return f"its condition is no SQL over one row: {str(error).strip().splitlines()[0]}"


FAILED_RULES = "_failed_rules"
NULL_RULES = "_null_rules"
VERDICT = (FAILED_RULES, NULL_RULES)
"""The columns of a verdict, arrays of names in order of declaration: the expectations that the row fails, and those of them whose
condition was NULL rather than false."""

_NOTHING_WRITTEN = "Nothing of this batch was written."


def add_verdict_column(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Returns the rows with their verdict."""
    failed = [F.when(~_is_expectation_met(one), F.lit(one.name)) for one in expectations]
    unknown = [F.when(_condition_column(one).isNull(), F.lit(one.name)) for one in expectations if not one.null_ok]
    return frame.withColumns({FAILED_RULES: _non_null_names(failed), NULL_RULES: _non_null_names(unknown)})


def expectations_version(expectations: Iterable[Expectation]) -> str:
    """12 hex digits of all that decides on rows and batches: names, conditions, actions, null_ok, thresholds; their order does not count."""
    rules = sorted((one.name, one.condition.strip(), one.action.value, one.null_ok, one.at_most) for one in expectations)
    return hashlib.sha256(repr(rules).encode()).hexdigest()[:12]


def is_row_accepted(expectations: Sequence[Expectation]) -> Column:
    """Whether a row with a verdict stays: it fails no expectation whose action would take it out."""
    return ~_has_failed_any(one for one in expectations if one.action.takes_row_out)


def is_row_set_aside(expectations: Sequence[Expectation]) -> Column:
    """Whether a row with a verdict goes to quarantine."""
    return _is_true_of_any(_is_decided_by(expectations, action) for action in Action if action.sets_row_aside)


def action_count_conditions(expectations: Sequence[Expectation]) -> dict[str, Column]:
    """For each count that actions have: whether a row with a verdict adds to it. No row is counted twice."""
    return {
        name: _is_true_of_any(_is_decided_by(expectations, action) for action in Action if action.counted_as == name)
        for name in ACTION_COUNTS
    }


def verdict_count_aggregates(expectations: Sequence[Expectation]) -> dict[str, Column]:
    """Aggregates over rows with a verdict: `rows`, the counts of actions, such as `quarantined`, and two for each rule.

    `rule:<name>` counts the rows that do not meet it, `null:<name>` those of them whose condition was NULL.
    """
    rules = {f"rule:{one.name}": F.count_if(F.array_contains(FAILED_RULES, one.name)) for one in expectations}
    unknown = {f"null:{one.name}": F.count_if(F.array_contains(NULL_RULES, one.name)) for one in expectations}
    declared = {one.action.counted_as for one in expectations}
    of_actions = {
        name: F.count_if(condition) if name in declared else F.lit(0)
        for name, condition in action_count_conditions(expectations).items()
    }
    return {**rules, **unknown, "rows": F.count("*"), **of_actions}


def number_of_rows_set_aside(counted: Mapping[str, int]) -> int:
    """The number of rows that go to quarantine. counted: with the names of `verdict_count_aggregates`."""
    return sum(counted[name] for name in {action.counted_as for action in Action if action.sets_row_aside})


def raise_on_failed_expectations(table: str, expectations: Sequence[Expectation], counted: Mapping[str, int]) -> None:
    """Raises RuleNotMet if rows fail a rule that must hold, or too many fail one. The error has rule and counts, but no value.

    counted: with the names of `verdict_count_aggregates`. If several rules fail, the error names the first.
    """
    rows = counted.get("rows", 0)
    for one in expectations:
        number = counted.get(f"rule:{one.name}", 0)
        if one.action.stops_flow and number:
            raise RuleNotMet(
                f"Table '{table}': {count_noun(number, 'row', 'does', 'do')} not meet '{one.name}', which must not happen. {_NOTHING_WRITTEN}"
            )
        if one.at_most is not None and number > Fraction(str(one.at_most)) * rows:
            share = f"{one.at_most * 100:g} %"
            raise RuleNotMet(
                f"Table '{table}': {number} of {count_noun(rows, 'row')} {match_number(number, 'does', 'do')} "
                f"not meet '{one.name}'; at most {share} of a batch may. {_NOTHING_WRITTEN}"
            )


def _is_decided_by(expectations: Sequence[Expectation], action: Action) -> Column:
    """Whether a row with a verdict fails an expectation with this action, and none with an action that takes precedence."""
    before = _has_failed_any(one for one in expectations if one.action.goes_before(action))
    return _has_failed_any(one for one in expectations if one.action is action) & ~before


def _has_failed_any(expectations: Iterable[Expectation]) -> Column:
    """Whether a row with a verdict fails any of these."""
    names = [F.lit(one.name) for one in expectations]
    return F.arrays_overlap(F.col(FAILED_RULES), F.array(*names)) if names else F.lit(False)


def _is_true_of_any(conditions: Iterable[Column]) -> Column:
    return functools.reduce(operator.or_, conditions)


def _condition_column(expectation: Expectation) -> Column:
    return F.expr(expectation.condition).cast("boolean")


def _is_expectation_met(expectation: Expectation) -> Column:
    return F.coalesce(_condition_column(expectation), F.lit(expectation.null_ok))


def _non_null_names(names: Sequence[Column]) -> Column:
    return (F.array_compact(F.array(*names)) if names else F.array()).cast("array<string>")
