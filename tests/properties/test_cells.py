"""Arbitrary cells, written as CSV by another program's rules: record = columns + rescued, in any chunking the same."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.declare import Source
from sluice.ingest import formats
from sluice.ingest.formats import delimited

# What CSV has a meaning for, and what it has not, close together.
CELLS = st.text(
    st.sampled_from('a1",;\n\r\t \u00e9\u20ac\U0001f600') | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=8,
)
ENDS = st.sampled_from(["\n", "\r\n"])
QUOTING = st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
TYPES = st.sampled_from([
    pa.string(),
    pa.int64(),
    pa.float64(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.decimal128(5, 2),
    pa.bool_(),
])
TYPED = st.sampled_from([
    "1",
    "-7",
    "007",
    "2.50",
    "1e400",
    "9007199254740993",
    "true",
    "2026-01-02",
    "2026-02-30",
    "2026-01-02T03:04:05Z",
    "",
])


def written(rows: list[list[str]], end: str, quoting: Any) -> str:
    text = io.StringIO()
    # A carriage return alone ends a line, too, and Python's writer does not quote it where it is not in its own line ends.
    bare = any("\r" in cell for row in rows for cell in row) and end == "\n"
    csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL if bare else quoting).writerows(rows)
    return text.getvalue()


def read(source: Source, text: str, schema: pa.Schema) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(text.encode(source.encoding))
        blocks = list(formats.read_file_records(source, path, schema, {}))
    return [row for block in blocks for row in block.rows.to_pylist()]


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(CELLS | TYPED, min_size=width, max_size=width), min_size=1, max_size=6))


@given(tables(), ENDS, QUOTING, st.sampled_from(["utf-8", "utf-16"]), st.data())
@settings(max_examples=150, deadline=None)
def test_every_cell_is_in_its_column_or_rescued(
    rows: list[list[str]], end: str, quoting: Any, encoding: str, data: st.DataObject
) -> None:
    names = [f"c{number}" for number in range(len(rows[0]))]
    known = data.draw(st.lists(st.sampled_from(names), unique=True))
    kinds = data.draw(st.lists(TYPES, min_size=len(known), max_size=len(known)))
    source = Source(name="cells", format="csv", encoding=encoding, schema_evolution="rescue")
    found = read(source, written([names, *rows], end, quoting), pa.schema(list(zip(known, kinds, strict=True))))
    assert len(found) == len(rows)
    for row, record in zip(rows, found, strict=True):
        assert record["_problem"] is None
        rest = json.loads(record["_rescued_data"] or "{}")
        assert not {name for name in rest if record.get(name) is not None}
        for name, cell in zip(names, row, strict=True):
            assert said(record.get(name), rest.get(name), cell), (name, cell, record)


def said(value: Any, rest: str | None, cell: str) -> bool:
    """Whether column and rescued data together say the cell: exactly its text, or exactly its value."""
    if rest is not None or value is None:
        return (rest or "") == cell
    if isinstance(value, str):
        return value == cell
    if isinstance(value, bool):
        return cell == str(value).lower()
    if isinstance(value, int):
        return str(value) == cell
    if isinstance(value, float):
        return float(cell) == value and ("." in cell or "e" in cell or int(cell) == value)
    return str(value)[:10] in {cell[:10], cell, f"{cell}.00", f"{cell}0"}


@given(
    st.text(st.sampled_from('a,"\n\r \u00e9'), max_size=60),
    st.lists(st.integers(1, 12), max_size=12),
    st.integers(1, 3),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_any_chunking_of_any_text_gives_the_same_rows(text: str, cuts: list[int], width: int, plain: bool) -> None:
    source = Source(name="cells", format="csv", delimiter="," if plain else "\u00e9")
    data = text.encode()

    def chunks() -> Iterator[bytes]:
        at = 0
        for length in cuts:
            yield data[at : at + length]
            at += length
        yield data[at:]

    whole = said_rows(source, iter([data]), width)
    assert said_rows(source, chunks(), width) == whole
    assert said_rows(source, iter([bytes([byte]) for byte in data]), width) == whole


def said_rows(source: Source, texts: Iterator[bytes], width: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for rows in delimited.parse_csv_rows(source.dialect, texts, width):
        values = [column.to_pylist() for column in rows.columns]
        assert {len(column) for column in values} == {rows.count}
        found += [(*(column[position] for column in values), rows.problems.get(position)) for position in range(rows.count)]
    return found


@given(st.text(st.sampled_from('a,"\n \u00e9'), max_size=60), st.integers(1, 3))
@settings(max_examples=400, deadline=None)
def test_nothing_of_any_text_is_lost(text: str, width: int) -> None:
    source = Source(name="cells", format="csv")
    found = said_rows(source, iter([text.encode()]), width)
    kept = "".join((row[-1][1] if row[-1] else "".join(cell or "" for cell in row[:-1])) for row in found)
    # But for separators, line ends, quotes and lines of blanks.
    for sign in "a\u00e9":
        assert kept.count(sign) == text.count(sign)
