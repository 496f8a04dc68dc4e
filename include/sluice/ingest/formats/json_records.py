"""Turns JSON records into rows, each block in the fastest way that is right for it; and writes records with null in some of their fields.

Three ways give the same result: Arrow's reader for the whole block; if that finds something odd, a check of each record and Arrow's reader
for those that fit; and the exact reader, record by record, for the rest. The check is faster than exact reading, which pays if a few odd
records are among many good ones.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.formats import ParsedBlock
from sluice.ingest.formats.json_exact import ExactJsonReader
from sluice.ingest.formats.json_fast import FastJsonReader, Mask
from sluice.ingest.values import conversion
from sluice.ingest.values.json_values import JsonReal

_Part = tuple[Sequence[int], pa.Table]
"""Rows, and the positions of their records in the block."""
_JSON_BLANKS = " \t\r\n"
_DECODER = json.JSONDecoder()


class JsonBlockReader:
    """Reads blocks of records of one file."""

    def __init__(self, source: Source, schema: pa.Schema, path_values: Mapping[str, str | None]) -> None:
        self._fast = FastJsonReader(source, schema, path_values)
        self._verified = JsonVerifier(schema)
        self._exact = ExactJsonReader(source, schema, path_values)

    def parsed(self, block: bytes, count: int | None, texts: Callable[[], list[str]]) -> ParsedBlock:
        """Returns the rows of a block.

        count: how many records it has, if each is known by its brackets to be one object on one line; None: unknown. texts: returns the records.
        """
        news = self._exact.news()
        whole = self._fast.rows(block, count) if count is not None and self._fast.possible else None
        if whole is not None and not whole[1].any():
            return ParsedBlock(whole[0], news.fields())
        records = texts()
        parts: list[_Part] = []
        waiting: Sequence[int] = range(len(records))
        if whole is not None:
            parts.append(_select_good_rows(waiting, whole))
            waiting = _select_marked_positions(waiting, whole[1])
        if self._fast.possible:
            waiting = self._read_fitting_records(records, waiting, parts)
        if waiting or not parts:
            parts.append((waiting, self._exact.rows((records[at] for at in waiting), news)))
        return ParsedBlock(_join_parts_in_order(parts), news.fields())

    def _read_fitting_records(self, records: list[str], waiting: Sequence[int], parts: list[_Part]) -> Sequence[int]:
        """Reads the records that fit; returns the positions of the others."""
        texts = [records[at].strip(" \t\r") for at in waiting]
        fitting = np.fromiter(map(self._verified.fits, texts), dtype=np.bool_, count=len(texts))
        fits = _select_marked_positions(waiting, fitting)
        if not fits:
            return waiting
        block = "\n".join([text for text, good in zip(texts, fitting, strict=True) if good]) + "\n"
        try:
            found = self._fast.rows(block.encode(), len(fits), verified=True)
        except UnicodeEncodeError:
            found = None
        if found is None:
            return waiting
        parts.append(_select_good_rows(fits, found))
        return sorted([*_select_marked_positions(waiting, ~fitting), *_select_marked_positions(fits, found[1])])


def _select_good_rows(positions: Sequence[int], found: tuple[pa.Table, Mask]) -> _Part:
    rows, odd = found
    return _select_marked_positions(positions, ~odd), rows.filter(pa.array(~odd)) if odd.any() else rows


def _select_marked_positions(positions: Sequence[int], mask: Mask) -> list[int]:
    return [positions[at] for at in np.flatnonzero(mask).tolist()]


def _join_parts_in_order(parts: list[_Part]) -> pa.Table:
    if len(parts) == 1:
        return parts[0][1]
    positions = np.concatenate([np.asarray(positions, dtype=np.int64) for positions, _ in parts])
    return pa.concat_tables([rows for _, rows in parts]).combine_chunks().take(pa.array(np.argsort(positions)))


Check = Callable[[Any], bool]


class _Odd(ValueError):
    """Raised for input that the fast ways do not accept."""


class JsonVerifier:
    """Finds the records that Arrow's reader reads exactly, apart from texts in date columns that are not dates or times."""

    def __init__(self, schema: pa.Schema) -> None:
        self._check = _build_struct_check(list(schema))
        decoder: Any = json.JSONDecoder(
            object_pairs_hook=_reject_repeated_keys, parse_float=JsonReal, parse_constant=_reject_constant
        )
        self._scan = decoder.scan_once

    def fits(self, text: str) -> bool:
        """Whether a record fits. text: without blanks around it."""
        try:
            value, end = self._scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            return False
        return end == len(text) and self._check(value)


def _reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Odd
    return found


def _reject_constant(constant: str) -> None:
    raise _Odd


def _build_struct_check(fields: list[pa.Field]) -> Check:
    checks = {field.name: _build_type_check(field.type) for field in fields}
    check_for = checks.get

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, member in value.items():
            fits = check_for(name)
            if fits is None or (member is not None and not fits(member)):
                return False
        return True

    return check


def _build_type_check(kind: pa.DataType) -> Check:
    if pa.types.is_struct(kind):
        return _build_struct_check(list(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        fits = _build_type_check(kind.value_type)
        return lambda value: type(value) is list and all(item is None or fits(item) for item in value)
    if pa.types.is_boolean(kind):
        return lambda value: value is True or value is False
    if pa.types.is_signed_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return lambda value: type(value) is int and -half <= value < half
    if pa.types.is_floating(kind):  # what only a FLOAT does not hold, the reader finds
        return _is_double
    if pa.types.is_decimal(kind):
        plain = re.compile(conversion.plain_decimal_pattern(kind)).fullmatch
        return lambda value: type(value) in (JsonReal, int) and plain(str(value)) is not None
    return lambda value: type(value) is str


def _is_double(value: Any) -> bool:
    if type(value) is JsonReal:
        return not math.isinf(float(value))
    return type(value) is int and conversion.parse_double(str(value)) is not conversion.MISFIT


def empty_json_fields(record: str, fields: Collection[str]) -> str:
    """Returns a JSON object with null in these fields, in any letter case. Text that is not an object is cut where it cannot be read."""
    names, found, done = {name.lower() for name in fields}, [], 0
    for name, start, end in _iterate_json_members(record):
        if name.lower() in names:
            found += [record[done:start], "null"]
            done = end
    return "".join([*found, record[done:]])


def _iterate_json_members(record: str) -> Iterator[tuple[str, int, int]]:
    """Yields the fields of an object: the name, and where its value begins and ends."""
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
