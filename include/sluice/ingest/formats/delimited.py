"""Reading CSV: the header's names, and every cell as its column has it or, as delivered, in what is rescued."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening
from sluice.ingest.files.opening import Unreadable
from sluice.ingest.formats import RESCUED, Parsed, cells, csv_rows
from sluice.ingest.formats.placement import Field, Texts, of_path, placed
from sluice.ingest.values.columns import as_in_table, column_names

HEADER_LIMIT = 1 << 20
"""The first row lies within so many bytes of text."""

_LONGEST_NAME = 1 << 17
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def read(source: Source, path: Path, schema: pa.Schema, path_values: Mapping[str, str]) -> Iterator[Parsed]:
    """As `formats.read`."""
    texts = opening.pieces(source, path)
    start = _start(texts)
    if not start.strip():
        return
    found, length = _first(source, start)
    if source.header:
        names = as_in_table(column_names([name or "" for name in found]), schema.names)
        start = start[length:]
    else:
        names = _without_header(source, schema, path_values, len(found))
    for rows in cells.of(source, _and(start, texts), len(names)):
        if rows.count:
            yield _block(source, schema, path_values, names, rows)


def header(source: Source, start: bytes) -> tuple[str, ...]:
    """The names in the first row of a file, as delivered. start: of its text as UTF-8, all or at least `HEADER_LIMIT` bytes.

    Raises Unreadable: it is no header, or of a file with another separator.
    """
    names = tuple(name or "" for name in _first(source, start)[0])
    if any(len(name) > _LONGEST_NAME for name in names):
        raise Unreadable("the first line is no header: one field of it is longer than 128 KiB")
    if len(names) == 1:
        others = {other: names[0].count(other) for other in _DELIMITERS if other != source.delimiter}
        likely = max(others, key=lambda other: others[other])
        if others[likely] > 0:
            found, wanted = _DELIMITERS[likely], _DELIMITERS.get(source.delimiter, repr(source.delimiter))
            raise Unreadable(f"the file's fields are separated by {found}, the source declares {wanted}")
    return names


def _block(source: Source, schema: pa.Schema, path_values: Mapping[str, str], names: list[str], rows: cells.Rows) -> Parsed:
    fields = [
        Field(name or f"_field_{position}", Texts(column, None if source.infer_types else pa.string()), bool(name))
        for position, (name, column) in enumerate(zip(names, rows.columns, strict=True), start=1)
    ]
    if path_values:
        present = pa.array([place not in rows.problems for place in range(rows.count)])
        fields += of_path(path_values, fields, schema, present)
    found = placed(source, schema, fields, rows.count, rows.problems)
    return _with_subjects(source, names, rows, found) if rows.problems and source.subject in names else found


def _with_subjects(source: Source, names: list[str], rows: cells.Rows, found: Parsed) -> Parsed:
    """A row that cannot stand in bronze still says whose it is, in _rescued_data, so that the quarantine knows whose it keeps."""
    position = names.index(str(source.subject))
    rescued = found.rows.column(RESCUED).to_pylist()
    for place, (_, text) in rows.problems.items():
        row = csv_rows.first(source, text, True)[0] or []
        if position < len(row) and row[position] is not None:
            rescued[place] = json.dumps({source.subject: row[position]}, ensure_ascii=False)
    column = found.rows.schema.get_field_index(RESCUED)
    return Parsed(found.rows.set_column(column, found.rows.schema.field(column), pa.array(rescued, pa.string())), found.news)


def _first(source: Source, start: bytes) -> tuple[list[str | None], int]:
    """The cells of the first row, and up to where it goes, in bytes."""
    complete = len(start) < HEADER_LIMIT
    text = csv_rows.whole_characters(start)
    found, length = csv_rows.first(source, text, complete)
    if found is None and complete:
        raise Unreadable(f"the first line is no header: {csv_rows.BROKEN_QUOTES}" if source.header else csv_rows.BROKEN_QUOTES)
    if found is None or (length == len(text) and not complete):
        raise Unreadable(f"the first line is longer than {HEADER_LIMIT >> 20} MiB")
    return found, len(text[:length].encode())


def _start(texts: Iterator[bytes]) -> bytes:
    start = b""
    for text in texts:
        start += text
        if len(start) >= HEADER_LIMIT and start.strip():
            break
    return start


def _and(start: bytes, texts: Iterator[bytes]) -> Iterator[bytes]:
    if start:
        yield start
    yield from texts


def _without_header(source: Source, schema: pa.Schema, path_values: Mapping[str, str], count: int) -> list[str]:
    """The names of a file's fields that says none: those of the declared schema in order, else _c0, _c1, ..."""
    if source.ddl:
        in_path = {name.lower() for name in path_values}
        return [name for name in schema.names if name.lower() not in in_path]
    return as_in_table([f"_c{number}" for number in range(count)], schema.names)
