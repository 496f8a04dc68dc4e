"""Reading binary files, each one record. Empty files have none."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import UnreadableFile
from sluice.ingest.formats import ExaminedContent, ParsedBlock
from sluice.ingest.formats.delivered_fields import DeliveredField, FittedValues, add_path_fields, fit_delivered_fields
from sluice.locations import Location

CONTENT = "content"
_LONGEST_VALUE = 2**31 - 1


@dataclass(frozen=True)
class _BinaryValues:
    content: pa.Array

    def fitted(self, type: pa.DataType) -> FittedValues:
        if type == pa.binary():
            return FittedValues(self.content, None, pa.null())
        return FittedValues(pa.nulls(len(self.content), type), *self.whole())

    def whole(self) -> tuple[pa.Array, pa.DataType]:
        return pa.array([f'"{b64encode(value).decode()}"' for value in self.content.to_pylist()], pa.string()), pa.binary()


def read_format_records(
    source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None]
) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`."""
    content = b"".join(delivered_bytes.read_file_chunks(source, path))
    if content:
        fields = [DeliveredField(CONTENT, _BinaryValues(pa.array([content], pa.binary())))]
        fields = add_path_fields(path_values, fields, schema, pa.array([True]))
        yield fit_delivered_fields(source, schema, fields, 1, {})


def examine_format_content(source: Source, path: Location, seen: Callable[[bytes], object]) -> ExaminedContent:
    """As `formats.examine_file_content`."""
    size = sum(len(part) for part in delivered_bytes.read_file_chunks(source, path, seen))
    if size > _LONGEST_VALUE:
        raise UnreadableFile(f"the file has more than {_LONGEST_VALUE} bytes, and a binary file is one value")
    return ExaminedContent(empty=not size, text_bytes=size)


def write_remaining_records(
    source: Source, path: Location, file: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """As `formats.write_remaining_records`: the file is one record, and nothing stays of it."""
