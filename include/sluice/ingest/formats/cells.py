"""From CSV text to cells: rows by their quotes, in any chunking the same; rows that are none set aside with their text.

A row ends with its line, unless a quoted field goes on. A quote is doubled within quotes, and stands for itself in a field that does not start
with one. An empty field is NULL, "" is an empty text. Blank lines are no rows. A row whose quotes are wrong (never closed, or text after the
closing one) is its first line only, and reading goes on with the next: it costs no other row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyarrow import csv

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening
from sluice.ingest.files.opening import Unreadable
from sluice.ingest.formats import RAGGED, csv_rows
from sluice.ingest.formats.csv_rows import BROKEN_QUOTES

_CR, _LF = 13, 10


@dataclass(frozen=True)
class Rows:
    """columns: of text, one a field. problems: by the row's place here, why it is none and its text; it is NULL in all columns."""

    columns: list[pa.Array]
    count: int
    problems: dict[int, tuple[str, str]] = field(default_factory=dict)


def of(source: Source, texts: Iterator[bytes], width: int) -> Iterator[Rows]:
    """The rows of UTF-8 text that comes in pieces. width: how many fields a row has. Raises Unreadable, and what `texts` raises."""
    plain = source.delimiter.isascii() and source.quote.isascii()
    waiting: list[bytes] = []
    seen = 0
    for text, last in opening.and_last(texts):
        waiting.append(text)
        # Looked at again when there is twice as much: a long quoted field costs no more than its length.
        if sum(map(len, waiting)) < 2 * seen and not last:
            continue
        data = b"".join(waiting)
        end, odd = _clean(data, ord(source.delimiter), ord(source.quote), last) if plain else (0, True)
        if end:
            yield _parsed(source, data[:end], width)
        rest, too_long = data[end:], len(data) - end > opening.LONGEST
        while odd or too_long:
            found, done = _by_line(source, csv_rows.whole_characters(rest), width, last, too_long)
            if found.count:
                yield found
            if too_long and not done:
                raise Unreadable(opening.too_long())
            rest = rest[done:]
            odd, too_long = False, len(rest) > opening.LONGEST
        waiting, seen = [rest], len(rest)


def _clean(data: bytes, delimiter: int, quote: int, last: bool) -> tuple[int, bool]:
    """How many bytes are whole rows that are quoted as they should be; and whether the row after them is not."""
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


def _parsed(source: Source, data: bytes, width: int) -> Rows:
    """Rows whose quotes are right, by Arrow."""
    odd: list[csv.InvalidRow] = []

    def note(row: csv.InvalidRow) -> str:
        odd.append(row)
        return "skip"

    names = [str(number) for number in range(width)]
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        csv.ParseOptions(
            delimiter=source.delimiter, quote_char=source.quote, newlines_in_values=True, invalid_row_handler=note
        ),
        csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    columns = [column.combine_chunks() for column in table.columns]
    return _with_problems(columns, table.num_rows, [(row.number - 1, row.text) for row in odd])


def _with_problems(columns: list[pa.Array], good: int, ragged: list[tuple[int, str]]) -> Rows:
    """Good rows and others in order. ragged: the place of each among all rows, and its text; those of blanks only are no rows."""
    bad = {place - blank: (RAGGED, text) for place, text, blank in _counted(ragged) if text.strip()}
    if not bad:
        return Rows(columns, good)
    order = np.zeros(good + len(bad), np.int64)
    is_bad = np.zeros(len(order), bool)
    is_bad[list(bad)] = True
    order[~is_bad] = np.arange(good)
    places = pa.array(order, mask=is_bad)
    return Rows([column.take(places) for column in columns], len(order), bad)


def _counted(ragged: list[tuple[int, str]]) -> Iterator[tuple[int, str, int]]:
    """Each with the number of blank ones before it."""
    blank = 0
    for place, text in ragged:
        yield place, text, blank
        blank += not text.strip()


def _by_line(source: Source, text: str, width: int, last: bool, give_up: bool) -> tuple[Rows, int]:
    """Rows one by one, whatever their quotes, and how many bytes they have. give_up: the first is too long to wait for its end."""
    rows: list[list[str | None]] = []
    problems: dict[int, tuple[str, str]] = {}
    limit = len(text) if last else text.rfind("\n") + 1
    at = 0
    while at < limit:
        cells, end = csv_rows.row(source, text, at, last or (give_up and at == 0))
        if end is None or end > limit:
            break
        line, at = text[at:end].rstrip("\r\n"), end
        if not line:
            continue
        if cells is not None and len(cells) == width:
            rows.append(cells)
        elif line.strip():
            problems[len(rows)] = (BROKEN_QUOTES if cells is None else RAGGED, line)
            rows.append([None] * width)
    columns = [pa.array([row[number] for row in rows], pa.string()) for number in range(width)]
    return Rows(columns, len(rows), problems), len(text[:at].encode())
