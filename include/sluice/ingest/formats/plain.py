"""Reading text, one record a line, and binary files, one record a file. Empty files have no records; a blank line is one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening
from sluice.ingest.formats import ParsedBlock
from sluice.ingest.formats.placement import DeliveredField, FittedValues, TextValues, build_path_fields, place_delivered_fields

VALUE, CONTENT = "value", "content"


@dataclass(frozen=True)
class _BinaryValues:
    content: pa.Array

    def fitted(self, type: pa.DataType) -> FittedValues:
        if type == pa.binary():
            return FittedValues(self.content, None, pa.null())
        return FittedValues(pa.nulls(len(self.content), type), *self.whole())

    def whole(self) -> tuple[pa.Array, pa.DataType]:
        return pa.array([f'"{b64encode(value).decode()}"' for value in self.content.to_pylist()], pa.string()), pa.binary()


def read_format_records(source: Source, path: Path, schema: pa.Schema, path_values: Mapping[str, str]) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`. A line ends with LF or CR LF, which do not belong to it."""
    for field, count in _read_plain_fields(source, path):
        fields = [field]
        present = pa.repeat(pa.scalar(True), count)
        yield place_delivered_fields(
            source, schema, [*fields, *build_path_fields(path_values, fields, schema, present)], count, {}
        )


def _read_plain_fields(source: Source, path: Path) -> Iterator[tuple[DeliveredField, int]]:
    if source.format == "binary":
        content = b"".join(opening.read_file_chunks(source, path))
        if content:
            yield DeliveredField(CONTENT, _BinaryValues(pa.array([content], pa.binary()))), 1
        return
    for block in opening.read_line_blocks(source, path):
        ended = block.endswith(b"\n")
        text = pa.array([block[:-1] if ended else block], pa.binary()).cast(pa.string())
        lines = pc.split_pattern(text, "\n").flatten()
        if b"\r" in block:
            lines = pc.replace_substring_regex(lines, "\r$", "")
        yield DeliveredField(VALUE, TextValues(lines, pa.string())), len(lines)
