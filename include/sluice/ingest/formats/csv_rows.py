"""What a CSV dialect means for text: where rows end, what their cells are, and how cells are written as a row again.

Also writes a file's text without some of its rows, or with some of their cells emptied; the rest stays as delivered.

A row is read cell by cell here, whatever its quotes. Arrow reads many rows at once if their quotes are right.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from sluice.declare.ingest.file_formats import CsvDialect
from sluice.declare.ingest.source import Source
from sluice.declare.sql import schema
from sluice.ingest.values.types import column_names

BROKEN_QUOTES = "a quoted field of the row is not closed, or goes on after its closing quote"
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_CR, _LF = 13, 10


class CsvFileStart(NamedTuple):
    """How the text of a file begins. Only this class and `format_csv_file_start` know the options for that.

    first: the cells of its first row, or None if there is none or its quotes are wrong. end: how many characters it and everything before it
    have. rows_at: how many characters come before the first record.
    """

    first: list[str | None] | None
    end: int
    rows_at: int


def find_csv_file_start(dialect: CsvDialect, text: str, complete: bool) -> CsvFileStart:
    """Finds how a file begins. complete: whether the text is all of the file; if not, a row at its end may continue."""
    first, end = find_first_csv_row(dialect, text, complete)
    return CsvFileStart(first, end, end if dialect.header else 0)


def format_csv_file_start(dialect: CsvDialect, header: str | None) -> str:
    """Returns what comes before the first record of a file. header: the row of column names; if unknown, that of one nameless column."""
    return f"{header or dialect.quote * 2}\n" if dialect.header else ""


def find_first_csv_row(dialect: CsvDialect, start: str, complete: bool) -> tuple[list[str | None] | None, int]:
    """Returns the first row that is not blank, and how many characters it and everything before it have.

    None if there is none or its quotes are wrong. complete: whether the text ends there; if not, a row at its end may continue.
    """
    at = 0
    while at < len(start):
        cells, end = parse_csv_row(dialect, start, at, complete)
        if end is None:
            return None, at
        if cells is None or start[at:end].strip():
            return cells, end
        at = end
    return None, at


def parse_csv_row(dialect: CsvDialect, text: str, at: int, last: bool) -> tuple[list[str | None] | None, int | None]:
    """Returns the cells of the row that starts there, and where the next one starts.

    If the cells are None, the quotes are wrong and the row is one line. If the end is None, the row may continue after the text.
    """
    delimiter, quote = dialect.delimiter, dialect.quote
    line = _LINE.match(text, at)
    assert line is not None  # the pattern also matches an empty line
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


def is_csv_record(cells: Sequence[str | None] | None, line: str, width: int) -> bool:
    """Whether a row is a record: a line of blanks is not, unless it has as many cells as the others. line: the row without its line end."""
    return bool(line) and ((cells is not None and len(cells) == width) or bool(line.strip()))


def format_csv_row(dialect: CsvDialect, cells: Iterable[str | None]) -> str:
    """Returns the row that is read as these cells, without a line end. It has quotes only where it must."""
    return dialect.delimiter.join(_quote_csv_cell(dialect, cell) for cell in cells)


def format_csv_header(dialect: CsvDialect, names: Iterable[str]) -> str:
    """Returns the column names as they stand in a file's header row. A nameless column is empty."""
    return format_csv_row(dialect, (name or None for name in names))


def parse_csv_header(dialect: CsvDialect, start: str) -> tuple[str, ...]:
    """Returns the names that a file begins with. Empty if it has no header."""
    return tuple(name or "" for name in find_csv_file_start(dialect, start, True).first or ()) if dialect.header else ()


def _quote_csv_cell(dialect: CsvDialect, cell: str | None) -> str:
    if cell is None:
        return ""
    quote = dialect.quote
    bare = cell and not any(mark in cell for mark in (dialect.delimiter, quote, "\r", "\n"))
    return cell if bare else f"{quote}{cell.replace(quote, quote * 2)}{quote}"


def find_clean_rows_end(dialect: CsvDialect, data: bytes, last: bool) -> tuple[int, bool]:
    """Returns how many bytes are whole rows that Arrow reads as `parse_csv_row` does, and whether the next row must be read by itself."""
    if not (dialect.delimiter.isascii() and dialect.quote.isascii()):
        return 0, True
    delimiter, quote = ord(dialect.delimiter), ord(dialect.quote)
    if quote not in data:
        return (len(data) if last else data.rfind(b"\n") + 1), False
    byte = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(byte == quote)
    opened, closed = quotes[::2], quotes[1::2]
    before, after = byte[opened - 1], byte[np.minimum(closed + 1, len(byte) - 1)]
    may_follow = np.zeros(256, bool)
    may_follow[[delimiter, quote, _CR, _LF]] = True
    wrong = np.concatenate([
        opened[~(may_follow[before] | (opened == 0))],
        closed[~(may_follow[after] | (closed == len(byte) - 1))],
    ])
    odd = bool(len(wrong))
    if last and not odd:
        if len(quotes) % 2 == 0:
            return len(data), False
        odd, wrong = True, quotes[-1:]
    lines = np.flatnonzero(byte[: wrong.min() if odd else None] == _LF)
    outside = lines[np.searchsorted(quotes, lines) % 2 == 0]
    return (int(outside[-1]) + 1 if len(outside) else 0), odd


