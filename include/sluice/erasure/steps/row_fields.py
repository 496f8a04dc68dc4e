"""Rows of delimited text that nobody could read as records: where their fields end, and what a field says.

A reader refuses such rows. Here each is split as well as it can be, since somebody may be named in it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from sluice.declare.ingest.file_formats import USUAL_DELIMITERS, CsvDialect

AROUND_ELEMENTS = b" \t\r\n\"'\\"
"""What may stand around an element of an array."""


def choose_delimiters(record: bytes, dialect: CsvDialect | None) -> str:
    """The delimiters of a record: its source's, unless others are more frequent, which may be why nobody could read it."""
    if dialect is None:
        return "".join(USUAL_DELIMITERS)
    marks = [dialect.delimiter, *USUAL_DELIMITERS]
    return max(marks, key=lambda mark: record.count(mark.encode()))


def find_usual_delimiter(row: bytes) -> str:
    """The usual delimiter that the row has most of."""
    return max(USUAL_DELIMITERS, key=lambda mark: row.count(mark.encode()))


def may_be_rows(content: bytes) -> bool:
    """Whether it may be text in rows of fields; in JSON and XML a field has its name beside it."""
    return b"\0" not in content and not content.lstrip().startswith((b"{", b"[", b"<"))


def split_fields(row: bytes, delimiters: str) -> list[bytes]:
    """What stands between the delimiters of a folded row, without quotes and blanks around it. A delimiter in a quoted field is none."""
    return [field.strip(b" \"'") for field in _compile_field_pattern(delimiters).findall(row)]


@lru_cache
def _compile_field_pattern(delimiters: str) -> re.Pattern[bytes]:
    """Matches the fields of a row, each with the delimiter before it. A quote that nothing closes is a letter as any other."""
    escaped = [re.escape(one.encode()) for one in (*delimiters, "\r", "\n")]
    marks = b"[" + b"".join(escaped) + b"]" if delimiters.isascii() else b"(?:" + b"|".join(escaped) + b")"
    other = marks.replace(b"[", b"[^", 1) + b"*+" if delimiters.isascii() else b"(?:(?!" + marks + rb")[\s\S])*+"
    return re.compile(rb"(?:\A|" + marks + rb')("[^"]*+(?:""[^"]*+)*+"' + other + b"|" + other + b")")


def list_field_values(field: bytes) -> list[bytes]:
    """What a field says: its text or, of an array, each of its elements."""
    if field.startswith(b"[") and field.endswith(b"]"):
        return [element.strip(AROUND_ELEMENTS) for element in field[1:-1].split(b",")]
    return [field]
