"""Text of any encoding. What has a wide one, or one that its source declares, is searched a second time as UTF-8, since needles are."""

from __future__ import annotations

import codecs
from typing import IO

from residue import kinds
from residue.delimited_rows import TextDialect
from residue.inspection import Inspection, SearchFeed
from residue.parts import CHUNK

WIDE = ("utf-16", "utf-32")
"""Kinds of text that is told by its byte order mark."""


def search_text_stream(stream: IO[bytes], head: bytes, name: str, inspection: Inspection, kind: str | None) -> None:
    """Search text; say so where it is none, since nothing here can read that."""
    dialect = inspection.root.dialect_at(inspection.path)
    comma = kinds.has_delimited_suffix(name) or (dialect is not None and dialect.in_rows)
    decoder = "csv" if comma else "json" if head.lstrip()[:1] in (b"{", b"[") else "text"
    encoding = kind if kind in WIDE else _find_declared_encoding(dialect)
    if encoding is None:
        feed, bare = inspection.stream(decoder, comma=comma, dialect=dialect), True
        while chunk := stream.read(CHUNK):
            feed.feed(chunk)
            bare = bare and not kinds.has_control_characters(chunk)
        feed.close()
    else:
        feed = inspection.stream(kind or decoder, comma=comma, dialect=dialect)
        bare = _search_transcoded_text(stream, encoding, inspection, feed)
    if kinds.has_foreign_signature(head) or not bare:
        inspection.unread("no decoder knows this kind of file")


def _find_declared_encoding(dialect: TextDialect | None) -> str | None:
    """The encoding that a source declares, where it is another than UTF-8 or a part of it."""
    name = codecs.lookup(dialect.encoding).name if dialect else "utf-8"
    return None if name in ("utf-8", "ascii", "utf-8-sig") else name


def _search_transcoded_text(stream: IO[bytes], encoding: str, inspection: Inspection, feed: SearchFeed) -> bool:
    """Search the bytes as they are, and as UTF-8. Returns whether it is text as far as it could be read."""
    raw, decoder, bare = inspection.stream("raw bytes", text=False), codecs.getincrementaldecoder(encoding)(), True
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
        bare = bare and not kinds.has_control_characters(part)
    raw.close()
    feed.close()
    return bare