def find_rows_end(dialect: CsvDialect, text: str, last: bool, give_up: bool) -> int:
    """Returns how many characters the rows with known ends have. `parse_csv_row` is asked only for odd rows.

    last: whether the text ends there. give_up: whether the first row is too long to wait for its end.
    """
    at, limit = 0, len(text) if last else text.rfind("\n") + 1
    while at < limit:
        right = _right_rows_pattern(dialect.delimiter, dialect.quote).match(text, at, limit)
        at = right.end() if right else at
        _, end = parse_csv_row(dialect, text, at, last or (give_up and at == 0))
        if end is None or end > limit:
            return at
        at = max(at, end)
    return at


def build_arrow_options(
    dialect: CsvDialect, names: Iterable[str], note_odd: Callable[[csv.InvalidRow], str]
) -> tuple[csv.ParseOptions, csv.ConvertOptions]:
    """Returns the options with which Arrow reads clean rows as `parse_csv_row` does.

    names: of the columns. note_odd: is called with each row of another width.
    """
    parse = csv.ParseOptions(
        delimiter=dialect.delimiter, quote_char=dialect.quote, newlines_in_values=True, invalid_row_handler=note_odd
    )
    convert = csv.ConvertOptions(
        check_utf8=False,
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
        quoted_strings_can_be_null=False,
    )
    return parse, convert


@cache
def _csv_field_patterns(delimiter: str, quote: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns the patterns of a quoted field and of a bare one."""
    d, q = re.escape(delimiter), re.escape(quote)
    return re.compile(f"{q}((?:[^{q}]++|{q}{q})*+){q}"), re.compile(f"[^{d}\r\n]*")


@cache
def _right_rows_pattern(delimiter: str, quote: str) -> re.Pattern[str]:
    """Returns the pattern of rows with correct quotes, each with its line end."""
    d, q = re.escape(delimiter), re.escape(quote)
    cell = f"(?:{q}(?:[^{q}]++|{q}{q})*+{q}|(?!{q})[^{d}\r\n]*+)"
    return re.compile(f"(?:{cell}(?:{d}{cell})*+(?:\r\n|[\r\n]))*+")


def decode_whole_characters(data: bytes) -> str:
    """Decodes text without a character that is cut off at its end."""
    return codecs.getincrementaldecoder("utf-8")().decode(data)


def filter_csv_rows(
    source: Source, text: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]], path_names: Collection[str] = ()
) -> Iterator[str]:
    """Returns the text without some rows, or with some cells emptied. path_names: of the columns that the file's path gives."""
    dialect = source.dialect
    first, _, at = find_csv_file_start(dialect, text, True)
    # As the reader names and counts them, or another line would be a row, and rows would have other numbers.
    names = _csv_field_names(source, first or (), path_names)
    width = len(names)
    yield text[:at]
    number = 0
    while at < len(text):
        cells, after = parse_csv_row(dialect, text, at, True)
        end = len(text) if after is None else after
        line = text[at:end].rstrip("\r\n")
        is_record = is_csv_record(cells, line, width)
        if is_record and number in emptied and number not in gone and cells is not None:
            yield _empty_csv_fields(dialect, cells, names, emptied[number]) + text[at + len(line) : end]
        elif not (is_record and number in gone):
            yield text[at:end]
        number += is_record
        at = end


def _empty_csv_fields(dialect: CsvDialect, cells: Sequence[str | None], header: Sequence[str], fields: Collection[str]) -> str:
    """Returns a CSV row with these columns emptied, without a line end. header: the names of its columns."""
    names = {name.lower() for name in fields}
    kept = [None if name.lower() in names else cell for name, cell in zip(header, cells, strict=True)]
    return format_csv_row(dialect, kept)


def _csv_field_names(source: Source, first: Sequence[str | None], path_names: Collection[str]) -> list[str]:
    """Returns the names of a CSV file's fields, as its reader has them. first: the cells of its first row."""
    if source.header:
        return column_names([name or "" for name in first])
    return list_headerless_fields(source, path_names, len(first))


def list_headerless_fields(source: Source, path_names: Collection[str], count: int) -> list[str]:
    """Returns the names of the fields of a file without a header: the declared ones without those of its path, otherwise _c0, _c1, ...

    A row does not say which columns it lacks. So neither what else the table has by now nor the width of a first row, which may be ragged,
    counts. path_names: the names in the file's path, whether or not their folders have a value. count: the fields of its first row.
    """
    in_path = {name.lower() for name in path_names}
    declared = schema.split_schema_declaration(source.ddl, f"Source '{source.name}'").columns if source.ddl else ()
    return [name for name in declared if name.lower() not in in_path] or [f"_c{number}" for number in range(count)]
