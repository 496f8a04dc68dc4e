"""Decompresses streams, member by member: gzip, bzip2, xz, zstd, lz4 in three framings, snappy in four."""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa

from residue.damage import LIMIT, DamagedContent, read_exactly
from residue.kinds import LZ4_BLOCK, XERIAL

CHUNK = 1 << 20


def decompress_gzip(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses the members of a gzip stream; zeros after the last are padding."""
    return _decompress_stream_members(stream, lambda: zlib.decompressobj(wbits=31), b"\x1f\x8b")


def decompress_deflate(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses a zlib stream, as in Hadoop's .deflate."""
    return _decompress_stream_members(stream, zlib.decompressobj, b"")


def decompress_bzip2(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses the members of a bzip2 stream."""
    return _decompress_stream_members(stream, bz2.BZ2Decompressor, b"BZh")


def decompress_xz(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses the streams of xz."""
    return _decompress_stream_members(stream, lzma.LZMADecompressor, b"\xfd7zXZ\0")


def decompress_zstd(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses the frames of zstd."""
    return _decompress_arrow_stream(stream, "zstd")


def decompress_lz4_frames(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses the frames of lz4."""
    return _decompress_arrow_stream(stream, "lz4")


def decompress_lz4_java_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses lz4-java blocks, as in Spark's state, shuffle and event log files. An empty block ends a stream; another may follow."""
    while header := stream.read(21):
        if len(header) < 21 or not header.startswith(LZ4_BLOCK):
            raise DamagedContent("a block of lz4-java has no header")
        packed, size = struct.unpack_from("<II", header, 9)
        if size > LIMIT or packed > LIMIT:
            raise DamagedContent("a block of lz4-java is too large")
        data = read_exactly(stream, packed)
        if size:
            yield data if header[8] & 0xF0 == 0x10 else _decompress_arrow_block("lz4_raw", data, size)


def decompress_unframed_snappy(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses bare snappy, or snappy in Hadoop's framing; the first bytes show which."""
    data = stream.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise DamagedContent("raw snappy data are too large")
    try:
        yield _decompress_snappy_block(data)
    except DamagedContent:
        yield from _decompress_hadoop_blocks(io.BytesIO(data), "snappy")


def decompress_hadoop_lz4(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses lz4 in Hadoop's framing."""
    return _decompress_hadoop_blocks(stream, "lz4_raw")


def decompress_xerial_snappy(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses snappy as snappy-java writes it."""
    read_exactly(stream, 16)
    while length := stream.read(4):
        if length == XERIAL[:4]:  # another stream begins
            read_exactly(stream, 12)
            continue
        yield _decompress_snappy_block(read_exactly(stream, int.from_bytes(length, "big")))


def decompress_framed_snappy(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompresses snappy's own frames."""
    while header := stream.read(4):
        kind, size = header[0], int.from_bytes(header[1:], "little")
        data = read_exactly(stream, size)
        if kind == 0:
            yield _decompress_snappy_block(data[4:])
        elif kind == 1:
            yield data[4:]
        elif kind < 0x80:
            raise DamagedContent("an unknown kind of chunk of snappy")


def _decompress_snappy_block(data: bytes) -> bytes:
    """Decompresses a snappy block, which begins with its size."""
    size, at = 0, 0
    for at in range(min(5, len(data))):
        size |= (data[at] & 0x7F) << 7 * at
        if data[at] < 0x80:
            break
    if not data or size > LIMIT or (not size and len(data) > 1):
        raise DamagedContent("not snappy")
    return _decompress_arrow_block("snappy", data, size)


def decompress_rocksdb_block(kind: int, data: bytes) -> bytes:
    """Decompresses a block of a RocksDB file, by the number of its compression. Raises DamagedContent."""
    if kind == 0:
        return data
    if kind == 1:
        return _decompress_snappy_block(data)
    codec = {4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}.get(kind)
    size, at = read_varint(data, 0)
    if kind == 2:
        return zlib.decompress(data[at:], wbits=-15)
    if kind == 3:
        return bz2.decompress(data[at:])
    if codec is None or size > LIMIT:
        raise DamagedContent(f"a block of compression {kind}")
    return _decompress_arrow_block(codec, data[at:], size)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a number of variable length. Returns it and its end. Raises DamagedContent if the data end first."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DamagedContent("a number is cut off")


def _decompress_arrow_block(codec: str, data: bytes, size: int) -> bytes:
    if not size:
        return b""
    try:
        return bytes(pa.Codec(codec).decompress(data, decompressed_size=size, asbytes=True))
    except (OSError, pa.ArrowException):
        raise DamagedContent(f"a block of {codec} is damaged") from None


def _decompress_hadoop_blocks(stream: IO[bytes], codec: str) -> Iterator[bytes]:
    """Yields blocks that begin with their size, decompressed from parts that begin with theirs."""
    while length := stream.read(4):
        left = int.from_bytes(length, "big")
        if len(length) < 4 or left > LIMIT:
            raise DamagedContent(f"not {codec}")
        while left > 0:
            packed = read_exactly(stream, int.from_bytes(read_exactly(stream, 4), "big"))
            # The decompressed size of a part is not stored: snappy includes it, and lz4 has one part per block.
            part = _decompress_snappy_block(packed) if codec == "snappy" else _decompress_arrow_block(codec, packed, left)
            left -= len(part) or left
            yield part


def _decompress_stream_members(stream: IO[bytes], member: Callable[[], Any], sign: bytes) -> Iterator[bytes]:
    data = stream.read(CHUNK)
    while data:
        if len(data) < len(sign):
            data += stream.read(CHUNK)
        if not data.startswith(sign):
            raise DamagedContent("what follows in the file is no such stream")
        current = member()
        while not current.eof:
            try:
                part = current.decompress(data, CHUNK)
            except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError):
                raise DamagedContent("the stream is damaged") from None
            if part:
                yield part
            data = getattr(current, "unconsumed_tail", b"")
            hungry = not data if hasattr(current, "unconsumed_tail") else current.needs_input
            if not current.eof and hungry and len(part) < CHUNK:
                data = stream.read(CHUNK)
                if not data:
                    raise DamagedContent("the stream is cut off")
        data = current.unused_data.lstrip(b"\0")
        while not data and (more := stream.read(CHUNK)):
            data = more.lstrip(b"\0")


def _decompress_arrow_stream(stream: IO[bytes], codec: str) -> Iterator[bytes]:
    opened = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), codec)
    while True:
        try:
            part = opened.read(CHUNK)
        except (OSError, pa.ArrowException):
            raise DamagedContent("the stream is damaged or cut off") from None
        if not part:
            return
        yield part
