"""Rows in Spark's state stores: what the schema beside a store calls their fields, so that short values are found in their columns."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sluice.erasure.scan.decoders.damage import Damaged
from sluice.erasure.scan.inspection import Inspection

_WORD = 8
_VERSION = b"\0"
"""The byte in front of each row, of the encoding that is read here."""
_INTERNAL = 8
"""Bytes behind each key of a RocksDB table: a sequence number and a type."""
_WHOLE = {"long": "<q", "integer": "<i", "short": "<h", "byte": "<b"}
_AT_ONCE = 10_000

Fields = list[tuple[str, Any]]
"""Names and types of a row's fields."""


def schema_beside(table: Path) -> tuple[Fields, Fields] | None:
    """The fields of keys and of values of the store that a table is of; None where nothing tells them. Raises Damaged."""
    found = next((path for folder in table.parents[:2] if (path := folder / "_metadata" / "schema").is_file()), None)
    if found is None:
        return None
    text = found.read_bytes().decode("utf-8", "replace")
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


def values(entries: Iterable[tuple[bytes, bytes]], schemas: tuple[Fields, Fields], inspection: Inspection) -> None:
    """The whole numbers and texts of the rows, by their columns. entries: keys and values of a RocksDB table."""
    keys, rows = schemas
    numbers: dict[str, list[int]] = {}
    texts: dict[str, list[bytes]] = {}
    for key, value in entries:
        for data, fields in ((key[:-_INTERNAL], keys), (value, rows)):
            for name, found in _fields(data[1:], fields) if data[:1] == _VERSION else ():
                if isinstance(found, int):
                    numbers.setdefault(name, []).append(found)
                else:
                    texts.setdefault(name, []).append(found)
    for name, whole in numbers.items():
        for start in range(0, len(whole), _AT_ONCE):
            inspection.numbers("state rows", name, np.array(whole[start : start + _AT_ONCE], np.int64))
    for name, cells in texts.items():
        inspection.several("state rows", cells, name)


def _fields(data: bytes, fields: Fields) -> Iterator[tuple[str, int | bytes]]:
    """The fields of a row that is there: bits that say which are NULL, a word a field, and what is longer behind these."""
    start = (len(fields) + 63) // 64 * _WORD
    if len(data) < start + len(fields) * _WORD:
        return
    for number, (name, kind) in enumerate(fields):
        if data[number // 8] >> number % 8 & 1:
            continue
        at = start + number * _WORD
        size, offset = struct.unpack_from("<II", data, at)
        if isinstance(kind, dict):
            if kind.get("type") == "struct":
                inner = [(f"{name}.{one['name']}", one["type"]) for one in kind["fields"]]
                yield from _fields(data[offset : offset + size], inner)
        elif kind in _WHOLE:
            yield name, struct.unpack_from(_WHOLE[kind], data, at)[0]
        elif kind == "string":
            yield name, data[offset : offset + size]
