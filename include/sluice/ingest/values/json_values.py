"""JSON text to values that keep what the text said: numbers as they are written, keys that come twice."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DEEPEST = 1000
"""How many levels of objects and arrays a record may have."""

FEW = 100
"""Levels that need no `room`."""

_ROOM = 10_000
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]+|[\]}]+', re.DOTALL)


class Integer(str):
    """A number without fraction and exponent, as written."""

    __slots__ = ()


class Real(str):
    """A number with fraction or exponent, as written."""

    __slots__ = ()


class Constant(str):
    """NaN, Infinity or -Infinity."""

    __slots__ = ()


class Repeated(list[tuple[str, Any]]):
    """The members of an object that has a key twice."""

    def first(self) -> dict[str, Any]:
        """The first member of each key."""
        found: dict[str, Any] = {}
        for name, value in self:
            found.setdefault(name, value)
        return found


class TooDeep(ValueError):
    """Text that is nested deeper than `DEEPEST` levels."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any] | Repeated:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Repeated(pairs)


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_int=Integer, parse_float=Real, parse_constant=Constant)


def parse(text: str) -> Any:
    """The value of a JSON text: None, bool, str, dict, list, and the classes above.

    Blanks around it are allowed, as in JSON. Raises ValueError for what is no JSON, TooDeep for what is nested too deep, and
    RecursionError where there is no `room` for what is nested.
    """
    return _DECODER.decode(text)


def levels(text: str) -> int:
    """How many levels of objects and arrays the text has, or 0 where they need no look: they are few. Raises TooDeep."""
    if text.count("{") + text.count("[") <= FEW:
        return 0
    found = depth(text)
    if found > DEEPEST:
        raise TooDeep
    return found if found > FEW else 0


def depth(text: str) -> int:
    """How many levels of objects and arrays the text has."""
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
def room() -> Iterator[None]:
    """Room on the stack for what goes through a deep value level by level."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _ROOM))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
