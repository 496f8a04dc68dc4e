"""Conditions as a table's log writes them: do they hold values that a personal column was compared with?

Delta writes a condition as Spark prints it: a column as `email#17` or `id#18L`, a text without quotes; of replaceWhere the SQL that was given.
So what is left of a comparison when columns and operators are taken away is a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_COLUMN = re.compile(r"`?([A-Za-z_][\w.]*)`?#\d+L?")
_PATH = re.compile(r"\$\.(\w+)")
_FUNCTION = re.compile(r"\b[A-Za-z_]\w*(?=\()")
_PARTS = re.compile(r"\s+(?:AND|OR)\s+", re.IGNORECASE)
_OPERATORS = re.compile(
    r"<=>|[<>!=]=?|[(),]|\b(?:NOT|IS|NULL|isnull|isnotnull|true|false|cast|as|string|int|bigint|coalesce)\b", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z_]\w*")


def texts(said: object) -> Iterator[str]:
    """The conditions, or the columns, that a parameter of a commit holds: a text, a list of texts or of objects with one, as JSON or not."""
    if isinstance(said, str):
        try:
            read = json.loads(said)
        except ValueError:
            read = None
        if isinstance(read, list | dict):
            yield from texts(read)
        elif said.strip():
            yield said
    elif isinstance(said, dict):
        yield from texts(said.get("predicate"))
    elif isinstance(said, list):
        for one in said:
            yield from texts(one)


def compared(text: str, hidden: set[str]) -> list[str]:
    """The personal columns that a condition compares with values. hidden: the personal columns, in lower case."""
    found = []
    for part in _PARTS.split(text):
        named = (*_COLUMN.findall(part), *_PATH.findall(part))
        printed = [name for name in named if name.rpartition(".")[2].lower() in hidden]
        # The path of a personal column in a JSON text is its name, and no value; neither is a function's name.
        rest = _FUNCTION.sub(" ", _COLUMN.sub(" ", _PATH.sub(lambda path: " " if path[1].lower() in hidden else path[0], part)))
        written = [word for word in _WORD.findall(rest) if word.lower() in hidden]
        for word in written:
            rest = re.sub(rf"(?:\w+\.)?`?\b{re.escape(word)}\b`?", " ", rest)
        if (printed or written) and _OPERATORS.sub(" ", rest).strip():
            found.append((printed or written)[0])
    return sorted(set(found))
