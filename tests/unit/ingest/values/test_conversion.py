"""Text in a type: exactly that value, or a misfit."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from sluice.ingest.values import conversion
from sluice.ingest.values.conversion import MISFIT

MOMENT = pa.timestamp("us", tz="UTC")
NAIVE = pa.timestamp("us")
TYPES = [
    pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(10, 2), pa.decimal128(38, 0),
    pa.date32(), MOMENT, NAIVE, pa.binary(), pa.string(), pa.list_(pa.int64()),
]  # fmt: skip
CELLS = [
    "", "0", "-0", "7", "-7", "+7", "007", " 7", "7\n", "127", "128", "2147483648", "9223372036854775807", "9223372036854775808", "9" * 40,
    "9007199254740991", "9007199254740993", "18014398509481984", "1.0", "1.50", "1.555", ".5", "5.", "1e2", "1E+2", "1e400", "1e-400",
    "1" + "0" * 20, "9" * 20, "-1" + "0" * 19 + "1", "1e20",
    "0.1", "16777217", "3.4e38", "NaN", "inf", "0x10", "1_000", "٣", "true", "True", "false", "2024-02-29", "2026-02-29", "0000-01-01",
    "2026-1-1", "20260101", "2026-01-01T10:00", "2026-01-01 10:00:00", "2026-01-01T10:00:00.123456", "2026-01-01T10:00:00.1234567",
    "2026-01-01T24:00:00", "2026-01-01T10:00:60", "2026-01-01T10", "2026-01-01T10:00Z", "2026-01-01T10:00:00+02:00",
    "2026-01-01T10:00-0230", "2026-01-01T10:00+02", "2026-01-01T10:00+24:00", "2026-01-01Z", "0001-01-01T00:00+01:00",
    "9999-12-31T23:59:59.999999-01:00", "9999-12-31T23:59:59.999999", "YWJj", "YWJ", "YWI=", "YWJ=", "a\nb", "é",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "type", "expected"),
    [
        ("9223372036854775807", pa.int64(), 2**63 - 1),
        ("9223372036854775808", pa.int64(), MISFIT),
        ("007", pa.int64(), MISFIT),
        ("1.0", pa.int64(), MISFIT),
        ("128", pa.int8(), MISFIT),
        ("0.1", pa.float64(), 0.1),
        ("9007199254740993", pa.float64(), MISFIT),
        ("18014398509481984", pa.float64(), 2.0**54),
        ("1e400", pa.float64(), MISFIT),
        ("NaN", pa.float64(), MISFIT),
        ("0.1", pa.float32(), 0.1),
        ("16777217", pa.float32(), MISFIT),
        ("1" + "0" * 20, pa.float32(), 1e20),
        ("1" + "0" * 19 + "1", pa.float32(), MISFIT),
        ("0.123456789", pa.float32(), MISFIT),
        ("1.50", pa.decimal128(10, 2), Decimal("1.50")),
        ("1.500", pa.decimal128(10, 2), Decimal("1.50")),
        ("1.555", pa.decimal128(10, 2), MISFIT),
        ("123456789.00", pa.decimal128(10, 2), MISFIT),
        ("True", pa.bool_(), MISFIT),
        ("2024-02-29", pa.date32(), date(2024, 2, 29)),
        ("2026-02-29", pa.date32(), MISFIT),
        ("2026-01-01T00:00:00", pa.date32(), MISFIT),
        ("2026-01-01", MOMENT, datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01 10:00:00.5+02:00", MOMENT, datetime(2026, 1, 1, 8, 0, 0, 500000, tzinfo=UTC)),
        ("2026-01-01T10:00:00.1234567Z", MOMENT, MISFIT),
        ("0001-01-01T00:00+01:00", MOMENT, MISFIT),
        ("2026-01-01T10:00Z", NAIVE, MISFIT),
        ("2026-01-01T10:00", NAIVE, datetime(2026, 1, 1, 10)),
        ("YWJj", pa.binary(), b"abc"),
        ("YWJ=", pa.binary(), MISFIT),
        ("\ud83d", pa.string(), MISFIT),
        ("1", pa.list_(pa.int64()), MISFIT),
    ],
)
def test_a_text_is_exactly_its_value_or_a_misfit(text: str, type: pa.DataType, expected: Any) -> None:
    assert conversion.parse_text_value(text, type) == expected


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_an_array_of_cells_is_what_each_cell_is(type: pa.DataType) -> None:
    for cells in (
        CELLS,
        *([cell] for cell in CELLS),
    ):  # one that is odd must not change how the others are read, nor the other way round
        assert_as_each(cells, type)


@examples(deadline=None)
@given(
    st.lists(
        st.one_of(st.none(), st.sampled_from(CELLS), st.floats().map(repr), st.integers().map(str), st.datetimes().map(str))
    ),
    st.sampled_from(TYPES),
)
def test_any_array_of_cells_is_what_each_cell_is(cells: list[str | None], type: pa.DataType) -> None:
    assert_as_each(cells, type)


def assert_as_each(cells: list[str | None], type: pa.DataType) -> None:
    converted, misfit = conversion.convert_json_strings(pa.array(cells, pa.string()), type)
    values = [conversion.parse_text_value(cell, type) for cell in cells]
    assert converted.type == type
    assert misfit.to_pylist() == [value is MISFIT for value in values]
    assert converted.equals(pa.array([None if value is MISFIT else value for value in values], type))


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_an_empty_cell_is_null_and_no_misfit_but_in_a_string_column(type: pa.DataType) -> None:
    converted, misfit = conversion.convert_text_cells(pa.array(["", None], pa.string()), type)
    assert misfit.to_pylist() == [False, False]
    assert converted.to_pylist() == (["", None] if type == pa.string() else [None, None])
    assert conversion.parse_cell_value("", type) == ("" if type == pa.string() else None)


def test_the_empty_string_of_json_is_no_date() -> None:
    assert conversion.convert_json_strings(pa.array([""]), pa.date32())[1].to_pylist() == [True]
