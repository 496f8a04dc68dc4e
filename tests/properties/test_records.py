"""Arbitrary JSON records: record = columns + rescued, on whatever way they are read. The judge here shares no code with the reader."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from sluice.declare import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.formats.json_documents import JsonDocumentSplitter
from sluice.ingest.formats.json_exact import ExactJsonReader
from sluice.ingest.formats.json_fast import count_object_lines
from sluice.ingest.formats.json_lines import _split_record_lines
from sluice.ingest.formats.json_records import JsonBlockReader
from sluice.ingest.values import types

MANY = examples(deadline=None, max_examples=100)
NAMES = ["a", "b", "c", "n", "l", "A", "N", "day", "_file", "bad name", "", "\ud83d", "é", "İ"]
NUMBERS = [
    "0", "-0", "7", "-12", "127", "128", "2147483648", "9007199254740992", "9007199254740993", "9223372036854775807",
    "9223372036854775808", "1" * 40, "1" * 5000, "1.0", "1.50", "-0.0", "0.1", "1e2", "1E+2", "1e400", "-1e400", "1e-400", "16777217",
    "0.30000000000000004", "0.1000000000000000055511151231257827", "123456789.123456789", "1e18", "12345678901234567890.5",
    "3.4e38", "34" + "0" * 37, "123456789.5", "99999999.99", "1.500", "1e-2",
]  # fmt: skip
TEXTS = ["", "x", "7", "true", "null", "2026-02-28", "2026-02-30", "0000-01-01", "2026-02-28T10:00:00Z", "2026-02-28 10:00",
         "2026-02-28T10:00:00.123456+02:00", "2026-02-28T10:00:00.1234567", "0001-01-01T00:00+05:00", "9999-12-31T23:59:60Z",
         "\ud83d", "\ude00", "\U0001f600", "a\x00b", 'q"\\/', "\u2028", "YWJj", "YWJ=", "}\n{", "NaN"]  # fmt: skip


class Text(str):
    """A number or constant, as written."""


class Pairs(list[tuple[str, Any]]):
    """An object's members."""


def written(value: Any, draw: Any) -> str:
    """The JSON text of a value, with blanks and escapes here and there."""
    blank = draw(st.sampled_from(["", "", "", " ", "\t"]))
    if isinstance(value, Pairs):
        return "{" + blank + ",".join(f"{said(name, draw)}{blank}:{written(member, draw)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ("," + blank).join(written(item, draw) for item in value) + "]"
    if isinstance(value, Text):
        return blank + value
    return said(value, draw) if isinstance(value, str) else json.dumps(value)


def said(text: str, draw: Any) -> str:
    escaped = any(0xD800 <= ord(sign) < 0xE000 for sign in text) or draw(st.booleans())
    return json.dumps(text, ensure_ascii=escaped)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS).map(Text),
    st.sampled_from(["NaN", "Infinity", "-Infinity"]).map(Text),
    st.integers(-300, 300).map(lambda number: Text(number)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: Text(repr(number))),
    st.sampled_from(TEXTS),
    st.text(max_size=3),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(st.tuples(st.sampled_from(NAMES[:8]), inner), max_size=3).map(Pairs)
    ),
    max_leaves=6,
)
records = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=5).map(Pairs)
plain = st.sampled_from(
    [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.binary(),
     pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.decimal128(10, 2), pa.decimal128(38, 0)]
)  # fmt: skip
kinds = st.recursive(
    plain,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: pa.struct(list(zip("abc", some, strict=False)))),
    ),
    max_leaves=4,
)
schemas = st.lists(kinds, max_size=6).map(lambda some: pa.schema(list(zip(["a", "b", "c", "n", "l", "day"], some, strict=False))))


