"""Which kind of file something may be: by its first bytes, and by its name where these tell nothing. A decoder, or its structure, proves it."""

from __future__ import annotations

import re
import zlib

import numpy as np

HEAD = 512
"""Bytes from which a kind is told."""
LZ4_BLOCK = b"LZ4Block"
"""What a block of lz4-java begins with."""
XERIAL = b"\x82SNAPPY\0"
"""What snappy begins with as snappy-java writes it."""

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
"""What something begins with that is known by its first bytes, or known to be foreign; other things may begin so, too."""
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
    """The kind, by the first 512 bytes and the path. None: none that is known by its signs; it may be text."""
    for sign, found in _SIGNS:
        # A text, too, may begin with these three letters.
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
    """Whether a file is called as rows of delimited text are."""
    return _DELIMITED.search(name) is not None


def has_control_characters(data: bytes) -> bool:
    """Whether there are control characters in it that no text has."""
    return bool(CONTROL[np.frombuffer(data, np.uint8)].any())


def has_foreign_signature(head: bytes) -> bool:
    """Whether the signs are those of a kind that no decoder here opens."""
    return _NOT_OURS.match(head) is not None


def _is_zlib_stream(head: bytes) -> bool:
    """Whether these are the first bytes of a zlib stream. Texts may begin with the same two: so it is tried."""
    if head[:1] != b"x" or int.from_bytes(head[:2], "big") % 31:
        return False
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(head)
    except zlib.error:
        return False
    return stream.eof or (bool(found) and has_control_characters(head))


def _is_rocksdb_log(head: bytes) -> bool:
    """Whether a file begins with a record of RocksDB's logs. Log files of other programs have such names, too."""
    return not head or (len(head) >= 7 and (head[6] in range(1, 11) or not any(head[:7])))
