"""The types of what is delivered, and how a schema grows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.declare import Source
from sluice.ingest.values import json_values, types

LONG, D, S, B, N = pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.null()
MOMENT, DATE, LARGE = pa.timestamp("us", tz="UTC"), pa.date32(), pa.decimal128(38, 0)
INFERRED, TEXT, WIDER = Source(name="s"), Source(name="s", infer_types=False), Source(name="s", widen_types=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null", N),
        ("true", B),
        ("12", LONG),
        ("9223372036854775808", LARGE),
        ("1" * 39, S),
        ("1.0", D),
        ("1e400", N),
        ("NaN", N),
        ('"2026-01-01"', S),
        ("[]", pa.list_(N)),
        ("[1, null, 2.5]", pa.list_(D)),
        ('[{"a": 1}, {"b": "x", "a": 2}]', pa.list_(pa.struct([("a", LONG), ("b", S)]))),
        ('{"a": {"b": null}}', pa.struct([("a", pa.struct([("b", N)]))])),
        ('{"a": 1, "a": "x"}', pa.struct([("a", LONG)])),
        ('{"a": 1, "A": "x"}', pa.struct([("a", LONG)])),
        ('{"a b": 1, "c": 2}', pa.struct([("c", LONG)])),
    ],
)
def test_the_type_of_a_json_value(text: str, expected: pa.DataType) -> None:
    assert types.infer_json_type(json_values.parse_json_text(text)) == expected


def test_what_is_nested_too_deep_for_a_column_has_no_type_that_holds_it() -> None:
    found = types.infer_json_type(json_values.parse_json_text("[" * 60 + "]" * 60))
    levels = 0
    while pa.types.is_list(found):
        found, levels = found.value_type, levels + 1
    assert (found, levels) == (S, types.DEEPEST)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", N),
        ("0", LONG),
        ("-12", LONG),
        ("007", S),
        ("+1", S),
        ("9223372036854775808", LARGE),
        ("9" * 40, S),
        ("1.5", D),
        ("1e400", S),
        ("true", B),
        ("True", S),
        ("2026-01-01", DATE),
        ("2026-02-30", S),
        ("2026-01-01 10:00", MOMENT),
        ("2026-01-01T10:00:00.1234567Z", S),
        ("x", S),
    ],
)
def test_the_type_of_a_cell(text: str, expected: pa.DataType) -> None:
    assert types.infer_text_type(text) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (LONG, N, LONG),
        (LONG, D, D),
        (LONG, LARGE, LARGE),
        (LARGE, D, D),
        (DATE, MOMENT, MOMENT),
        (B, LONG, S),
        (DATE, S, S),
        (pa.list_(N), pa.list_(LONG), pa.list_(LONG)),
        (pa.list_(LONG), LONG, S),
        (pa.struct([("a", LONG), ("b", N)]), pa.struct([("c", S), ("a", D)]), pa.struct([("a", D), ("b", N), ("c", S)])),
        (pa.struct([("a", LONG)]), pa.struct([("A", S)]), pa.struct([("a", LONG)])),
        (pa.struct([("a", N)]), pa.struct([("A", S)]), pa.struct([("A", S)])),
    ],
)
def test_the_least_type_of_both(a: pa.DataType, b: pa.DataType, expected: pa.DataType) -> None:
    assert types.merge_types(a, b) == expected
    if not pa.types.is_struct(a):
        assert types.merge_types(b, a) == expected


def test_new_fields_become_columns_also_below_structs_and_in_lists() -> None:
    schema = pa.schema([("a", LONG), ("n", pa.struct([("x", LONG)])), ("l", pa.list_(pa.struct([("x", LONG)])))])
    news = pa.struct([
        ("z", pa.struct([("q", N), ("r", D)])),
        ("n", pa.struct([("y", pa.list_(LONG))])),
        ("l", pa.list_(pa.struct([("x", LONG), ("y", S)]))),
    ])
    assert types.grow_schema(schema, news, INFERRED) == pa.schema([
        ("a", LONG),
        ("n", pa.struct([("x", LONG), ("y", pa.list_(LONG))])),
        ("l", pa.list_(pa.struct([("x", LONG), ("y", S)]))),
        ("z", pa.struct([("r", D)])),
    ])


def test_what_cannot_be_a_column_never_is() -> None:
    schema = pa.schema([("a", LONG)])
    names = ["A", "_file", "_RESCUED_DATA", "full name", "", "__", "a.b", "x" * 256]
    empty = [("z", N), ("e", pa.struct([])), ("l", pa.list_(N)), ("d", pa.struct([("q", pa.list_(N))]))]
    assert types.grow_schema(schema, pa.struct([(name, S) for name in names] + empty), INFERRED) is not schema
    assert types.grow_schema(schema, pa.struct([(name, S) for name in names] + empty), INFERRED) == schema


def test_of_two_fields_that_differ_in_letter_case_the_first_is_the_column() -> None:
    assert types.grow_schema(pa.schema([]), pa.struct([("Zip", S), ("zip", LONG)]), INFERRED).names == ["Zip"]


def test_hints_say_the_type_and_without_inference_all_is_text() -> None:
    news = pa.struct([("a", LONG), ("b", pa.struct([("c", LONG)])), ("z", N)])
    hints = pa.schema([("a", pa.decimal128(10, 2))])
    assert types.grow_schema(pa.schema([]), news, TEXT, hints) == pa.schema([("a", pa.decimal128(10, 2)), ("b", S)])
    assert types.grow_schema(
        pa.schema([("h", pa.struct([("x", LONG)]))]), pa.struct([("h", pa.struct([("y", D)]))]), TEXT
    ) == pa.schema([("h", pa.struct([("x", LONG), ("y", S)]))])


@pytest.mark.parametrize(
    ("known", "seen", "wider"),
    [
        (pa.int32(), LONG, LONG),
        (pa.int32(), D, D),
        (LONG, D, D),
        (DATE, MOMENT, MOMENT),
        (LONG, S, LONG),
        (LONG, LARGE, LONG),
        (D, LONG, D),
        (S, LONG, S),
        (B, S, B),
        (MOMENT, DATE, MOMENT),
        (pa.decimal128(10, 2), D, pa.decimal128(10, 2)),
        (LONG, pa.struct([("a", LONG)]), LONG),
        (pa.struct([("a", LONG)]), pa.struct([("a", D)]), pa.struct([("a", D)])),
        (pa.struct([("a", LONG)]), S, pa.struct([("a", LONG)])),
    ],
)
def test_a_type_grows_only_where_it_is_allowed_and_never_else(known: pa.DataType, seen: pa.DataType, wider: pa.DataType) -> None:
    schema, news = pa.schema([("a", known)]), pa.struct([("a", seen)])
    assert types.grow_schema(schema, news, INFERRED) == schema
    assert types.grow_schema(schema, news, WIDER) == pa.schema([("a", wider)])