@st.composite
def blocks(draw: Any) -> bytes:
    """Lines: records, often the same fields again, and some that are none."""
    lines = []
    for record in draw(st.lists(records, min_size=1, max_size=6)):
        lines += [written(record, draw)] * draw(st.sampled_from([1, 1, 3]))
    some = [
        "",
        " \t",
        "null",
        "[1]",
        '{"a":1} {"a":2}',
        '{"a":',
        '{"a":\n1}',
        '{"a":1}x',
        '{"a":-NaN}',
        '{"a":1,}',
        "\ufeff{}",
        "{}\r",
    ]
    lines += draw(st.lists(st.sampled_from(some), max_size=2))
    return ("\n".join(draw(st.permutations(lines))) + draw(st.sampled_from(["", "\n", "\r\n"]))).encode()


def delivered(text: str) -> Pairs | None:
    """The record of a line, by Python's json; None where it is none."""
    try:
        found = json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=Pairs, parse_int=Text, parse_float=Text, parse_constant=Text
        )
    except ValueError:
        return None
    return found if isinstance(found, Pairs) else None


def judge(text: str, row: dict[str, Any], as_text: bool = False, path: dict[str, str] | None = None) -> None:
    """Fails unless the line is in the row's columns and its rescued data together, exactly."""
    record = delivered(text)
    columns = {name: value for name, value in row.items() if name not in ("_rescued_data", "_problem", "_record")}
    if record is None:
        assert (row["_problem"], row["_record"]) == ("the line is no JSON object", text)
        assert row["_rescued_data"] is None and not any(value is not None for value in columns.values())
        return
    assert row["_problem"] is None and row["_record"] is None
    rest = json.loads(row["_rescued_data"] or "{}", object_pairs_hook=Pairs, parse_int=Text, parse_float=Text)
    assert len({name for name, _ in rest}) == len(rest), "a key twice in the rescued data"
    assert set(dict(rest)) <= {name for name, _ in record} | set(path or ())
    for name in {name for name, _ in record} | set(path or ()):
        came = [value for key, value in record if key == name]
        came = came[:1] + [value for value in came[1:] if value is not None]
        own = came[0] if came else None
        column, over = columns.get(name), dict(rest).get(name)
        cell = (path or {}).get(name)
        if cell is not None and own is None:
            came = [cell, *came[1:]] if is_in(cell, column, as_text=True, cell=True) else [*came, cell]
        if cell is not None and own is not None and not is_in(cell, column, as_text=True, cell=True) and cell != own:
            came.append(cell)
        assert accounted(came, column, over, as_text, cell if own is None else None), (name, came, column, over)


def accounted(came: list[Any], column: Any, over: Any, as_text: bool, cell: str | None) -> bool:
    first, further = (came[0], came[1:]) if came else (None, [])
    as_cell = cell is not None
    if first is None or is_in(first, column, as_text or as_cell, as_cell):
        return rescued(further, over)
    if column is None:
        return rescued([first, *further], over)
    if isinstance(first, Pairs) and isinstance(column, dict) and isinstance(over, Pairs) and not further:
        own = dict(first)
        return all(accounted([own[name]], column.get(name), dict(over).get(name), as_text, None) for name in own)
    return False


def rescued(values: list[Any], over: Any) -> bool:
    if not values:
        return over is None
    return is_exactly(values[0], over) if len(values) == 1 else isinstance(over, list) and all(map(is_exactly, values, over))


def is_exactly(value: Any, over: Any) -> bool:
    """Whether the rescued value says the same: numbers to the digit."""
    if doubled(value):
        return isinstance(over, str) and over == compact(value)
    if isinstance(value, Pairs):
        return isinstance(over, Pairs) and len(over) == len(value) and all(
            a == b and is_exactly(x, y) for (a, x), (b, y) in zip(value, over, strict=True)
        )  # fmt: skip
    if isinstance(value, list):
        return isinstance(over, list) and len(over) == len(value) and all(map(is_exactly, value, over))
    if value in ("NaN", "Infinity", "-Infinity") and isinstance(value, Text):
        return over == value and type(over) is str
    return type(over) is type(value) and over == value


