"""Does an expression give the same when it is asked again? Rows are made more than once: by a replay, a recompute, a comparison."""

from __future__ import annotations

from typing import Any

from sluice.flows import plans
from sluice.quality.conditions import CLOCK


def find_unrepeatable_call(expression: Any) -> str | None:
    """What an expression of the JVM asks that is another thing each time, in words; None where nothing is.

    An aggregate that depends on the order of its rows, such as a list, is taken as it is: most are sorted afterwards.
    """
    clock = CLOCK.search(str(expression.toString()))
    if clock:
        return f"{clock.group(1)}()"
    return None if expression.deterministic() or not _is_random(expression) else "something random"


def _is_random(expression: Any) -> bool:
    """Whether chance is in it, beside aggregates that count as such only for their order."""
    if expression.deterministic():
        return False
    below = plans.plan_children(expression)
    if all(child.deterministic() for child in below):
        return not _is_aggregate_function(expression)
    return any(_is_random(child) for child in below)


def _is_aggregate_function(expression: Any) -> bool:
    return any(kind.getSimpleName() == "AggregateFunction" for kind in _java_superclasses(expression.getClass()))


def _java_superclasses(kind: Any) -> list[Any]:
    found = []
    while kind is not None:
        found.append(kind)
        kind = kind.getSuperclass()
    return found
