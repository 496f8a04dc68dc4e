"""Decompresses a stream part by part, in bounded memory, so that nothing missing or damaged goes unnoticed."""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

Read = Callable[[int], bytes]
_FEED = 1 << 16
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + number]) + b"\x2a\x4d\x18" for number in range(16)))


class DamagedStream(Exception):
    """A stream that is not what its name says, or that is cut off. str(error): the reason."""


class _Member(Protocol):
    """One of the compressed streams that a file consists of. parts: what a piece of it decompresses to. Raises DamagedStream."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def parts(self, data: bytes, most: int) -> Iterator[bytes]: ...


class _Gzip:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)  # checks gzip's header, checksum and length

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def parts(self, data: bytes, most: int) -> Iterator[bytes]:
        while True:
            try:
                part = self._inflate.decompress(data, most)
            except zlib.error:
                raise DamagedStream("the gzip stream is damaged") from None
            yield part
            data = self._inflate.unconsumed_tail
            if self.eof or (not data and len(part) < most):
                return


class _Bzip2:
    def __init__(self) -> None:
        self._unpack = bz2.BZ2Decompressor()

    @property
    def eof(self) -> bool:
        return self._unpack.eof

    @property
    def unused_data(self) -> bytes:
        return self._unpack.unused_data

    def parts(self, data: bytes, most: int) -> Iterator[bytes]:
        while True:
            try:
                part = self._unpack.decompress(data, most)
            except (OSError, ValueError):
                raise DamagedStream("the bzip2 stream is damaged") from None
            yield part
            data = b""
            if self.eof or self._unpack.needs_input:
                return


SUFFIXES = (".gz", ".bz2", ".zst")
"""The suffixes of files that are decompressed."""


def decompress_parts(suffix: str, read: Read, most: int) -> Iterator[bytes]:
    """Yields what `read` returns, decompressed by the suffix, in parts of limited size. Reads to the end.

    A file without any bytes has no content, compressed or not. Raises DamagedStream, and what `read` raises.
    """
    if suffix == ".gz":
        return _decompress_members("gzip", b"\x1f\x8b", _Gzip, read, most)
    if suffix == ".bz2":
        return _decompress_members("bzip2", b"BZh", _Bzip2, read, most)
    if suffix == ".zst":
        return _decompress_zstd(read, most)
    return iter(lambda: read(most), b"")


def _decompress_members(name: str, sign: bytes, member: Callable[[], _Member], read: Read, most: int) -> Iterator[bytes]:
    """Decompresses streams of one kind, one after the other. Zeros after the last are padding, as on tapes and in gzip itself."""
    data, first = read(_FEED), True
    while data:
        if len(data) < len(sign):
            data += read(_FEED)
        if not data.startswith(sign[: len(data)]):
            raise DamagedStream(f"the file is no {name} stream" if first else f"what follows in the file is no {name} stream")
        current = member()
        while not current.eof:
            if not data:
                raise DamagedStream(f"the {name} stream is cut off")
            yield from filter(None, current.parts(data, most))
            data = b"" if current.eof else read(_FEED)
        data, first = current.unused_data.lstrip(b"\0"), False
        while not data and (more := read(_FEED)):
            data = more.lstrip(b"\0")


def _decompress_zstd(read: Read, most: int) -> Iterator[bytes]:
    start = read(4)
    if start and not any(sign.startswith(start) for sign in _ZSTD):
        raise DamagedStream("the file is no zstd stream")
    source = _PrefixedStream(start, read)
    stream = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd")
    while True:
        try:
            part = stream.read(most)
        except OSError as error:
            if source.failure:
                raise source.failure from None
            cut = "truncated" in str(error).lower()
            raise DamagedStream("the zstd stream is cut off" if cut else "the zstd stream is damaged") from None
        if not part:
            return
        yield part


class _PrefixedStream(io.RawIOBase):
    """A start and what is read after it, as a file for Arrow. failure: an error of reading, not of decompressing."""

    def __init__(self, start: bytes, read: Read) -> None:
        self._start = start
        self._read = read
        self.failure: OSError | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._start:
            start, self._start = self._start, b""
            return start
        try:
            return self._read(size if size > 0 else _FEED)
        except OSError as error:
            self.failure = error
            raise