def is_in(value: Any, column: Any, as_text: bool, cell: bool = False) -> bool:
    """Whether the column's value is the delivered one, all of it."""
    if value is None or column is None:
        return value is None and column is None
    if isinstance(column, str):
        return column == value if type(value) is str else as_text and column == compact(value)
    if isinstance(value, Pairs):
        if doubled(value):
            return False
        own = dict(column) if isinstance(column, (dict, list)) else None
        return own is not None and all(is_in(member, own.get(name), as_text) for name, member in value)
    if isinstance(value, list):
        return isinstance(column, list) and len(column) == len(value) and all(is_in(x, y, as_text) for x, y in zip(value, column))  # noqa: B905
    if isinstance(value, bool) or isinstance(column, bool):
        return column is value or (cell and str(column).lower() == value)
    if isinstance(value, Text) or (cell and re.fullmatch(r"-?\d[\d.eE+-]*", str(value)) and isinstance(column, (int, float))):
        return is_number(value, column)
    return is_said(str(value), column)


def is_number(text: str, column: Any) -> bool:
    if text in ("NaN", "Infinity", "-Infinity"):
        return False
    if isinstance(column, float):
        same = float(text) == column or float(text) == float(repr_single(column))
        return (
            same
            and not math.isinf(column)
            and (not text.lstrip("-").isdigit() or float(text) != column or int(column) == Decimal(text))
        )
    return isinstance(column, (int, Decimal)) and Decimal(text) == column


def repr_single(value: float) -> str:
    return str(np.float32(value))


def is_said(text: str, column: Any) -> bool:
    if isinstance(column, bytes):
        return base64.b64decode(text) == column
    if isinstance(column, datetime):
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo or column.tzinfo is None else found.replace(tzinfo=UTC)) == column
    return isinstance(column, date) and date.fromisoformat(text) == column


def doubled(value: Any) -> bool:
    """Whether an object in it has a key twice."""
    if isinstance(value, Pairs):
        return len(dict(value)) < len(value) or any(doubled(member) for _, member in value)
    return isinstance(value, list) and any(map(doubled, value))


def compact(value: Any) -> str:
    """Compact JSON; if half of a surrogate pair is in it, all that is not ASCII is an escape."""
    text = said_compactly(value)
    if any(0xD800 <= ord(sign) < 0xE000 for sign in text):
        return re.sub(r"[^\x00-\x7f]", lambda sign: json.dumps(sign.group())[1:-1], text)
    return text


