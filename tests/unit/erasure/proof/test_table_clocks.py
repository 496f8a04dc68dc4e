"""Of what time a row is, as a reader without Spark can tell it from the declaration."""

from __future__ import annotations

import pytest

from sluice.erasure.proof import search_scope


@pytest.mark.parametrize(
    ("text", "column", "per_second"),
    [
        ("time", "time", 1),
        ("CAST(`at` AS TIMESTAMP)", "at", 1),
        ("timestamp_seconds(time)", "time", 1),
        ("timestamp_millis(CAST(t AS BIGINT))", "t", 1000),
        ("timestamp_micros(try_cast(time * 1e6 AS BIGINT))", "time", 1),
        ("timestamp_micros(try_cast(try_cast(first_timestamp AS DOUBLE) * 1e6 AS BIGINT))", "first_timestamp", 1),
        ("coalesce(a, b)", None, 1),
        ("timestamp_seconds(a + b)", None, 1),
        ("", None, 1),
    ],
)
def test_of_what_time_a_row_is_can_be_told_by_a_column(text: str, column: str | None, per_second: float) -> None:
    assert search_scope.parse_instant_expression(text) == (column, per_second)
