"""What all text formats share, and plain text itself, with one record per line.

They share the examination of a file's whole text, and writing what stays of it in its encoding. In plain text a blank line is a record, and an
empty file has none.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from sluice.declare.ingest.source import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import FileSpan, UnreadableFile
from sluice.ingest.formats import ExaminedContent, ParsedBlock
from sluice.ingest.formats.delivered_fields import DeliveredField, TextValues, add_path_fields, fit_delivered_fields
from sluice.locations import Location

_BLANKS = b" \t\r\n"
VALUE = "value"


@dataclass(frozen=True)
class ExaminedText:
    """What the examination of text has shown. start: its first bytes as UTF-8, as many as were asked for or all."""

    size: int
    is_blank: bool
    start: bytes

    def as_content(self, header: tuple[str, ...] = ()) -> ExaminedContent:
        """Returns the same in the form that all formats use."""
        return ExaminedContent(empty=self.is_blank, text_bytes=self.size, header=header)


def examine_text(
    source: Source,
    path: Location,
    seen: Callable[[bytes], object],
    *,
    in_lines: bool = True,
    keep: int = 0,
    follow: Callable[[Iterator[bytes]], Iterator[bytes]] = iter,
) -> ExaminedText:
    """Examines all text of a file. in_lines: whether a line is held whole and so has a limit. keep: how much of the start is needed.

    seen: is called with the file's bytes as they lie on the disk. follow: is given the pieces of its text, and passes them on. Raises UnreadableFile
    and OSError.
    """
    size, blank, start, line = 0, True, b"", 0
    for text in follow(delivered_bytes.read_text_pieces(source, path, seen)):
        size += len(text)
        if blank:
            blank = not text.replace(codecs.BOM_UTF8, b"").strip(_BLANKS)
        if len(start) < keep:
            start += text
        end = text.rfind(b"\n") + 1
        line = len(text) - end + (0 if end else line)
        if in_lines and line > delivered_bytes.LONGEST:
            raise UnreadableFile(delivered_bytes.long_line_reason())
    return ExaminedText(size, blank, start)


def write_encoded_text(source: Source, target: IO[bytes], pieces: Iterable[str]) -> None:
    """Writes text in the encoding that the source declares."""
    encoder = codecs.getincrementalencoder(source.encoding)()
    for text in pieces:
        target.write(encoder.encode(text))
    target.write(encoder.encode("", final=True))


def read_format_records(
    source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None], span: FileSpan | None = None
) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`. A line ends with LF or CR LF, which do not belong to it."""
    for block in delivered_bytes.read_line_blocks(source, path, span):
        ended = block.endswith(b"\n")
        text = pa.array([block[:-1] if ended else block], pa.binary()).cast(pa.string())
        lines = pc.split_pattern(text, "\n").flatten()
        if b"\r" in block:
            lines = pc.replace_substring_regex(lines, "\r$", "")
        fields = [DeliveredField(VALUE, TextValues(lines, pa.string()))]
        present = pa.repeat(pa.scalar(True), len(lines))
        fields = add_path_fields(path_values, fields, schema, present)
        yield fit_delivered_fields(source, schema, fields, len(lines), {})


def examine_format_content(source: Source, path: Location, seen: Callable[[bytes], object]) -> ExaminedContent:
    """As `formats.examine_file_content`."""
    text = examine_text(source, path, seen)
    return ExaminedContent(empty=not text.size, text_bytes=text.size)


def write_remaining_records(
    source: Source, path: Location, file: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """As `formats.write_remaining_records`."""
    write_encoded_text(source, target, _filter_lines(delivered_bytes.read_line_blocks(source, path), gone))


def _filter_lines(blocks: Iterable[bytes], gone: frozenset[int]) -> Iterator[str]:
    number = 0
    for block in blocks:
        lines = list(io.StringIO(block.decode(), newline="\n"))
        yield "".join(line for position, line in enumerate(lines, start=number) if position not in gone)
        number += len(lines)
