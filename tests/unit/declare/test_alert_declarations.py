"""What a pipeline may declare for its alerts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sluice.declare import Pipeline
from sluice.declare.pipeline import parse_duration
from sluice.errors import DeclarationError

DECLARED: dict[str, Any] = {"name": "gym", "description": "d", "owner": "o", "layers": ("pipelines.gym.bronze",)}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("deadline", "soon", "deadline is an interval such as '6 hours', not 'soon'"),
        ("freshness", "1 fortnight", "freshness is an interval"),
        ("freshness", "", "freshness is an interval"),
        ("alert_when", {"plausible_heart_rate": 100}, "alert_when says how many rows may fail a rule"),
        ("alert_when", {"heart_rate.plausible_heart_rate": -1}, "not {'heart_rate.plausible_heart_rate': -1}"),
    ],
)
def test_it_says_what_is_wrong(field: str, value: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Pipeline(**DECLARED, **{field: value})


def test_nothing_is_watched_unless_declared() -> None:
    pipeline = Pipeline(**DECLARED)
    assert (pipeline.deadline, pipeline.freshness, pipeline.alert_when) == (None, None, {})
    assert hash(Pipeline(**DECLARED, alert_when={"a.b": 1})) == hash(pipeline)


@pytest.mark.parametrize(("text", "days"), [("36 hours", 1.5), ("1 day", 1), ("2 weeks", 14), ("1 hour", 1 / 24)])
def test_how_long_an_interval_is(text: str, days: float) -> None:
    assert parse_duration(text) == timedelta(days=days)
