"""JSON lines: one object a line. Lines of blanks are no records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening
from sluice.ingest.formats import ParsedBlock
from sluice.ingest.formats.json_fast import count_object_lines
from sluice.ingest.formats.json_records import JsonBlockReader

_BLANKS = " \t\r\ufeff"


def read_format_records(source: Source, path: Path, schema: pa.Schema, path_values: Mapping[str, str]) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`."""
    records = JsonBlockReader(source, schema, path_values)
    for block in opening.read_line_blocks(source, path):
        parsed = records.parsed(block, count_object_lines(block), lambda block=block: _split_record_lines(block))  # type: ignore[misc]
        if parsed.rows.num_rows:
            yield parsed


def _split_record_lines(block: bytes) -> list[str]:
    """The records as they were delivered, without the line ends."""
    return [line.removesuffix("\r") for line in block.decode().split("\n") if line.strip(_BLANKS)]
