"""What is printed for programs is JSON that strict parsers read, and keeps the names of structs."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import Row

from sluice.cli.printing import print_json


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_every_kind_of_value_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({
        "fractions": [1.5, float("nan"), float("inf"), float("-inf")],
        "struct": Row(a=1, inner=Row(b="z")),
        "map": {date(2026, 11, 27): 1, 5: 2, None: 3, "x": float("nan")},
        "others": (Decimal("1.10"), b"a", datetime(2026, 11, 27, tzinfo=UTC), True, None),
    })
    assert json.loads(capsys.readouterr().out, parse_constant=refuse_constant) == {
        "fractions": [1.5, "NaN", "Infinity", "-Infinity"],
        "struct": {"a": 1, "inner": {"b": "z"}},
        "map": {"2026-11-27": 1, "5": 2, "null": 3, "x": "NaN"},
        "others": ["1.10", "a", "2026-11-27T00:00:00+00:00", True, None],
    }
