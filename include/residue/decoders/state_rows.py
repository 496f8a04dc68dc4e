"""Rows in Spark's state stores, with the column names from the schema beside a store, so that short values are found.

Values are in Spark's UnsafeRow, UnsafeArrayData and UnsafeMapData: one word per field, with longer values behind these. The schema,
which Spark writes as JSON, gives names and types. All numbers are little-endian, except the bytes of a long decimal.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np

from residue import kinds
from residue.damage import DamagedContent, read_exactly
from residue.inspection import Inspection
from residue.stored_files import FilePath

_WHOLE = {"long": "<q", "integer": "<i", "short": "<h", "byte": "<b"}
_BROKEN = {"double": "<d", "float": "<f"}
_NOBODYS = ("boolean", "date", "timestamp", "timestamp_ntz", "void", "null")
"""Types that identify nobody."""
_WIDTH = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "date": 4, "float": 4}
"""The bytes of an array element by type; any other type has a word."""
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_IN_A_WORD = 18
"""Digits of the longest decimal that fits into its word."""
Fields = list[tuple[str, Any]]
"""The names and types of a row's fields."""


class UnreadableRow(Exception):
    """A value has a type that is not read here, or the row has another layout."""


def read_unsafe_row(data: bytes, schema: Fields) -> Iterator[tuple[str, int | bytes]]:
    """Yields a row's numbers and texts with their columns, nested ones as `of.field`. Raises UnreadableRow, or struct.error if cut off.

    Skips numbers that are not whole: these identify nobody.
    """
    start = (len(schema) + 63) // 64 * _WORD
    if len(data) < start + len(schema) * _WORD:
        raise UnreadableRow
    for number, (name, kind) in enumerate(schema):
        if not data[number // 8] >> number % 8 & 1:
            yield from _read_unsafe_value(data, start + number * _WORD, name, kind)


def _read_unsafe_value(data: bytes, at: int, name: str, kind: Any) -> Iterator[tuple[str, int | bytes]]:
    """Yields what one word, or one array element, holds or points to."""
    if kind in _NOBODYS or str(kind).startswith("interval"):
        return
    if isinstance(kind, dict):
        yield from _read_nested_value(_read_variable_length_value(data, at), name, kind)
    elif kind in _WHOLE:
        yield name, struct.unpack_from(_WHOLE[kind], data, at)[0]
    elif kind in _BROKEN:
        yield from _yield_whole_number(name, struct.unpack_from(_BROKEN[kind], data, at)[0])
    elif found := _DECIMAL.fullmatch(str(kind)):
        digits, scale = int(found[1]), int(found[2])
        unscaled = (
            struct.unpack_from("<q", data, at)[0]
            if digits <= _IN_A_WORD
            else int.from_bytes(_read_variable_length_value(data, at), signed=True)
        )
        if unscaled % 10 ** max(scale, 0) == 0:
            yield from _yield_whole_number(name, unscaled // 10 ** max(scale, 0) * 10 ** max(-scale, 0))
    elif kind in ("string", "binary"):
        yield name, _read_variable_length_value(data, at)
    else:
        raise UnreadableRow


def _read_nested_value(data: bytes, name: str, kind: dict[str, Any]) -> Iterator[tuple[str, int | bytes]]:
    if kind.get("type") == "struct":
        yield from read_unsafe_row(data, [(f"{name}.{one['name']}", one["type"]) for one in kind["fields"]])
    elif kind.get("type") == "array":
        yield from _read_array_elements(data, name, kind["elementType"])
    elif kind.get("type") == "map":
        size = struct.unpack_from("<q", data)[0]
        yield from _read_array_elements(data[_WORD : _WORD + size], name, kind["keyType"])
        yield from _read_array_elements(data[_WORD + size :], name, kind["valueType"])
    else:
        raise UnreadableRow


def _read_array_elements(data: bytes, name: str, kind: Any) -> Iterator[tuple[str, int | bytes]]:
    count = struct.unpack_from("<q", data)[0]
    start, width = _WORD + (count + 63) // 64 * _WORD, _WIDTH.get(kind, _WORD) if isinstance(kind, str) else _WORD
    if not 0 <= count <= len(data) * 8:
        raise UnreadableRow
    for number in range(count):
        if not data[_WORD + number // 8] >> number % 8 & 1:
            yield from _read_unsafe_value(data, start + number * width, name, kind)


def _read_variable_length_value(data: bytes, at: int) -> bytes:
    """Returns what a word points to: it holds the length, and the offset from the beginning of its row or array."""
    size, offset = struct.unpack_from("<II", data, at)
    if offset + size > len(data):
        raise UnreadableRow
    return data[offset : offset + size]


def _yield_whole_number(name: str, value: float) -> Iterator[tuple[str, int | bytes]]:
    if math.isfinite(value) and value == int(value) and abs(value) < 1 << 63:
        yield name, int(value)


_WORD = 8
_VERSION = b"\0"
"""The byte before each row that marks the encoding read here."""
_INTERNAL = 8
"""Bytes behind each key of a RocksDB table: a sequence number and a type."""
_PROPERTY = b"rocksdb."
_AT_ONCE = 10_000


def search_state_store_table(table: FilePath | None, entries: Iterable[tuple[bytes, bytes]], inspection: Inspection) -> None:
    """Searches a state store's RocksDB table for short values, which its schema assigns to columns. Raises DamagedContent.

    entries: its keys and values. Without column names, short values cannot be searched for, and their people are reported as unread
    here.
    """
    if not inspection.compiled.columns:
        return
    file = _find_state_schema(table) if table else None
    fit = search_state_rows(entries, _parse_state_schema(file), inspection) if file else None
    if not fit:
        why = "rows of a state store have an unknown form" if file else "the columns of a state store are unknown"
        for whose in inspection.compiled.short_of:
            inspection.unread(f"{why}, and a short identifier is searched for", whose)


def _find_state_schema(table: FilePath) -> FilePath | None:
    """The schema file of the store that a table belongs to. Spark writes it beside the first of a store's partitions."""
    store = table.parents[1] if table.parent.name == "SSTs" else table.parent
    first = [store.parent / "0"] if store.name.isdecimal() else []
    # A join has several named stores in each partition.
    first += [store.parent.parent / "0" / store.name] if store.parent.name.isdecimal() else []
    found = (folder / "_metadata" / "schema" for folder in (*table.parents[:2], *first))
    return next((path for path in found if path.is_file()), None)


def read_state_schema_text(stream: IO[bytes]) -> bytes:
    """The text of a state store's schema: Spark writes a version, then texts in parts of 64 KiB. Raises DamagedContent."""
    version, found = _read_java_utf(stream), []
    while more := stream.read(4):
        if len(more) < 4:
            raise DamagedContent("the schema of a state store is of another form")
        found.append(b"".join(_read_java_utf(stream) for _ in range(int.from_bytes(more, "big"))))
    return b"\n".join([version, *found])


def _read_java_utf(stream: IO[bytes]) -> bytes:
    text = read_exactly(stream, int.from_bytes(read_exactly(stream, 2), "big"))
    if kinds.has_control_characters(text):
        raise DamagedContent("the schema of a state store is of another form")
    return text


def _parse_state_schema(file: FilePath) -> tuple[Fields, Fields]:
    """The fields of keys and of values."""
    text = file.read_bytes().decode("utf-8", "replace")
    schemas, at = [], text.find('{"type":"struct"')
    while at >= 0:
        try:
            schema, end = json.JSONDecoder().raw_decode(text, at)
            schemas.append([(str(field["name"]), field["type"]) for field in schema["fields"]])
        except (ValueError, KeyError, TypeError):
            raise DamagedContent("the schema of a state store cannot be read") from None
        at = text.find('{"type":"struct"', end)
    if len(schemas) != 2:
        raise DamagedContent("the schema of a state store is of another form")
    return schemas[0], schemas[1]


def search_state_rows(entries: Iterable[tuple[bytes, bytes]], schemas: tuple[Fields, Fields], inspection: Inspection) -> bool:
    """Searches the rows' numbers and texts by column. Returns whether all rows had the layout that is read here."""
    numbers: dict[str, list[int]] = {}
    texts: dict[str, list[bytes]] = {}
    fit = True
    for data, fields in _pair_rows_with_fields(entries, schemas):
        if not _has_expected_layout(data, fields):
            fit = False
            continue
        try:
            found = list(read_unsafe_row(data[1:], fields))
        except (UnreadableRow, struct.error, IndexError):
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


def _pair_rows_with_fields(
    entries: Iterable[tuple[bytes, bytes]], schemas: tuple[Fields, Fields]
) -> Iterator[tuple[bytes, Fields]]:
    """Keys and values, each with its fields, without RocksDB's properties and the empty values of deleted keys."""
    keys, rows = schemas
    for key, value in entries:
        if not key.startswith(_PROPERTY):
            yield key[:-_INTERNAL], keys
            if value:
                yield value, rows


def _has_expected_layout(data: bytes, fields: Fields) -> bool:
    """Whether a row has room for its fields, and no NULL bit for a field that it lacks."""
    words = (len(fields) + 63) // 64
    bits = int.from_bytes(data[1 : 1 + words * _WORD], "little")
    return data[:1] == _VERSION and len(data) > (words + len(fields)) * _WORD and bits >> len(fields) == 0
