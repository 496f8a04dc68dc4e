"""The verdict on a row: which of its table's expectations it fails. Never NULL: a condition that is NULL is not met."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.quality.expectations import Action, Expectation
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


def has_failed_expectation(expectations: Sequence[Expectation], action: Action) -> Column:
    """Whether a row with a verdict fails an expectation of this action."""
    names = [expectation.name for expectation in expectations if expectation.action is action]
    if not names:
        return F.lit(False)
    return F.arrays_overlap(F.col(FAILED_RULES), F.array(*(F.lit(name) for name in names)))


def is_row_accepted(expectations: Sequence[Expectation]) -> Column:
    """Whether a row with a verdict stays: it fails no expectation that drops or quarantines."""
    return ~has_failed_expectation(expectations, Action.QUARANTINE) & ~has_failed_expectation(expectations, Action.DROP)


def verdict_count_aggregates(expectations: Sequence[Expectation]) -> dict[str, Column]:
    """Aggregates over rows with a verdict: `rows`, `quarantined`, `dropped`, and two for each rule.

    `rule:<name>` counts the rows that do not meet it, `null:<name>` those of them whose condition was NULL.
    """
    rules = {f"rule:{one.name}": F.count_if(F.array_contains(FAILED_RULES, one.name)) for one in expectations}
    unknown = {f"null:{one.name}": F.count_if(F.array_contains(NULL_RULES, one.name)) for one in expectations}
    quarantined = has_failed_expectation(expectations, Action.QUARANTINE)
    dropped = has_failed_expectation(expectations, Action.DROP) & ~quarantined
    rows = {"rows": F.count("*"), "quarantined": F.count_if(quarantined), "dropped": F.count_if(dropped)}
    return {**rules, **unknown, **rows}


def raise_on_failed_expectations(table: str, expectations: Sequence[Expectation], counted: Mapping[str, int]) -> None:
    """Raises SluiceError, with rule and counts and no value, where rows fail a rule that must hold, or too many fail one.

    counted: with the names of `verdict_count_aggregates`. Of several rules the first is named.
    """
    rows = counted.get("rows", 0)
    for one in expectations:
        number = counted.get(f"rule:{one.name}", 0)
        if one.action is Action.FAIL and number:
            raise SluiceError(
                f"Table '{table}': {number} rows do not meet '{one.name}', which must not happen. {_NOTHING_WRITTEN}"
            )
        if one.at_most is not None and number > Fraction(str(one.at_most)) * rows:
            share = f"{one.at_most * 100:g} %"
            raise SluiceError(
                f"Table '{table}': {number} of {rows} rows do not meet '{one.name}'; at most {share} of a batch may. {_NOTHING_WRITTEN}"
            )


def _condition_column(expectation: Expectation) -> Column:
    return F.expr(expectation.condition).cast("boolean")


def _is_expectation_met(expectation: Expectation) -> Column:
    return F.coalesce(_condition_column(expectation), F.lit(expectation.null_ok))


def _non_null_names(names: Sequence[Column]) -> Column:
    return (F.array_compact(F.array(*names)) if names else F.array()).cast("array<string>")
