"""Rows of delimited text, whose fields stand below the names of the first row."""

from __future__ import annotations

import csv
import re

from sluice.erasure.scan.result import Written

_MARKS = ",;\t|"
"""What parts fields."""


class Rows:
    """Rows of delimited text, in lower case. Where the first line names no column (there is no header), a value counts in any field."""

    def __init__(self, start: bytes, columns: frozenset[str], written: Written | None) -> None:
        header = start.split(b"\n", 1)[0].decode("utf-8", "replace").strip("\r\ufeff")
        said = written if written and written.delimiter else None
        self._mark = (said.delimiter if said else None) or max(_MARKS, key=header.count)
        self._quote = said.quote if said else '"'
        self._names = [name.strip() for name in self._fields(header)]
        names = bool(columns & set(self._names)) or all(re.fullmatch(r"[a-z_][a-z0-9_ .-]*", name) for name in self._names)
        self._known = names if said is None else said.header

    def holds(self, data: bytes, start: int, end: int, columns: frozenset[str]) -> bool:
        """Whether the value is a field of its row, in one of these columns."""
        first = data.rfind(b"\n", 0, start) + 1
        stop = data.find(b"\n", end)
        line = data[first : stop if stop >= 0 else len(data)].decode("utf-8", "replace")
        value = data[start:end].decode()
        fields = [field.strip() for field in self._fields(line.rstrip("\r"))]
        other = max((self._mark, *_MARKS), key=line.count)
        if len(fields) != len(self._names) and other != self._mark:  # no row of this file's form: no name tells its fields
            fields += [field.strip() for field in self._fields(line.rstrip("\r"), other)]
            return value in fields
        if not self._known or line.count(self._quote) % 2 or len(fields) > len(self._names):
            return value in fields
        return any(field == value and name in columns for name, field in zip(self._names, fields, strict=False))

    def _fields(self, line: str, mark: str = "") -> list[str]:
        return next(csv.reader([line], delimiter=mark or self._mark, quotechar=self._quote), [])
