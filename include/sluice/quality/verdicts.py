"""The verdict on a row: which of its table's expectations it fails. Never NULL: a condition that is NULL is not met."""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.quality.expectations import ACTION_COUNTS, Action, Expectation
from sluice.errors import SluiceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAILED_RULES = "_failed_rules"
NULL_RULES = "_null_rules"
VERDICT = (FAILED_RULES, NULL_RULES)
"""The columns of a verdict, arrays of names in order of declaration: the expectations that the row does not meet, and those of them
whose condition was NULL rather than false."""

_NOTHING_WRITTEN = "Nothing of this batch was written."


def add_verdict_column(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """The rows with their verdict."""
    failed = [F.when(~_is_expectation_met(one), F.lit(one.name)) for one in expectations]
    unknown = [F.when(_condition_column(one).isNull(), F.lit(one.name)) for one in expectations if not one.null_ok]
    return frame.withColumns({FAILED_RULES: _non_null_names(failed), NULL_RULES: _non_null_names(unknown)})


def expectations_version(expectations: Iterable[Expectation]) -> str:
    """12 hex digits of all that decides on a row and on a batch: names, conditions, actions, null_ok and thresholds, in any order."""
    rules = sorted((one.name, one.condition.strip(), one.action.value, one.null_ok, one.at_most) for one in expectations)
    return hashlib.sha256(repr(rules).encode()).hexdigest()[:12]


def is_row_accepted(expectations: Sequence[Expectation]) -> Column:
    """Whether a row with a verdict stays: it fails no expectation whose action takes it out."""
    return ~_has_failed_any(one for one in expectations if one.action.takes_row_out)


def is_row_set_aside(expectations: Sequence[Expectation]) -> Column:
    """Whether a row with a verdict goes to quarantine."""
    return _is_true_of_any(_is_decided_by(expectations, action) for action in Action if action.sets_row_aside)


def action_count_conditions(expectations: Sequence[Expectation]) -> dict[str, Column]:
    """By each count that an action has: whether a row with a verdict is counted as it. No row is counted twice."""
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
    of_actions = {name: F.count_if(condition) for name, condition in action_count_conditions(expectations).items()}
    return {**rules, **unknown, "rows": F.count("*"), **of_actions}


def number_of_rows_set_aside(counted: Mapping[str, int]) -> int:
    """How many rows go to quarantine. counted: with the names of `verdict_count_aggregates`."""
    return sum(counted[name] for name in {action.counted_as for action in Action if action.sets_row_aside})


def raise_on_failed_expectations(table: str, expectations: Sequence[Expectation], counted: Mapping[str, int]) -> None:
    """Raises SluiceError, with rule and counts and no value, where rows fail a rule that must hold, or too many fail one.

    counted: with the names of `verdict_count_aggregates`. Of several rules the first is named.
    """
    rows = counted.get("rows", 0)
    for one in expectations:
        number = counted.get(f"rule:{one.name}", 0)
        if one.action.stops_flow and number:
            raise SluiceError(
                f"Table '{table}': {number} rows do not meet '{one.name}', which must not happen. {_NOTHING_WRITTEN}"
            )
        if one.at_most is not None and number > Fraction(str(one.at_most)) * rows:
            share = f"{one.at_most * 100:g} %"
            raise SluiceError(
                f"Table '{table}': {number} of {rows} rows do not meet '{one.name}'; at most {share} of a batch may. {_NOTHING_WRITTEN}"
            )


def _is_decided_by(expectations: Sequence[Expectation], action: Action) -> Column:
    """Whether a row with a verdict fails an expectation of this action, and none of an action that goes before it."""
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