def said_compactly(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{said_compactly(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(said_compactly, value)) + "]"
    if isinstance(value, Text):
        return f'"{value}"' if value in ("NaN", "Infinity", "-Infinity") else str(value)
    return json.dumps(value, ensure_ascii=False)


def read(
    source: Source, schema: pa.Schema, text: bytes, path: dict[str, str] | None = None
) -> tuple[list[dict[str, Any]], pa.StructType]:
    """The rows by the quickest ways."""
    parsed = JsonBlockReader(source, schema, path or {}).parsed(text, count_object_lines(text), lambda: _split_record_lines(text))
    assert parsed.rows.schema.names == [*schema.names, "_rescued_data", "_problem", "_record"]
    return parsed.rows.to_pylist(maps_as_pydicts=None), parsed.news


def slowly(
    source: Source, schema: pa.Schema, text: bytes, path: dict[str, str] | None = None
) -> tuple[list[dict[str, Any]], pa.StructType]:
    exact = ExactJsonReader(source, schema, path or {})
    news = exact.news()
    return exact.rows(_split_record_lines(text), news).to_pylist(), news.fields()


@MANY
@given(blocks(), schemas, st.sampled_from([{}, {"day": "7"}, {"day": "2026-02-28", "_file": "x", "more": "01"}]))
def test_a_record_is_its_columns_and_its_rescued_data_whatever_the_schema(
    text: bytes, schema: pa.Schema, path: dict[str, str]
) -> None:
    rows, _ = read(Source(name="s"), schema, text, path)
    assert len(rows) == len(_split_record_lines(text))
    for line, row in zip(_split_record_lines(text), rows, strict=True):
        judge(line, row, path=path)


@MANY
@given(blocks())
def test_a_record_is_its_columns_and_its_rescued_data_when_all_columns_are_text(text: bytes) -> None:
    source = Source(name="s", infer_types=False)
    schema = types.grow_schema(pa.schema([]), read(source, pa.schema([]), text)[1], source)
    assert set(schema.types) <= {pa.string()}
    for line, row in zip(_split_record_lines(text), read(source, schema, text)[0], strict=True):
        judge(line, row, as_text=True)


@MANY
@given(blocks(), schemas, st.booleans())
def test_a_record_is_its_columns_and_its_rescued_data_when_the_schema_has_grown(
    text: bytes, schema: pa.Schema, widen: bool
) -> None:
    source = Source(name="s", widen_types=widen)
    grown = types.grow_schema(schema, read(source, schema, text)[1], source)
    assert types.grow_schema(grown, read(source, grown, text)[1], source).names == grown.names
    for line, row in zip(_split_record_lines(text), read(source, grown, text)[0], strict=True):
        judge(line, row)


@MANY
@given(blocks(), schemas, st.booleans(), st.sampled_from(["rescue", "none"]), st.sampled_from([{}, {"day": "07", "x": "1"}]))
def test_the_quick_ways_and_the_exact_one_give_the_same(
    text: bytes, schema: pa.Schema, infer: bool, evolution: Any, path: dict[str, str]
) -> None:
    source = Source(name="s", infer_types=infer, schema_evolution=evolution)
    quick, slow = read(source, schema, text, path), slowly(source, schema, text, path)
    assert repr(quick[0]) == repr(slow[0])
    assert quick[1] == slow[1]


@MANY
@given(blocks(), schemas, st.data())
def test_where_blocks_end_does_not_matter(text: bytes, schema: pa.Schema, data: st.DataObject) -> None:
    source = Source(name="s")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    pieces: Iterator[bytes] = iter([part for part in parts if part])
    found = [row for block in delivered_bytes.cut_at_line_ends(pieces) for row in read(source, schema, block)[0]]
    assert repr(found) == repr(read(source, schema, text)[0])


@MANY
@given(
    st.lists(st.sampled_from(['{"a": 1}', '{"a":"]{\\"}"}', "[", "]", ",", "\n", "null", '"x{', "}", '{"a":[1,{"b":2}]', "é"])),
    st.data(),
)
def test_where_a_document_is_cut_does_not_matter_and_nothing_of_it_is_lost(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts).encode()
    whole = JsonDocumentSplitter()
    expected = [*whole.records(text), whole.end()] if text else [whole.end()]
    expected = [*expected[:-1], *expected[-1][0], expected[-1][1]]
    document, found = JsonDocumentSplitter(), []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += document.records(text[start:end])
    last, cut_off = document.end()
    assert [*found, *last, cut_off] == expected
    left = re.sub(rb"[\s,\[\]]", b"", text)
    assert re.sub(rb"[\s,\[\]]", b"", b"".join([*found, *last, (cut_off or "").encode()])) == left


def test_the_judge_finds_what_is_lost_or_changed() -> None:
    for line, row in [
        ('{"a": 1}', {"a": None, "_rescued_data": None}),
        ('{"a": 1.50}', {"_rescued_data": '{"a":1.5}'}),
        ('{"a": 1, "a": 2}', {"a": 1, "_rescued_data": None}),
        ('{"a": 9007199254740993}', {"a": 9007199254740992.0, "_rescued_data": None}),
        ('{"a": {"b": 1, "c": 2}}', {"a": {"b": 1}, "_rescued_data": None}),
        ('{"a": "1"}', {"a": 1, "_rescued_data": None}),
    ]:
        with pytest.raises((AssertionError, ValueError)):
            judge(line, {**row, "_problem": None, "_record": None})
