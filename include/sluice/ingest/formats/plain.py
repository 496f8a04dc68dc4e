"""Reading text, a record a line, and binary files, a record each. Empty files have no records; a blank line among others is one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening
from sluice.ingest.formats import Parsed
from sluice.ingest.formats.placement import Field, Fitted, Texts, of_path, placed

VALUE, CONTENT = "value", "content"


@dataclass(frozen=True)
class _Bytes:
    content: pa.Array

    def fitted(self, type: pa.DataType) -> Fitted:
        if type == pa.binary():
            return Fitted(self.content, None, pa.null())
        return Fitted(pa.nulls(len(self.content), type), *self.whole())

    def whole(self) -> tuple[pa.Array, pa.DataType]:
        return pa.array([f'"{b64encode(value).decode()}"' for value in self.content.to_pylist()], pa.string()), pa.binary()


def read(source: Source, path: Path, schema: pa.Schema, path_values: Mapping[str, str]) -> Iterator[Parsed]:
    """As `formats.read`. A line ends with LF or CR LF, which do not belong to it."""
    for field, count in _contents(source, path):
        fields = [field]
        present = pa.repeat(pa.scalar(True), count)
        yield placed(source, schema, [*fields, *of_path(path_values, fields, schema, present)], count, {})


def _contents(source: Source, path: Path) -> Iterator[tuple[Field, int]]:
    if source.format == "binary":
        content = b"".join(opening.chunks(source, path))
        if content:
            yield Field(CONTENT, _Bytes(pa.array([content], pa.binary()))), 1
        return
    for block in opening.blocks(source, path):
        ended = block.endswith(b"\n")
        text = pa.array([block[:-1] if ended else block], pa.binary()).cast(pa.string())
        lines = pc.split_pattern(text, "\n").flatten()
        if b"\r" in block:
            lines = pc.replace_substring_regex(lines, "\r$", "")
        yield Field(VALUE, Texts(lines, pa.string())), len(lines)
