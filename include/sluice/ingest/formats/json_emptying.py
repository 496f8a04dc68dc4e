"""JSON objects as they were delivered, with null in some of their fields."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

_JSON_BLANKS = " \t\r\n"
_DECODER = json.JSONDecoder()


def empty_json_fields(record: str, fields: Collection[str]) -> str:
    """A JSON object with null in these fields, letter case apart; of a text that is none, the rest from where it cannot be read on goes."""
    names, found, done = {name.lower() for name in fields}, [], 0
    for name, start, end in _iterate_json_members(record):
        if name.lower() in names:
            found += [record[done:start], "null"]
            done = end
    return "".join([*found, record[done:]])


def _iterate_json_members(record: str) -> Iterator[tuple[str, int, int]]:
    """The fields of an object: the name, and where its value begins and ends."""
    at = _skip_json_blanks(record, 0)
    if record[at : at + 1] != "{":
        return
    at = _skip_json_blanks(record, at + 1)
    while record[at : at + 1] == '"':
        name, at = _DECODER.raw_decode(record, at)
        start = _skip_json_blanks(record, _skip_json_blanks(record, at) + 1)
        _, end = _DECODER.raw_decode(record, start)
        yield str(name), start, end
        at = _skip_json_blanks(record, end)
        if record[at : at + 1] != ",":
            return
        at = _skip_json_blanks(record, at + 1)


def _skip_json_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _JSON_BLANKS:
        at += 1
    return at
