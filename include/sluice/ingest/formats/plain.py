"""Reading text, one record a line. Empty files have no records; a blank line is one."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening
from sluice.ingest.formats import ExaminedContent, ParsedBlock
from sluice.ingest.formats.delivered_text import examine_text, write_encoded_text
from sluice.ingest.formats.placement import DeliveredField, TextValues, build_path_fields, place_delivered_fields

VALUE = "value"


def read_format_records(source: Source, path: Path, schema: pa.Schema, path_values: Mapping[str, str]) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`. A line ends with LF or CR LF, which do not belong to it."""
    for block in opening.read_line_blocks(source, path):
        ended = block.endswith(b"\n")
        text = pa.array([block[:-1] if ended else block], pa.binary()).cast(pa.string())
        lines = pc.split_pattern(text, "\n").flatten()
        if b"\r" in block:
            lines = pc.replace_substring_regex(lines, "\r$", "")
        fields = [DeliveredField(VALUE, TextValues(lines, pa.string()))]
        present = pa.repeat(pa.scalar(True), len(lines))
        fields += build_path_fields(path_values, fields, schema, present)
        yield place_delivered_fields(source, schema, fields, len(lines), {})


def examine_format_content(source: Source, path: Path, seen: Callable[[bytes], object]) -> ExaminedContent:
    """As `formats.examine_file_content`."""
    return examine_text(source, path, seen).as_content()


def write_remaining_records(
    source: Source, path: Path, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """As `formats.write_remaining_records`."""
    write_encoded_text(source, target, _filter_lines(opening.read_line_blocks(source, path), gone))


def _filter_lines(blocks: Iterable[bytes], gone: frozenset[int]) -> Iterator[str]:
    number = 0
    for block in blocks:
        lines = list(io.StringIO(block.decode(), newline="\n"))
        yield "".join(line for place, line in enumerate(lines, start=number) if place not in gone)
        number += len(lines)
