"""Detects the kind of a file by its first bytes, by its name where these say nothing, and for some kinds by its whole content.

A decoder proves its kind by opening it. Other kinds hold numbers, offsets and plain texts, and only their raw bytes are searched; for
these, the structure proves the kind. Compressed or encrypted content that merely has such a name lacks the structure, and counts as
something that nothing here opens.
"""

from __future__ import annotations

import pickletools
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import numpy as np

from residue.damage import LIMIT
from residue.stored_files import FilePath

HEAD = 512
"""How many bytes are used to detect a kind."""
LZ4_BLOCK = b"LZ4Block"
"""The first bytes of a block of lz4-java."""
XERIAL = b"\x82SNAPPY\0"
"""The first bytes of snappy as snappy-java writes it."""

_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (LZ4_BLOCK, "lz4-java"),
    (XERIAL, "xerial"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy framed"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"PAR1", "parquet"),
    (b"PARE", "encrypted parquet"),
    (b"ORC", "orc"),
    (b"ARROW1", "arrow"),
    (b"SQLite format 3\0", "sqlite"),
    (b"\x37\x7f\x06\x82", "sqlite wal"),
    (b"\x37\x7f\x06\x83", "sqlite wal"),
    (b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", "sqlite journal"),
    (b"crc\0", "checksums"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
FIRST_BYTES = frozenset(
    {sign[0] for sign, _ in _SIGNS} | {*range(0x50, 0x60), ord("x"), 0x80, 0x7F, 0x25, 0x37, 0x89, 0xFF, 0xCA, 0xAC}
)
"""First bytes that identify a kind, known or foreign; content of other kinds may begin with them too."""
_ZSTD_SKIPPED = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\.sst\Z"), "rocksdb table"),
    (re.compile(r"(\A|/)(MANIFEST-\d+|\d{6,}\.log)\Z"), "rocksdb log"),
    (re.compile(r"\.(snappy|sz)\Z"), "snappy"),
    (re.compile(r"\.lz4\Z"), "hadoop lz4"),
    (re.compile(r"\.(deflate|zlib)\Z"), "deflate"),
    (re.compile(r"/state/\d+/.*_metadata/[^/]*\Z"), "state schema"),
    (re.compile(r"(\A|/)deletion_vector_[^/]*\.bin\Z"), "deletion vector"),
    (re.compile(r"(\A|/)shuffle_[\d_]+\.(index|checksum\.\w+)\Z"), "shuffle index"),
    (re.compile(r"(\A|/)[^/]*-shm\Z"), "sqlite shared memory"),
)
_DELIMITED = re.compile(r"\.(csv|tsv)\Z")
CONTROL = np.zeros(256, np.bool_)
"""By byte, whether it is a control character that texts do not have."""
CONTROL[[code for code in range(32) if code not in b"\t\n\x0b\x0c\r\x1b\x08\x1a\x07"]] = True
_NOT_OURS = re.compile(rb"\A(\x7fELF|%PDF|Rar!|7z\xbc\xaf|\x89PNG|\xff\xd8\xff|Obj\x01|\xca\xfe\xba\xbe|\xac\xed\x00\x05)")


def detect_file_kind(head: bytes, name: str) -> str | None:
    """The kind by the first 512 bytes and the path. None: no known signature; it may be text."""
    for sign, found in _SIGNS:
        # A text may begin with these three letters too.
        if head.startswith(sign) and (found != "orc" or has_control_characters(head)):
            return found
    if _ZSTD_SKIPPED.match(head):
        return "zstd"
    if head[257:262] == b"ustar":
        return "tar"
    by_name = next((found for pattern, found in _NAMES if pattern.search(name)), None)
    if by_name == "rocksdb log" and not _is_rocksdb_log(head):
        by_name = None
    if by_name == "state schema" and not has_control_characters(head):
        by_name = None
    if by_name is None and re.match(rb"\x80[\x02-\x05]", head) and (b"\0" in head or head.endswith(b".")):
        return "pickle"
    return "deflate" if by_name is None and _is_zlib_stream(head) else by_name


def has_delimited_suffix(name: str) -> bool:
    """Whether a file's name is that of delimited text."""
    return _DELIMITED.search(name) is not None


def has_control_characters(data: bytes) -> bool:
    """Whether the data have control characters that no text has."""
    return bool(CONTROL[np.frombuffer(data, np.uint8)].any())


def count_control_characters(data: bytes, expected: bytes = b"") -> int:
    """How many control characters the data have that no text has, apart from those expected."""
    found = int(np.count_nonzero(CONTROL[np.frombuffer(data, np.uint8)]))
    return found - sum(data.count(code) for code in set(expected) if CONTROL[code]) if found else 0


def has_foreign_signature(head: bytes) -> bool:
    """Whether the signature is that of a kind that no decoder here opens."""
    return _NOT_OURS.match(head) is not None


def _is_zlib_stream(head: bytes) -> bool:
    """Whether a zlib stream begins here. Texts may begin with the same two bytes, so it tries to decompress."""
    if head[:1] != b"x" or int.from_bytes(head[:2], "big") % 31:
        return False
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(head)
    except zlib.error:
        return False
    return stream.eof or (bool(found) and has_control_characters(head))


def _is_rocksdb_log(head: bytes) -> bool:
    """Whether a file begins with a record of a RocksDB log. Log files of other programs may have the same names."""
    return not head or (len(head) >= 7 and (head[6] in range(1, 11) or not any(head[:7])))


_BITMAP = struct.pack("<I", 1681511377)
"""The first bytes of a bitmap of deleted rows."""
_WAL_INDEX = 3007000
_INDEX_BLOCK = 32768
_SLOTS, _FRAMES_IN_BLOCK = 8192, 4096
_UNPROVEN = 64
"""The most bytes that are accepted as checksums although their file is gone: so few cannot hold anything packed."""
_CHUNK = 1 << 20


def has_confirmed_structure(kind: str, stream: IO[bytes], path: FilePath | None) -> bool:
    """Whether a whole stream has the structure of its kind. Leaves the stream at its start. path: that of the file, if it is one."""
    stream.seek(0, 2)
    size = stream.tell()
    stream.seek(0)
    if size > LIMIT and kind not in _IN_PARTS:
        return False
    try:
        return _STRUCTURES[kind](stream, size, path)
    except (struct.error, ValueError, IndexError, OverflowError, OSError):
        return False
    finally:
        stream.seek(0)


def read_pickle_arguments(stream: IO[bytes]) -> Iterator[Any]:
    """Yields the arguments of the operations of consecutive pickles, without running any. Raises ValueError if it is no pickle."""
    size = stream.seek(0, 2)
    stream.seek(0)
    while stream.tell() < size:
        for _, argument, _ in pickletools.genops(stream):
            yield argument


def _is_pickle(stream: IO[bytes], size: int, path: FilePath | None) -> bool:
    return sum(1 for _ in read_pickle_arguments(stream)) > 1


def _is_checksum_file(stream: IO[bytes], size: int, path: FilePath | None) -> bool:
    """Hadoop's checksums: how many bytes each covers, and one for each part of the file beside it."""
    (part,) = struct.unpack(">4xI", stream.read(8))
    known = np.frombuffer(stream.read(), ">u4")
    of = path.with_name(path.name.removeprefix(".").removesuffix(".crc")) if path else None
    if of is None or of == path or not of.is_file():
        return size <= 8 + _UNPROVEN
    if not 1 <= part <= _CHUNK or len(known) != -(-of.stat().st_size // part):
        return False
    with of.open("rb") as content:
        sums = [zlib.crc32(content.read(part)) for _ in known]
    return bool(sums == known.tolist())


def _is_deletion_vector_file(stream: IO[bytes], size: int, path: FilePath | None) -> bool:
    """Deletion vectors: a version, then bitmaps, each with its size before it and its checksum behind it."""
    if stream.read(1) != b"\x01":
        return False
    while stream.tell() < size:
        (length,) = struct.unpack(">I", stream.read(4))
        bitmap = stream.read(length)
        if not bitmap.startswith(_BITMAP) or struct.unpack(">I", stream.read(4)) != (zlib.crc32(bitmap),):
            return False
    return True


def _is_shuffle_index(stream: IO[bytes], size: int, path: FilePath | None) -> bool:
    """The offset of each part of shuffled data, in eight bytes, or a checksum of each part."""
    numbers = np.frombuffer(stream.read(), ">u8")
    increases = bool((numbers[:-1] <= numbers[1:]).all()) and int(numbers[0]) == 0
    return bool(numbers.max() < 1 << (44 if increases else 32))


def _is_wal_index_file(stream: IO[bytes], size: int, path: FilePath | None) -> bool:
    """SQLite's index of a write-ahead log: blocks of page numbers, and of positions in a hash table."""
    content = stream.read()
    if size % _INDEX_BLOCK or not (_has_wal_index_header(content) or not any(content)):
        return False
    blocks = np.frombuffer(content, "<u2" if content[:4] == struct.pack("<I", _WAL_INDEX) else ">u2")
    hashes = blocks.reshape(-1, _INDEX_BLOCK // 2)[:, -_SLOTS:]
    return bool((hashes <= _FRAMES_IN_BLOCK).all())


def _has_wal_index_header(content: bytes) -> bool:
    version = {struct.pack(f"{order}I", _WAL_INDEX) for order in "<>"}
    return content[:4] in version and content[48:52] in version


def _is_write_ahead_log(stream: IO[bytes], size: int, path: FilePath | None) -> bool:
    """SQLite's write-ahead log: a header with its checksum, and pages, each with its number and the marks of its transaction."""
    header = stream.read(32)
    _, version, page = struct.unpack(">III", header[:12])
    order = ">" if header[3] & 1 else "<"
    if (
        version != _WAL_INDEX
        or not _is_page_size(page)
        or _compute_wal_checksum(header[:24], order) != struct.unpack(">II", header[24:])
    ):
        return False
    while len(head := stream.read(24)) == 24:
        if not int.from_bytes(head[:4], "big"):
            return False
        stream.seek(page, 1)
    return True


def _compute_wal_checksum(data: bytes, order: str) -> tuple[int, int]:
    first = second = 0
    for one, other in struct.iter_unpack(f"{order}II", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def _is_rollback_journal(stream: IO[bytes], size: int, path: FilePath | None) -> bool:
    """SQLite's journal: parts with a header that begin at a sector, and former pages, each with its number and a checksum."""
    at, sign = 0, stream.read(8)
    while at < size:
        stream.seek(at)
        header = stream.read(28)
        count, nonce, _, sector, page = struct.unpack(">8xIIIII", header)
        if header[:8] not in (sign, bytes(8)) or not (_is_page_size(sector) and _is_page_size(page)):
            return False
        fitting = max(size - at - sector, 0) // (page + 8)
        known = count if 0 < count <= fitting else fitting  # a part still being written lacks its count
        at += sector
        for _ in range(known):
            stream.seek(at + 4)
            content, told = stream.read(page), int.from_bytes(stream.read(4), "big")
            if told != (nonce + sum(content[position] for position in range(page - 200, 0, -200))) & 0xFFFFFFFF:
                return False
            at += page + 8
        at = -(-at // sector) * sector
        if known == fitting and size - at < sector:
            return True
    return True


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65536 and not size & (size - 1)


_STRUCTURES: Mapping[str, Callable[[IO[bytes], int, FilePath | None], bool]] = {
    "checksums": _is_checksum_file,
    "deletion vector": _is_deletion_vector_file,
    "pickle": _is_pickle,
    "shuffle index": _is_shuffle_index,
    "sqlite journal": _is_rollback_journal,
    "sqlite shared memory": _is_wal_index_file,
    "sqlite wal": _is_write_ahead_log,
}
_IN_PARTS = ("checksums", "deletion vector", "sqlite journal", "sqlite wal")
PLAIN = frozenset(_STRUCTURES)
"""Kinds that hold nothing but what a search of their raw bytes sees."""
