"""Reads JSON lines: one object per line. Blank lines are not records."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import IO

import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import FileSpan
from sluice.ingest.formats import ExaminedContent, ParsedBlock
from sluice.ingest.formats.json_fast import count_object_lines
from sluice.ingest.formats.json_records import JsonBlockReader, empty_json_fields
from sluice.ingest.formats.plain import examine_text, write_encoded_text
from sluice.locations import Location

_BLANKS = " \t\r\ufeff"


def read_format_records(
    source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None], span: FileSpan | None = None
) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`."""
    records = JsonBlockReader(source, schema, path_values)
    for block in delivered_bytes.read_line_blocks(source, path, span):
        parsed = records.parsed(block, count_object_lines(block), lambda block=block: _split_record_lines(block))  # type: ignore[misc]
        if parsed.rows.num_rows:
            yield parsed


def examine_format_content(source: Source, path: Location, seen: Callable[[bytes], object]) -> ExaminedContent:
    """As `formats.examine_file_content`."""
    return examine_text(source, path, seen).as_content()


def write_remaining_records(
    source: Source, path: Location, file: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """As `formats.write_remaining_records`."""
    write_encoded_text(source, target, _filter_record_lines(delivered_bytes.read_line_blocks(source, path), gone, emptied))


def _filter_record_lines(blocks: Iterable[bytes], gone: frozenset[int], emptied: Mapping[int, Collection[str]]) -> Iterator[str]:
    """Yields the lines that stay. Blank lines stay."""
    number = 0
    for block in blocks:
        kept = []
        for line in io.StringIO(block.decode(), newline="\n"):
            is_record = bool(line.strip(_BLANKS + "\n"))
            if not (is_record and number in gone):
                kept.append(empty_json_fields(line, emptied[number]) if is_record and number in emptied else line)
            number += is_record
        yield "".join(kept)


def _split_record_lines(block: bytes) -> list[str]:
    """Returns the records as they were delivered, without the line ends."""
    return [line.removesuffix("\r") for line in block.decode().split("\n") if line.strip(_BLANKS)]
