"""The text of what did not fit: JSON that says exactly what was delivered."""

from __future__ import annotations

from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from sluice.ingest.values.json_values import Constant, Integer, Real, Repeated

_WORDS = {None: "null", True: "true", False: "false"}


def text(value: Any) -> str:
    """Compact JSON of a value of `json_values.parse`: numbers as they were written, keys as often as they came.

    What JSON has no number for is a string: "NaN". Half of a surrogate pair stays an escape, since UTF-8 cannot write it.
    """
    written = _written(value, encode_basestring)
    try:
        written.encode()
    except UnicodeEncodeError:
        return _written(value, encode_basestring_ascii)
    return written


def has_repeated(value: Any) -> bool:
    """Whether an object in it has a key twice."""
    if isinstance(value, dict):
        return any(has_repeated(member) for member in value.values() if isinstance(member, (dict, list)))
    return isinstance(value, Repeated) or any(has_repeated(item) for item in value if isinstance(item, (dict, list)))


def _written(value: Any, quoted: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(quoted(value))
    if kind is Integer or kind is Real:
        return str(value)
    if kind is Constant:
        return f'"{value}"'
    if kind is dict or kind is Repeated:
        pairs = value.items() if kind is dict else value
        return "{" + ",".join([f"{quoted(name)}:{_written(member, quoted)}" for name, member in pairs]) + "}"
    if kind is list:
        return "[" + ",".join([_written(item, quoted) for item in value]) + "]"
    return _WORDS[value]
