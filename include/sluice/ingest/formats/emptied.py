"""Records of delivered files with some of their fields emptied: the rest of the text as it came."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

NOTHING: Mapping[int, Collection[str]] = MappingProxyType({})
"""Where no field of any record is to be emptied."""
_BLANKS = " \t\r\n"
_DECODER = json.JSONDecoder()


def empty_json_fields(record: str, fields: Collection[str]) -> str:
    """A JSON object with null in these fields, letter case apart; of a text that is none, the rest from where it cannot be read on goes."""
    names, found, done = {name.lower() for name in fields}, [], 0
    for name, start, end in _members(record):
        if name.lower() in names:
            found += [record[done:start], "null"]
            done = end
    return "".join([*found, record[done:]])


def empty_csv_fields(
    cells: Sequence[str | None], header: Sequence[str], fields: Collection[str], delimiter: str, quote: str, ended: str
) -> str:
    """A row of CSV with nothing in these columns. header: the names of its columns. ended: how its line ends."""
    names = {name.lower() for name in fields}
    kept = [None if name.lower() in names else cell for name, cell in zip(header, cells, strict=True)]
    return delimiter.join(_written(cell, delimiter, quote) for cell in kept) + ended


def empty_columns(rows: pa.Table, start: int, emptied: Mapping[int, Collection[str]]) -> pa.Table:
    """Rows of a Parquet file, the first of which has the number `start`, with NULL in these columns."""
    for place, field in enumerate(rows.schema):
        lowered = field.name.lower()
        mask = [lowered in {name.lower() for name in emptied.get(number, ())} for number in range(start, start + rows.num_rows)]
        if any(mask):
            keep = pa.array([None if gone else place for place, gone in enumerate(mask)], pa.int64())
            rows = rows.set_column(place, field, rows.column(place).take(keep))
    return rows


def _members(record: str) -> Iterator[tuple[str, int, int]]:
    """The fields of an object: the name, and where its value begins and ends."""
    at = _past_blanks(record, 0)
    if record[at : at + 1] != "{":
        return
    at = _past_blanks(record, at + 1)
    while record[at : at + 1] == '"':
        name, at = _DECODER.raw_decode(record, at)
        start = _past_blanks(record, _past_blanks(record, at) + 1)
        _, end = _DECODER.raw_decode(record, start)
        yield str(name), start, end
        at = _past_blanks(record, end)
        if record[at : at + 1] != ",":
            return
        at = _past_blanks(record, at + 1)


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _written(cell: str | None, delimiter: str, quote: str) -> str:
    if cell is None:
        return ""
    bare = cell and not any(mark in cell for mark in (delimiter, quote, "\r", "\n"))
    return cell if bare else f"{quote}{cell.replace(quote, quote * 2)}{quote}"
