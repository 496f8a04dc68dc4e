"""Streams that come in parts, as files: what is searched while it is read, and what a decoder gives bit by bit."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

from residue.damage import DamagedContent
from residue.inspection import Inspection

CHUNK = 1 << 20
"""Bytes that are read at once."""


class SearchedStream(io.RawIOBase):
    """A stream whose bytes are searched as they are read."""

    def __init__(self, stream: IO[bytes], inspection: Inspection) -> None:
        self._stream, self._feed = stream, inspection.stream("raw bytes")

    def readable(self) -> bool:
        """It is read only."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes; all that follow, without a size."""
        data = self._stream.read(size)
        self._feed.feed(data)
        return data

    def rest(self) -> None:
        """Search what no decoder has read, too."""
        while self.read(CHUNK):
            pass
        self._feed.close()


class PartedStream(io.RawIOBase):
    """What comes in parts of any length, as a file that is read from its start to its end. An error of a decoder ends it, and is told."""

    def __init__(self, parts: Iterator[bytes], inspection: Inspection, kind: str) -> None:
        self._parts, self._inspection, self._kind = parts, inspection, kind
        self._there = bytearray()

    def readable(self) -> bool:
        """It is read only."""
        return True

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay."""
        self._more(size)
        return bytes(self._there[:size])

    def read(self, size: int = -1) -> bytes:
        """The next bytes; all that follow, without a size."""
        self._more(size)
        data = bytes(self._there if size < 0 else self._there[:size])
        del self._there[: len(data)]
        return data

    def _more(self, size: int) -> None:
        while size < 0 or len(self._there) < size:
            try:
                part = next(self._parts, None)
            except DamagedContent as damage:
                self._inspection.unread(str(damage))
                part = None
            if part is None:
                return
            if self._kind:
                self._inspection.read[self._kind] += len(part)
            self._there += part
