"""Reads JSON documents: a file is an object, an array of objects, or several of these one after the other, over any number of lines.

Between records only blanks, commas and the brackets of arrays are skipped. Everything else counts as a record, whether it is one or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import IO

import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.formats import CUT_OFF, ExaminedContent, ParsedBlock, append_technical_columns
from sluice.ingest.formats.json_records import JsonBlockReader, empty_json_fields
from sluice.ingest.formats.plain import examine_text, write_encoded_text
from sluice.locations import Location

_BETWEEN = re.compile(rb"(?:[ \t\r\n,]|\xef\xbb\xbf)*+")
_STRING = rb'"(?:[^"\\]|\\.)*+"?'
_MARK = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_OTHER = re.compile(rb"(?:" + _STRING + rb'|[^"{}\[\],\n])*+[}]*+', re.DOTALL)


def read_format_records(
    source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None]
) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`."""
    records = JsonBlockReader(source, schema, path_values)
    document = JsonDocumentSplitter()
    for piece in delivered_bytes.read_text_pieces(source, path):
        found = document.records(piece)
        if found:
            yield _parse_document_records(records, found)
    found, cut_off = document.end()
    if found:
        yield _parse_document_records(records, found)
    if cut_off is not None:
        yield _build_cut_off_record(schema, cut_off)


def examine_format_content(source: Source, path: Location, seen: Callable[[bytes], object]) -> ExaminedContent:
    """As `formats.examine_file_content`."""
    return examine_text(source, path, seen, in_lines=False).as_content()


def write_remaining_records(
    source: Source, path: Location, file: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """As `formats.write_remaining_records`."""
    write_encoded_text(source, target, _filter_json_documents(delivered_bytes.read_text_pieces(source, path), gone, emptied))


def _filter_json_documents(
    pieces: Iterable[bytes], gone: frozenset[int], emptied: Mapping[int, Collection[str]]
) -> Iterator[str]:
    """Writes one record on each line, whatever arrays they were in. A file that was cut off stays so."""
    document = JsonDocumentSplitter()
    found = [record for piece in pieces for record in document.records(piece)]
    last, cut_off = document.end()
    found += last
    if cut_off == "" and len(found) not in gone:
        yield "["
    for number, record in enumerate(found):
        if number not in gone:
            text = record.decode()
            yield (empty_json_fields(text, emptied[number]) if number in emptied else text) + "\n"
    if cut_off and len(found) not in gone:
        yield cut_off


class JsonDocumentSplitter:
    """Cuts text that comes in pieces into its records."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._looked_at = 0
        self._arrays = 0

    def records(self, piece: bytes) -> list[bytes]:
        """Returns the records that are complete now. Raises UnreadableFile if one is longer than `opening.LONGEST` bytes."""
        self._waiting.append(piece)
        size = sum(map(len, self._waiting))
        if size < 2 * self._looked_at:  # so that a long record is looked at a few times, not once per piece
            return []
        found = self._cut(b"".join(self._waiting), last=False)
        if self._looked_at > delivered_bytes.LONGEST:
            raise delivered_bytes.UnreadableFile(f"a record of the file has more than {delivered_bytes.LONGEST} bytes")
        return found

    def end(self) -> tuple[list[bytes], str | None]:
        """Returns the last records, and the text of an incomplete one: "" if only the array is incomplete, None if nothing is missing."""
        found = self._cut(b"".join(self._waiting), last=True)
        rest = b"".join(self._waiting).decode()
        return found, rest if rest or self._arrays else None

    def _cut(self, data: bytes, last: bool) -> list[bytes]:
        found = []
        at = _skip_separators(data, 0)
        while at < len(data):
            sign = data[at : at + 1]
            if (sign == b"[" and not self._arrays) or (sign == b"]" and self._arrays):
                self._arrays += 1 if sign == b"[" else -1
                at = _skip_separators(data, at + 1)
                continue
            end = _find_container_end(data, at) if sign in (b"{", b"[") else _find_non_container_end(data, at, last)
            if end is None:
                break
            found.append(data[at:end])
            at = _skip_separators(data, end)
        self._waiting, self._looked_at = [data[at:]], len(data) - at
        return found


def _skip_separators(data: bytes, at: int) -> int:
    found = _BETWEEN.match(data, at)
    return found.end() if found else at


def _find_container_end(data: bytes, start: int) -> int | None:
    """Returns where the object or array ends, or None if it is not complete."""
    depth = 0
    for found in _MARK.finditer(data, start):
        sign = data[found.start()]
        if sign in b"{[":
            depth += 1
        elif sign in b"}]":
            depth -= 1
            if depth == 0:
                return found.end()
    return None


def _find_non_container_end(data: bytes, start: int, last: bool) -> int | None:
    """Returns where text ends that is neither object nor array: before the next of these, a comma or a line end."""
    found = _OTHER.match(data, start)
    end = max(found.end() if found else start, start + 1)
    return end if end < len(data) or last else None


def _parse_document_records(records: JsonBlockReader, found: list[bytes]) -> ParsedBlock:
    objects = all(text.startswith(b"{") for text in found)
    # A bracket for a bracket, so that Arrow's reader sees as many records.
    block = b"\n".join(found) + b"\n"
    return records.parsed(block, len(found) if objects else None, lambda: [text.decode().rstrip(" \t\r\n") for text in found])


def _build_cut_off_record(schema: pa.Schema, text: str) -> ParsedBlock:
    rows = append_technical_columns(
        [pa.nulls(1, column.type) for column in schema],
        schema,
        pa.nulls(1, pa.string()),
        pa.array([CUT_OFF], pa.string()),
        pa.array([text], pa.string()),
    )
    return ParsedBlock(rows, pa.struct([]))
