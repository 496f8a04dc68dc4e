"""Converts JSON text to values and back without loss: numbers stay as they are written, and repeated keys are kept."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

DEEPEST = 1000
"""How many levels of objects and arrays a record may have."""

FEW = 100
"""How many levels need no `recursion_room`."""

_ROOM = 10_000
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]+|[\]}]+', re.DOTALL)


class JsonInteger(str):
    """A number without fraction and exponent, as written."""

    __slots__ = ()


class JsonReal(str):
    """A number with fraction or exponent, as written."""

    __slots__ = ()


class JsonConstant(str):
    """NaN, Infinity or -Infinity."""

    __slots__ = ()


class RepeatedKeys(list[tuple[str, Any]]):
    """The members of an object that has a key twice."""

    def first(self) -> dict[str, Any]:
        """The first member of each key."""
        found: dict[str, Any] = {}
        for name, value in self:
            found.setdefault(name, value)
        return found


class TooDeep(ValueError):
    """The text is nested deeper than `DEEPEST` levels."""


def _build_json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | RepeatedKeys:
    found = dict(pairs)
    return found if len(found) == len(pairs) else RepeatedKeys(pairs)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_build_json_object, parse_int=JsonInteger, parse_float=JsonReal, parse_constant=JsonConstant
)


def parse_json_text(text: str) -> Any:
    """Returns the value of a JSON text: None, bool, str, dict, list, and the classes above.

    Blanks around it are allowed, as in JSON. Raises ValueError if it is not JSON, TooDeep if it is nested too deep, and RecursionError without enough
    `recursion_room`.
    """
    return _DECODER.decode(text)


def count_deep_levels(text: str) -> int:
    """Returns how many levels of objects and arrays the text has, or 0 if they are few. Raises TooDeep."""
    if text.count("{") + text.count("[") <= FEW:
        return 0
    found = measure_nesting_depth(text)
    if found > DEEPEST:
        raise TooDeep
    return found if found > FEW else 0


def measure_nesting_depth(text: str) -> int:
    """Returns how many levels of objects and arrays the text has."""
    level = deepest = 0
    for found in _MARKS.finditer(text):
        mark = found[0]
        if mark[0] in "[{":
            level += len(mark)
            deepest = max(deepest, level)
        elif mark[0] in "]}":
            level -= len(mark)
    return deepest


@contextmanager
def recursion_room() -> Iterator[None]:
    """Gives the stack room for code that walks a deep value level by level."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _ROOM))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


_WORDS = {None: "null", True: "true", False: "false"}


def write_exact_json(value: Any) -> str:
    """Writes a value of `parse_json_text` as compact JSON: numbers as they were written, keys as often as they came.

    A number that JSON lacks becomes a string, such as "NaN". Half of a surrogate pair stays an escape, because UTF-8 cannot write it.
    """
    written = _write_json_value(value, encode_basestring)
    try:
        written.encode()
    except UnicodeEncodeError:
        return _write_json_value(value, encode_basestring_ascii)
    return written


def has_repeated_key(value: Any) -> bool:
    """Whether an object in the value has a key twice."""
    if isinstance(value, dict):
        return any(has_repeated_key(member) for member in value.values() if isinstance(member, (dict, list)))
    return isinstance(value, RepeatedKeys) or any(has_repeated_key(item) for item in value if isinstance(item, (dict, list)))


def _write_json_value(value: Any, quoted: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(quoted(value))
    if kind is JsonInteger or kind is JsonReal:
        return str(value)
    if kind is JsonConstant:
        return f'"{value}"'
    if kind is dict or kind is RepeatedKeys:
        pairs = value.items() if kind is dict else value
        return "{" + ",".join([f"{quoted(name)}:{_write_json_value(member, quoted)}" for name, member in pairs]) + "}"
    if kind is list:
        return "[" + ",".join([_write_json_value(item, quoted) for item in value]) + "]"
    return _WORDS[value]
