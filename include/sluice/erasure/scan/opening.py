"""A file, and what is in it: which decoder opens it, what that finds in turn, and what nothing opens."""

from __future__ import annotations

import codecs
import io
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from sluice.erasure.scan import kinds
from sluice.erasure.scan.decoders import columnar, compressed, rocksdb, sqlite
from sluice.erasure.scan.decoders.damage import LIMIT, Damaged
from sluice.erasure.scan.inspection import Inspection

DEPTH = 4
"""How deep things are opened within others: a log in a gzip in a zip in a tar. What lies deeper is not read, and said so."""
_CHUNK = 1 << 20
_STREAMS: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {
    "gzip": compressed.gzip,
    "bzip2": compressed.bzip2,
    "xz": compressed.xz,
    "zstd": compressed.zstd,
    "lz4": compressed.lz4_frame,
    "lz4-java": compressed.lz4_block,
    "xerial": compressed.xerial,
    "snappy framed": compressed.snappy_framed,
    "snappy": compressed.snappy,
    "hadoop lz4": compressed.hadoop_lz4,
    "deflate": compressed.deflate,
}
_COLUMNAR: dict[str, Callable[[IO[bytes], Inspection], None]] = {
    "parquet": columnar.parquet,
    "orc": columnar.orc,
    "arrow": columnar.arrow,
}


def open_path(path: Path, inspection: Inspection) -> int:
    """Search a file: its bytes as they are, and what its decoder makes of them. Returns its size in bytes."""
    with path.open("rb") as stream:
        head = stream.read(kinds.HEAD)
        stream.seek(0)
        _open(stream, head, inspection.path, inspection, 0, path)
        return os.fstat(stream.fileno()).st_size


def open_bytes(content: bytes, name: str, inspection: Inspection, depth: int) -> None:
    """Search what lies within something else."""
    _open(io.BytesIO(content), content[: kinds.HEAD], name, inspection, depth, None)


def looks_enclosed(head: bytes) -> bool:
    """Whether a cell is a file of its own rather than a value."""
    found = kinds.kind(head, "")
    return found in _STREAMS or found in _COLUMNAR or found in ("zip", "sqlite")


def _open(stream: IO[bytes], head: bytes, name: str, inspection: Inspection, depth: int, path: Path | None) -> None:
    if not head:
        inspection.read["empty"] += 0
        return
    kind = kinds.kind(head, name)
    if kind in (None, "delimited", "utf-16"):
        _text(stream, head, name, inspection, kind)
        return
    if depth > DEPTH:
        inspection.unread(f"deeper than {DEPTH} within other files")
    elif kind == "encrypted parquet":
        inspection.unread("an encrypted Parquet file")
    try:
        if kind in _STREAMS and depth <= DEPTH:
            _unpack(str(kind), stream, name, inspection, depth)
            return
        _raw(stream, inspection, "raw bytes")
        if depth <= DEPTH:
            _decode(str(kind), stream, name, inspection, depth, path)
    except Damaged as damage:
        inspection.unread(str(damage))


def _decode(kind: str, stream: IO[bytes], name: str, inspection: Inspection, depth: int, path: Path | None) -> None:
    """Have a decoder open what can be read at any place."""
    stream.seek(0)
    if kind in _COLUMNAR:
        _COLUMNAR[kind](stream, inspection)
    elif kind == "sqlite":
        sqlite.database(path, None if path else stream.read(), inspection)
    elif kind == "rocksdb table":
        # Keys and values, each put together from what the file keeps apart.
        inspection.several("rocksdb table", (part for entry in rocksdb.table(stream) for part in entry))
    elif kind == "rocksdb log":
        inspection.several("rocksdb log", rocksdb.records(stream))
    elif kind == "zip":
        _zip(stream, name, inspection, depth)
    elif kind == "tar":
        _tar(stream, name, inspection, depth)
    elif kind in kinds.PLAIN:
        inspection.read[kind] += 0


def _raw(stream: IO[bytes], inspection: Inspection, decoder: str) -> None:
    feed = inspection.stream(decoder, text=True)
    while chunk := stream.read(_CHUNK):
        feed.feed(chunk)
    feed.close()


def _unpack(kind: str, stream: IO[bytes], name: str, inspection: Inspection, depth: int) -> None:
    """A compressed stream: its own bytes are searched while they are read, and what comes out of it is opened in turn."""
    source = _Searched(stream, inspection)
    inner = _Parts(_STREAMS[kind](source), inspection, kind)  # type: ignore[arg-type]
    try:
        head = inner.peek(kinds.HEAD)
        if kind == "lz4-java" and kinds.kind(head, "") is None:
            # Rows and records of Spark, as they are in memory: state, shuffled and spilt blocks, event logs.
            _raw(inner, inspection, "spark blocks")  # type: ignore[arg-type]
        else:
            _open_within(inner, head, _without_suffix(name), inspection, depth + 1)
    finally:
        source.rest()


