"""Values in Spark's UnsafeRow, UnsafeArrayData and UnsafeMapData: a word a field, and what is longer behind these.

Read by the names and types of a schema, as Spark writes it in JSON. All numbers are little-endian, but the bytes of a long decimal.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from typing import Any

_WORD = 8
_WHOLE = {"long": "<q", "integer": "<i", "short": "<h", "byte": "<b"}
_BROKEN = {"double": "<d", "float": "<f"}
_NOBODYS = ("boolean", "date", "timestamp", "timestamp_ntz", "void", "null")
"""Kinds that name nobody."""
_WIDTH = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "date": 4, "float": 4}
"""Bytes of an element of an array; of any other kind a word."""
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_IN_A_WORD = 18
"""Digits of the longest decimal that lies in its word."""

Fields = list[tuple[str, Any]]
"""Names and types of a row's fields."""


class Unknown(Exception):
    """A value of a kind that is not read here, or a row that is laid out otherwise."""


def fields(data: bytes, schema: Fields) -> Iterator[tuple[str, int | bytes]]:
    """The numbers and texts of a row, each with its column; of nested ones as `of.field`. Raises Unknown and, where it is cut, struct.error.

    Of a number that is not whole nothing: it is nobody's identifier.
    """
    start = (len(schema) + 63) // 64 * _WORD
    if len(data) < start + len(schema) * _WORD:
        raise Unknown
    for number, (name, kind) in enumerate(schema):
        if not data[number // 8] >> number % 8 & 1:
            yield from _value(data, start + number * _WORD, name, kind)


def _value(data: bytes, at: int, name: str, kind: Any) -> Iterator[tuple[str, int | bytes]]:
    """What one word, or one element of an array, says or leads to."""
    if kind in _NOBODYS or str(kind).startswith("interval"):
        return
    if isinstance(kind, dict):
        yield from _nested(_far(data, at), name, kind)
    elif kind in _WHOLE:
        yield name, struct.unpack_from(_WHOLE[kind], data, at)[0]
    elif kind in _BROKEN:
        yield from _whole(name, struct.unpack_from(_BROKEN[kind], data, at)[0])
    elif found := _DECIMAL.fullmatch(str(kind)):
        digits, scale = int(found[1]), int(found[2])
        unscaled = struct.unpack_from("<q", data, at)[0] if digits <= _IN_A_WORD else int.from_bytes(_far(data, at), signed=True)
        if unscaled % 10 ** max(scale, 0) == 0:
            yield from _whole(name, unscaled // 10 ** max(scale, 0) * 10 ** max(-scale, 0))
    elif kind in ("string", "binary"):
        yield name, _far(data, at)
    else:
        raise Unknown


def _nested(data: bytes, name: str, kind: dict[str, Any]) -> Iterator[tuple[str, int | bytes]]:
    if kind.get("type") == "struct":
        yield from fields(data, [(f"{name}.{one['name']}", one["type"]) for one in kind["fields"]])
    elif kind.get("type") == "array":
        yield from _elements(data, name, kind["elementType"])
    elif kind.get("type") == "map":
        size = struct.unpack_from("<q", data)[0]
        yield from _elements(data[_WORD : _WORD + size], name, kind["keyType"])
        yield from _elements(data[_WORD + size :], name, kind["valueType"])
    else:
        raise Unknown


def _elements(data: bytes, name: str, kind: Any) -> Iterator[tuple[str, int | bytes]]:
    count = struct.unpack_from("<q", data)[0]
    start, width = _WORD + (count + 63) // 64 * _WORD, _WIDTH.get(kind, _WORD) if isinstance(kind, str) else _WORD
    if not 0 <= count <= len(data) * 8:
        raise Unknown
    for number in range(count):
        if not data[_WORD + number // 8] >> number % 8 & 1:
            yield from _value(data, start + number * width, name, kind)


def _far(data: bytes, at: int) -> bytes:
    """What a word leads to: how long that is, and where it lies from the beginning of its row or array on."""
    size, offset = struct.unpack_from("<II", data, at)
    if offset + size > len(data):
        raise Unknown
    return data[offset : offset + size]


def _whole(name: str, value: float) -> Iterator[tuple[str, int | bytes]]:
    if math.isfinite(value) and value == int(value) and abs(value) < 1 << 63:
        yield name, int(value)
