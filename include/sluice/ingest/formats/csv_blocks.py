"""Finds where the rows of CSV text end, however it is cut into pieces: blocks of whole rows, and the bytes at which a large file may be cut.

After a block a row begins, whatever comes before it. So blocks, or several readers of a file that is cut after blocks, find the rows that
one reader of the whole file finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sluice.declare.ingest.file_formats import CsvDialect
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import UnreadableFile
from sluice.ingest.formats import csv_rows


class CsvBlock(NamedTuple):
    """Whole rows as UTF-8. is_clean: whether Arrow reads them as `csv_rows.parse_csv_row` does."""

    data: bytes
    is_clean: bool


class CsvSplitter:
    """Divides UTF-8 text that comes in pieces. Text after the last whole row waits for more."""

    def __init__(self, dialect: CsvDialect) -> None:
        self._dialect = dialect
        self._waiting: list[bytes] = []
        self._seen = 0
        self.waiting_bytes = 0

    def add_text(self, text: bytes, last: bool) -> Iterator[CsvBlock]:
        """Returns the rows that one more piece completes. last: whether it is the end of the text. Raises UnreadableFile if a row is too long."""
        self._waiting.append(text)
        self.waiting_bytes += len(text)
        # Looked at again only when there is twice as much text, so that a long quoted field costs no more than its length.
        if self.waiting_bytes < 2 * self._seen and not last:
            return
        data = b"".join(self._waiting)
        end, odd = csv_rows.find_clean_rows_end(self._dialect, data, last)
        if end:
            yield CsvBlock(data[:end], True)
        rest, too_long = data[end:], len(data) - end > delivered_bytes.LONGEST
        while odd or too_long:
            whole = csv_rows.decode_whole_characters(rest)
            done = len(whole[: csv_rows.find_rows_end(self._dialect, whole, last, too_long)].encode())
            if done:
                yield CsvBlock(rest[:done], False)
            elif too_long:
                raise UnreadableFile(delivered_bytes.long_line_reason())
            rest = rest[done:]
            odd, too_long = False, len(rest) > delivered_bytes.LONGEST
        self._waiting, self._seen, self.waiting_bytes = [rest], len(rest), len(rest)


class CsvCutFinder:
    """Finds the bytes at which the parts of an uncompressed text file can begin, while its text is examined for other reasons."""

    def __init__(self, dialect: CsvDialect, starts: list[int]) -> None:
        """starts: where the parts after the first should begin at the earliest."""
        self._splitter = CsvSplitter(dialect)
        self._starts = starts
        self._at = 0
        self._found: list[int] = []

    def follow_text(self, texts: Iterator[bytes]) -> Iterator[bytes]:
        """Passes the pieces on and looks at them. Finds no cuts after a row that is longer than a part, which would have to be held whole."""
        for text in texts:
            if len(self._found) < len(self._starts) and self._splitter.waiting_bytes <= delivered_bytes.PART_BYTES:
                self._note_cuts(text)
            yield text

    def _note_cuts(self, text: bytes) -> None:
        for block in self._splitter.add_text(text, False):
            self._at += len(block.data)
            # A span begins after a line feed; a row may also end with a carriage return.
            while (
                block.data.endswith(b"\n") and len(self._found) < len(self._starts) and self._starts[len(self._found)] <= self._at
            ):
                self._found.append(self._at)

    def list_cuts(self, first_row: int, mark: int) -> tuple[int, ...]:
        """Returns the cuts in bytes of the file. first_row: where its first record begins in the text. mark: the bytes before the text."""
        return tuple(sorted({at + mark for at in self._found if first_row < at}))
