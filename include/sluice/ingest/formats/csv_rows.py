"""One row of CSV text, cell by cell, whatever its quotes."""

from __future__ import annotations

import codecs
import re
from functools import cache

from sluice.declare.ingest.source import Source

BROKEN_QUOTES = "a quoted field of the row is not closed, or goes on after its closing quote"
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")


def find_first_csv_row(source: Source, start: str, complete: bool) -> tuple[list[str | None] | None, int]:
    """The first row that is not blank, and how many characters it and what precedes it have.

    None where there is none, or its quotes are wrong. complete: whether the text ends there; otherwise a row at its end may continue.
    """
    at = 0
    while at < len(start):
        cells, end = parse_csv_row(source, start, at, complete)
        if end is None:
            return None, at
        if cells is None or start[at:end].strip():
            return cells, end
        at = end
    return None, at


def parse_csv_row(source: Source, text: str, at: int, last: bool) -> tuple[list[str | None] | None, int | None]:
    """The cells of the row that starts there, and where the next one starts. Cells None: its quotes are wrong, and the row is one line.

    End None: the row may continue after the text.
    """
    delimiter, quote = source.delimiter, source.quote
    line = _LINE.match(text, at)
    assert line is not None  # it matches nothing, too
    if quote not in line[1]:
        return [cell or None for cell in line[1].split(delimiter)], line.end()
    quoted, bare = _csv_field_patterns(delimiter, quote)
    cells: list[str | None] = []
    while True:
        if text.startswith(quote, at):
            found = quoted.match(text, at)
            if found is None and not last:
                return None, None
            if found is None or text[found.end() : found.end() + 1] not in ("", delimiter, "\r", "\n"):
                return None, line.end()
            cells.append(found[1].replace(quote * 2, quote))
        else:
            found = bare.match(text, at)
            assert found is not None
            cells.append(found[0] or None)
        at = found.end()
        if not text.startswith(delimiter, at):
            end = _LINE.match(text, at)
            return cells, end.end() if end else at
        at += 1


@cache
def _csv_field_patterns(delimiter: str, quote: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The patterns of a quoted field and of a bare one."""
    d, q = re.escape(delimiter), re.escape(quote)
    return re.compile(f"{q}((?:[^{q}]++|{q}{q})*+){q}"), re.compile(f"[^{d}\r\n]*")


def decode_whole_characters(data: bytes) -> str:
    """The text without a character that is cut off at its end."""
    return codecs.getincrementaldecoder("utf-8")().decode(data)
