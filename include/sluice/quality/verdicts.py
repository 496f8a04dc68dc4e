"""The verdict on a row: which of its table's expectations it does not meet. Never NULL: a condition that is NULL is not met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.expectations import Action, Expectation
from sluice.errors import SluiceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAILED_RULES = "_failed_rules"


def with_verdict(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """The rows with `_failed_rules`, the names of the expectations that each does not meet, in order of declaration."""
    failed = [F.when(~_met(expectation), F.lit(expectation.name)) for expectation in expectations]
    names = F.array_compact(F.array(*failed)) if failed else F.array()
    return frame.withColumn(FAILED_RULES, names.cast("array<string>"))


def failing(expectations: Sequence[Expectation], action: Action) -> Column:
    """Whether a row with a verdict does not meet an expectation of this action."""
    names = [expectation.name for expectation in expectations if expectation.action is action]
    if not names:
        return F.lit(False)
    return F.arrays_overlap(F.col(FAILED_RULES), F.array(*(F.lit(name) for name in names)))


def accepted(expectations: Sequence[Expectation]) -> Column:
    """Whether a row with a verdict stays: it fails no expectation that drops or quarantines."""
    return ~failing(expectations, Action.QUARANTINE) & ~failing(expectations, Action.DROP)


def counts(expectations: Sequence[Expectation]) -> dict[str, Column]:
    """Aggregates over rows with a verdict: by `rule:<name>`, how many rows do not meet it; and `quarantined`, `dropped`."""
    rules = {f"rule:{e.name}": F.count_if(F.array_contains(FAILED_RULES, e.name)) for e in expectations}
    quarantined = failing(expectations, Action.QUARANTINE)
    dropped = failing(expectations, Action.DROP) & ~quarantined
    return {**rules, "quarantined": F.count_if(quarantined), "dropped": F.count_if(dropped)}


def fail_if_asked(table: str, expectations: Sequence[Expectation], counted: Mapping[str, int]) -> None:
    """Raises SluiceError, with rule and count and no value, if a rule that must not fail did."""
    for expectation in expectations:
        number = counted.get(f"rule:{expectation.name}", 0)
        if expectation.action is Action.FAIL and number:
            raise SluiceError(
                f"Table '{table}': {number} rows do not meet '{expectation.name}', which must not happen. Nothing of this batch was written."
            )


def _met(expectation: Expectation) -> Column:
    return F.coalesce(F.expr(expectation.condition).cast("boolean"), F.lit(expectation.null_ok))
