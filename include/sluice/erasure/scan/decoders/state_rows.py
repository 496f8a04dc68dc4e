"""Rows in Spark's state stores: what the schema beside a store calls their fields, so that short values are found in their columns."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from sluice.erasure.scan import kinds
from sluice.erasure.scan.decoders import unsafe_rows
from sluice.erasure.scan.decoders.damage import Damaged, exactly
from sluice.erasure.scan.decoders.unsafe_rows import Fields
from sluice.erasure.scan.inspection import Inspection

_WORD = 8
_VERSION = b"\0"
"""The byte in front of each row, of the encoding that is read here."""
_INTERNAL = 8
"""Bytes behind each key of a RocksDB table: a sequence number and a type."""
_PROPERTY = b"rocksdb."
_AT_ONCE = 10_000


def read(table: Path | None, entries: Iterable[tuple[bytes, bytes]], inspection: Inspection) -> None:
    """Look for short values in a RocksDB table of a state store: only its schema tells which bytes are of which column. Raises Damaged.

    entries: its keys and values. Where nothing tells the columns, whoever has short values was not looked for here, and it is said so.
    """
    if not inspection.compiled.columns:
        return
    file = _schema_of(table) if table else None
    fit = values(entries, _schema(file), inspection) if file else None
    if not fit:
        why = "rows of a state store are of another form" if file else "nothing tells the columns of a state store"
        for whose in inspection.compiled.short_of:
            inspection.unread(f"{why}, and a short identifier is looked for", whose)


def _schema_of(table: Path) -> Path | None:
    """The file that names the columns of the store that a table is of: of all partitions of a store, Spark writes it beside the first."""
    store = table.parents[1] if table.parent.name == "SSTs" else table.parent
    first = [store.parent / "0"] if store.name.isdecimal() else []
    # A join has several stores in each partition, and each has a name.
    first += [store.parent.parent / "0" / store.name] if store.parent.name.isdecimal() else []
    found = (folder / "_metadata" / "schema" for folder in (*table.parents[:2], *first))
    return next((path for path in found if path.is_file()), None)


def schema_text(stream: IO[bytes]) -> bytes:
    """The text of a state store's schema as Spark writes it: a version, and texts in parts of 64 KiB, put together. Raises Damaged."""
    version, found = _utf(stream), []
    while more := stream.read(4):
        if len(more) < 4:
            raise Damaged("the schema of a state store is of another form")
        found.append(b"".join(_utf(stream) for _ in range(int.from_bytes(more, "big"))))
    return b"\n".join([version, *found])


def _utf(stream: IO[bytes]) -> bytes:
    text = exactly(stream, int.from_bytes(exactly(stream, 2), "big"))
    if kinds.has_control(text):
        raise Damaged("the schema of a state store is of another form")
    return text


def _schema(file: Path) -> tuple[Fields, Fields]:
    """The fields of keys and of values."""
    text = file.read_bytes().decode("utf-8", "replace")
    schemas, at = [], text.find('{"type":"struct"')
    while at >= 0:
        try:
            schema, end = json.JSONDecoder().raw_decode(text, at)
            schemas.append([(str(field["name"]), field["type"]) for field in schema["fields"]])
        except (ValueError, KeyError, TypeError):
            raise Damaged("the schema of a state store cannot be read") from None
        at = text.find('{"type":"struct"', end)
    if len(schemas) != 2:
        raise Damaged("the schema of a state store is of another form")
    return schemas[0], schemas[1]


def values(entries: Iterable[tuple[bytes, bytes]], schemas: tuple[Fields, Fields], inspection: Inspection) -> bool:
    """The numbers and texts of the rows, by their columns. Returns whether all rows were of the form that is read here."""
    numbers: dict[str, list[int]] = {}
    texts: dict[str, list[bytes]] = {}
    fit = True
    for data, fields in _rows(entries, schemas):
        if not _fits(data, fields):
            fit = False
            continue
        try:
            found = list(unsafe_rows.fields(data[1:], fields))
        except (unsafe_rows.Unknown, struct.error, IndexError):
            fit = False
            continue
        for name, value in found:
            if isinstance(value, int):
                numbers.setdefault(name, []).append(value)
            else:
                texts.setdefault(name, []).append(value)
    for name, whole in numbers.items():
        for start in range(0, len(whole), _AT_ONCE):
            inspection.numbers("state rows", name, np.array(whole[start : start + _AT_ONCE], np.int64))
    for name, cells in texts.items():
        inspection.several("state rows", cells, name)
    return fit


def _rows(entries: Iterable[tuple[bytes, bytes]], schemas: tuple[Fields, Fields]) -> Iterator[tuple[bytes, Fields]]:
    """Keys and values, each with its fields; without what RocksDB says of the table, and the empty values of keys that were deleted."""
    keys, rows = schemas
    for key, value in entries:
        if not key.startswith(_PROPERTY):
            yield key[:-_INTERNAL], keys
            if value:
                yield value, rows


def _fits(data: bytes, fields: Fields) -> bool:
    """Whether a row has room for its fields, and no bit that says of another one that it is NULL."""
    words = (len(fields) + 63) // 64
    bits = int.from_bytes(data[1 : 1 + words * _WORD], "little")
    return data[:1] == _VERSION and len(data) > (words + len(fields)) * _WORD and bits >> len(fields) == 0
