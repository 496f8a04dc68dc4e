"""Finds what a plan takes from the clock: functions such as `now()`, and dates such as DATE'today', which are others on another day."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

CLOCK = re.compile(
    r"\b(current_timestamp|current_date|current_time|localtimestamp|now|curdate|(?:current_user|session_user|user)(?=\(\)))\(",
    re.IGNORECASE,
)
"""A function of the clock, or of who runs it, in the text of an expression."""

_MOVING = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""The words that Spark reads as dates."""
_ALL_FIELDS = 1_000_000


def find_moving_date(session: Any, plan: Any, nodes: Iterable[Any]) -> str | None:
    """Describes a date of an analysed plan that Spark computes from the clock, though no function is called. Returns None without one.

    Spark does so for a few words: in a literal when the text is parsed, so that the plan has only the date, and in a cast, also of another
    expression than a literal, when the plan is optimised. nodes: the plan's, and those of its subqueries. They are looked at only if the plan
    shows such a word, or a date near today.
    """
    shown = str(plan.treeString(False, False, _ALL_FIELDS, False, False))
    word, recent = _MOVING.search(shown), any(day in shown for day in _days_near_today())
    there = list(nodes) if word or recent else []
    if word and any(_moves_date(session, node) for node in there):
        return f"the date '{word.group(1)}'"
    expressions = (node.expressions().apply(at) for node in there for at in range(node.expressions().size() if recent else 0))
    written = (_text_of_typed_literal(one) for expression in expressions for one in _walk_expression(expression))
    return next((text for text in written if _MOVING.search(text)), None)


def _moves_date(session: Any, plan: Any) -> bool:
    """Whether the rule by which Spark computes such dates finds one in a plan, whose subqueries it does not look at."""
    optimizer = session._jvm.org.apache.spark.sql.catalyst.optimizer
    replaced = _scala_object(optimizer, "ReplaceExpressions").apply(plan)
    return not _scala_object(optimizer, "SpecialDatetimeValues").apply(replaced).fastEquals(replaced)


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _days_near_today() -> list[str]:
    """The days that Spark's words can mean, in any time zone."""
    today = datetime.now(UTC).date()
    return [(today + timedelta(days=days)).isoformat() for days in range(-2, 3)]


def _walk_expression(expression: Any) -> Iterable[Any]:
    yield expression
    for position in range(expression.children().size()):
        yield from _walk_expression(expression.children().apply(position))


def _text_of_typed_literal(expression: Any) -> str:
    """How a literal of a date or an instant was written; "" for all else, and for what came without SQL."""
    if expression.nodeName() != "Literal" or not expression.dataType().typeName().startswith(("date", "timestamp")):
        return ""
    origin = expression.origin()
    if not (origin.sqlText().isDefined() and origin.startIndex().isDefined() and origin.stopIndex().isDefined()):
        return ""
    return str(origin.sqlText().get())[origin.startIndex().get() : origin.stopIndex().get() + 1]
