"""How long removed files are kept, as a table's property says it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sluice.errors import SluiceError
from sluice.lake.log import parse_interval_length


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("interval 7 days", timedelta(days=7)),
        ("1 week", timedelta(weeks=1)),
        ("interval 1 days 12 hours", timedelta(days=1, hours=12)),
        ("INTERVAL 7 DAYS", timedelta(days=7)),
    ],
)
def test_an_interval_is_the_sum_of_its_parts(said: str, meant: timedelta) -> None:
    assert parse_interval_length(said) == meant


@pytest.mark.parametrize("said", ["", "interval", "7", "interval 7 parsecs", "interval days 7", "interval 1 day 12"])
def test_anything_else_is_refused_by_name(said: str) -> None:
    with pytest.raises(SluiceError, match=f"'{said}' is no length of time"):
        parse_interval_length(said)