def _open_within(stream: _Parts, head: bytes, name: str, inspection: Inspection, depth: int) -> None:
    """What came out of something: in parts where these suffice, in memory where a decoder needs it whole."""
    kind = kinds.kind(head, name)
    if kind in _STREAMS or kind in (None, "delimited", "utf-16"):
        _open(stream, head, name, inspection, depth, None)  # type: ignore[arg-type]
        return
    content = stream.read(LIMIT + 1)
    if len(content) <= LIMIT:
        open_bytes(content, name, inspection, depth)
        return
    inspection.unread(f"a {kind} of more than {LIMIT >> 20} MiB within another file")
    feed = inspection.stream("raw bytes")
    feed.feed(content)
    while part := stream.read(_CHUNK):
        feed.feed(part)
    feed.close()


def _zip(stream: IO[bytes], name: str, inspection: Inspection, depth: int) -> None:
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            inspection.several("names", [archive.comment, *(one.filename.encode() + b"\n" + one.comment for one in members)])
            for member in members:
                inspection.read["zip"] += member.compress_size
                if not member.is_dir():
                    with archive.open(member) as opened:
                        _member(opened, f"{name}/{member.filename}", inspection, depth + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError):
        raise Damaged("the zip archive, or a part of it, cannot be read") from None


def _tar(stream: IO[bytes], name: str, inspection: Inspection, depth: int) -> None:
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                inspection.whole("names", f"{member.name}\n{member.linkname}\n{member.uname}\n{member.pax_headers}".encode())
                inspection.read["tar"] += member.size
                opened = archive.extractfile(member) if member.isreg() else None
                if opened is not None:
                    _member(opened, f"{name}/{member.name}", inspection, depth + 1)
    except tarfile.TarError:
        raise Damaged("the tar archive, or a part of it, cannot be read") from None


def _member(opened: IO[bytes], name: str, inspection: Inspection, depth: int) -> None:
    inner = _Parts(iter(lambda: opened.read(_CHUNK), b""), inspection, "")
    _open_within(inner, inner.peek(kinds.HEAD), name, inspection, depth)


def _text(stream: IO[bytes], head: bytes, name: str, inspection: Inspection, kind: str | None) -> None:
    """Text of any encoding; what is no text, nothing here can read."""
    decoder = {None: "json" if head.lstrip()[:1] in (b"{", b"[") else "text", "delimited": "csv"}.get(kind, str(kind))
    feed = inspection.stream(decoder, comma=kind == "delimited")
    reading = _Encoding(head)
    while chunk := stream.read(_CHUNK):
        feed.feed(chunk)
        reading.see(chunk)
    feed.close()
    if kinds.foreign(head) or not reading.is_text():
        inspection.unread("no decoder knows this kind of file")


class _Encoding:
    """Whether bytes are text: UTF-8, UTF-16 with its mark, or of eight bits with no control characters but those of text."""

    def __init__(self, head: bytes) -> None:
        self._utf_8: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()
        self._utf_16 = codecs.getincrementaldecoder("utf-16")() if head[:2] in (b"\xff\xfe", b"\xfe\xff") else None
        self._control = False

    def see(self, chunk: bytes) -> None:
        """The next bytes."""
        if self._utf_16:
            try:
                self._utf_16.decode(chunk)
            except UnicodeDecodeError:
                self._utf_16 = None
        if self._utf_8:
            try:
                self._utf_8.decode(chunk)
            except UnicodeDecodeError:
                self._utf_8 = None
        self._control = self._control or bool(_CONTROL[np.frombuffer(chunk, np.uint8)].any())

    def is_text(self) -> bool:
        """After all of it. A file may be cut within a character."""
        return self._utf_16 is not None or not self._control


_CONTROL = np.zeros(256, np.bool_)
_CONTROL[[code for code in range(32) if code not in b"\t\n\x0b\x0c\r\x1b\x08\x1a\x07"]] = True


class _Searched(io.RawIOBase):
    """A stream whose bytes are searched as they are read."""

    def __init__(self, stream: IO[bytes], inspection: Inspection) -> None:
        self._stream, self._feed = stream, inspection.stream("raw bytes")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._feed.feed(data)
        return data

    def rest(self) -> None:
        """Search what no decoder has read, too."""
        while self.read(_CHUNK):
            pass
        self._feed.close()


class _Parts(io.RawIOBase):
    """What comes in parts of any length, as a file that is read from its start to its end. An error of a decoder ends it, and is told."""

    def __init__(self, parts: Iterator[bytes], inspection: Inspection, kind: str) -> None:
        self._parts, self._inspection, self._kind = parts, inspection, kind
        self._there = bytearray()

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay."""
        self._more(size)
        return bytes(self._there[:size])

    def read(self, size: int = -1) -> bytes:
        self._more(size)
        data = bytes(self._there if size < 0 else self._there[:size])
        del self._there[: len(data)]
        return data

    def _more(self, size: int) -> None:
        while size < 0 or len(self._there) < size:
            try:
                part = next(self._parts, None)
            except Damaged as damage:
                self._inspection.unread(str(damage))
                part = None
            if part is None:
                return
            if self._kind:
                self._inspection.read[self._kind] += len(part)
            self._there += part


def _without_suffix(name: str) -> str:
    """What a compressed file is called when it is not."""
    return re.sub(r"\.(gz|bz2|xz|zst|lz4|snappy|sz|deflate)\Z", "", name)
