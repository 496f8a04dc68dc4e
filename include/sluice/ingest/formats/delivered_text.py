"""What the formats of text share: a look at all of a file's text, and writing what stays of it in its encoding."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening
from sluice.ingest.files.opening import UnreadableFile
from sluice.ingest.formats import ExaminedContent

_BLANKS = b" \t\r\n"


@dataclass(frozen=True)
class ExaminedText:
    """What a look at text has shown. start: its first bytes as UTF-8, as many as were asked for or all."""

    size: int
    is_blank: bool
    start: bytes

    def as_content(self, header: tuple[str, ...] = ()) -> ExaminedContent:
        """The same as formats say it."""
        return ExaminedContent(empty=self.is_blank, text_bytes=self.size, header=header)


def examine_text(
    source: Source, path: Path, seen: Callable[[bytes], object], *, in_lines: bool = True, keep: int = 0
) -> ExaminedText:
    """Look at all text of a file. in_lines: whether a line is held whole, so that it has a limit. keep: how much of the start is needed.

    seen: is given the file as it lies there. Raises Unreadable and OSError.
    """
    size, blank, start, line = 0, True, b"", 0
    for text in opening.read_text_pieces(source, path, seen):
        size += len(text)
        if blank:
            blank = not text.replace(codecs.BOM_UTF8, b"").strip(_BLANKS)
        if len(start) < keep:
            start += text
        end = text.rfind(b"\n") + 1
        line = len(text) - end + (0 if end else line)
        if in_lines and line > opening.LONGEST:
            raise UnreadableFile(opening.long_line_reason())
    return ExaminedText(size, blank, start)


def write_encoded_text(source: Source, target: IO[bytes], pieces: Iterable[str]) -> None:
    """Write text in the encoding that the source declares."""
    encoder = codecs.getincrementalencoder(source.encoding)()
    for text in pieces:
        target.write(encoder.encode(text))
    target.write(encoder.encode("", final=True))
