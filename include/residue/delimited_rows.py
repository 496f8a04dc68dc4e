"""The declared dialect of text, and rows of delimited text, whose fields have the names of the first row.

This module alone says what an option of a dialect means for a scan. It refuses unknown options: rows that are split in
another way than they were written would hide a person.
"""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class TextDialect:
    """The checked options. delimiter: that of rows of fields; None if the text has no rows of fields. header: whether row 1 has the names.

    Raises ValueError, LookupError for an encoding unknown to Python, and TypeError for an unknown option.
    """

    encoding: str = "utf-8"
    delimiter: str | None = None
    quote: str = '"'
    header: bool = True

    def __post_init__(self) -> None:
        if len(self.quote) != 1 or (self.delimiter is not None and len(self.delimiter) != 1):
            raise ValueError("a delimiter and a quote are one character each")
        codecs.lookup(self.encoding)

    @property
    def in_rows(self) -> bool:
        """Whether the text consists of rows of fields."""
        return self.delimiter is not None

    def split_fields(self, line: str, mark: str) -> list[str]:
        """Splits a row into fields. mark: the delimiter to use, which may differ from the declared one."""
        csv.field_size_limit(max(csv.field_size_limit(), len(line)))  # a field may be as long as the row
        return next(csv.reader([line], delimiter=mark, quotechar=self.quote), [])

    def has_open_quote(self, line: str) -> bool:
        """Whether the line seems to be a part of a row, with a quoted field that continues before or after it."""
        return line.count(self.quote) % 2 != 0


_MARKS = ",;\t|"
"""The delimiters that are tried if none is declared."""


def holds_value(field: str, value: str) -> bool:
    """Whether a field is a value, or a JSON array with it."""
    text = field.strip()
    if text.startswith("[") and text.endswith("]"):
        return value in [one.strip().strip("\"'\\") for one in text[1:-1].split(",")]
    return text == value


class DelimitedRows:
    """Rows of delimited text in lower case. If the first line names no column (no header), a value counts in any field."""

    def __init__(self, start: bytes, columns: frozenset[str], dialect: TextDialect | None) -> None:
        header = start.split(b"\n", 1)[0].decode("utf-8", "replace").strip("\r\ufeff")
        said = dialect if dialect and dialect.in_rows else None
        self._dialect = said or TextDialect()
        self._mark = self._dialect.delimiter or max(_MARKS, key=header.count)
        self._names = [name.strip() for name in self._fields(header)]
        names = bool(columns & set(self._names)) or all(re.fullmatch(r"[a-z_][a-z0-9_ .-]*", name) for name in self._names)
        self._known = names if said is None else said.header

    def holds(self, data: bytes, start: int, end: int, columns: frozenset[str]) -> bool:
        """Whether the value is a field of its row in one of these columns."""
        first = data.rfind(b"\n", 0, start) + 1
        stop = data.find(b"\n", end)
        line = data[first : stop if stop >= 0 else len(data)].decode("utf-8", "replace")
        value = data[start:end].decode()
        fields = [field.strip() for field in self._fields(line.rstrip("\r"))]
        other = max((self._mark, *_MARKS), key=line.count)
        if len(fields) != len(self._names) and other != self._mark:  # unlike the other rows: no name fits its fields
            fields += [field.strip() for field in self._fields(line.rstrip("\r"), other)]
            return any(holds_value(field, value) for field in fields)
        if not self._known or self._dialect.has_open_quote(line) or len(fields) > len(self._names):
            return any(holds_value(field, value) for field in fields)
        return any(holds_value(field, value) and name in columns for name, field in zip(self._names, fields, strict=False))

    def _fields(self, line: str, mark: str = "") -> list[str]:
        return self._dialect.split_fields(line, mark or self._mark)
