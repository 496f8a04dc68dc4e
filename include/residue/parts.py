"""Content that is read and searched in parts: streams, the output of decoders, and text in any encoding.

Text in a wide encoding, or in one that its source declares, is searched a second time as UTF-8, the encoding of needles.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import IO

from residue import kinds
from residue.damage import DamagedContent
from residue.delimited_rows import TextDialect
from residue.inspection import Inspection, SearchFeed

CHUNK = 1 << 20
"""How many bytes are read at once."""


class SearchedStream(io.RawIOBase):
    """A stream whose bytes are searched as they are read."""

    def __init__(self, stream: IO[bytes], inspection: Inspection) -> None:
        self._stream, self._feed = stream, inspection.stream("raw bytes")

    def readable(self) -> bool:
        """True: it can only be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes, or without a size all that remain."""
        data = self._stream.read(size)
        self._feed.feed(data)
        return data

    def rest(self) -> None:
        """Searches what no decoder has read."""
        while self.read(CHUNK):
            pass
        self._feed.close()


class PartedStream(io.RawIOBase):
    """A decoder's parts, of any length, as a file that can be read once. An error of the decoder ends it and is reported."""

    def __init__(self, parts: Iterator[bytes], inspection: Inspection, kind: str) -> None:
        self._parts, self._inspection, self._kind = parts, inspection, kind
        self._there = bytearray()

    def readable(self) -> bool:
        """True: it can only be read."""
        return True

    def peek(self, size: int) -> bytes:
        """Returns the next bytes without consuming them."""
        self._more(size)
        return bytes(self._there[:size])

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes, or without a size all that remain."""
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


WIDE = ("utf-16", "utf-32")
"""Kinds of text that a byte order mark identifies."""


_TEXT_PER_STRAY = 1000
"""How many bytes of text there must be for each stray control character: in packed or encrypted content, every eleventh byte is one."""


class _TextEvidence:
    """Whether content is text by its control characters. Those that a source declares as delimiter and quote are none of them.

    A text that a source declares may have a few stray ones, as a broken sender writes them, if the whole of it is in its encoding.
    """

    def __init__(self, dialect: TextDialect | None) -> None:
        self._expected = f"{dialect.delimiter or ''}{dialect.quote}".encode() if dialect else b""
        self._decoder = codecs.getincrementaldecoder(dialect.encoding)() if dialect else None
        self._size = self._strays = 0

    def add_chunk(self, chunk: bytes) -> None:
        """Takes the next bytes, in the declared encoding."""
        self._count_strays(chunk)
        try:
            if self._decoder is not None:
                self._decoder.decode(chunk, final=not chunk)
        except UnicodeError:
            self._decoder = None

    def add_decoded_chunk(self, part: bytes | None) -> None:
        """Takes the next bytes, decoded and as UTF-8. None: they are not in the declared encoding."""
        self._count_strays(part or b"")
        self._decoder = None if part is None else self._decoder

    def _count_strays(self, part: bytes) -> None:
        self._size += len(part)
        self._strays += kinds.count_control_characters(part, self._expected)

    def is_text(self) -> bool:
        """Whether what was taken is text."""
        return not self._strays or (self._decoder is not None and self._strays * _TEXT_PER_STRAY <= self._size)


def search_text_stream(stream: IO[bytes], head: bytes, name: str, inspection: Inspection, kind: str | None) -> None:
    """Searches text, and reports content that is no text, which nothing here can read."""
    dialect = inspection.root.dialect_at(inspection.path)
    comma = kinds.has_delimited_suffix(name) or (dialect is not None and dialect.in_rows)
    decoder = "csv" if comma else "json" if head.lstrip()[:1] in (b"{", b"[") else "text"
    encoding = kind if kind in WIDE else _find_declared_encoding(dialect)
    evidence = _TextEvidence(dialect)
    if encoding is None:
        feed = inspection.stream(decoder, comma=comma, dialect=dialect)
        while chunk := stream.read(CHUNK):
            feed.feed(chunk)
            evidence.add_chunk(chunk)
        evidence.add_chunk(b"")
        feed.close()
    else:
        feed = inspection.stream(kind or decoder, comma=comma, dialect=dialect)
        _search_transcoded_text(stream, encoding, inspection, feed, evidence)
    if kinds.has_foreign_signature(head) or not evidence.is_text():
        inspection.unread("no decoder knows this kind of file")


def _find_declared_encoding(dialect: TextDialect | None) -> str | None:
    """The encoding that a source declares, if it is not UTF-8 or a subset of it."""
    name = codecs.lookup(dialect.encoding).name if dialect else "utf-8"
    return None if name in ("utf-8", "ascii", "utf-8-sig") else name


def _search_transcoded_text(
    stream: IO[bytes], encoding: str, inspection: Inspection, feed: SearchFeed, evidence: _TextEvidence
) -> None:
    """Searches the bytes as they are and as UTF-8."""
    raw, decoder = inspection.stream("raw bytes", text=False), codecs.getincrementaldecoder(encoding)()
    more, broken = True, False
    while more:
        chunk = stream.read(CHUNK)
        more = bool(chunk)
        raw.feed(chunk)
        try:
            text = "" if broken else decoder.decode(chunk, final=not more)
        except UnicodeError:
            inspection.unread("text that is damaged, or not in its encoding")
            text, broken = "", True
        part = text.encode("utf-8", "surrogatepass")
        feed.feed(part)
        evidence.add_decoded_chunk(None if broken else part)
    raw.close()
    feed.close()
