"""Which kind of file something is: by its first bytes, and by its name where these tell nothing."""

from __future__ import annotations

import re

from sluice.erasure.scan.decoders.compressed import LZ4_BLOCK, SNAPPY_FRAMED, XERIAL

HEAD = 512
"""Bytes from which a kind is told."""

_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (LZ4_BLOCK, "lz4-java"),
    (XERIAL, "xerial"),
    (SNAPPY_FRAMED, "snappy framed"),
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
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
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
    (re.compile(r"\.(csv|tsv)\Z"), "delimited"),
)
PLAIN = {
    "checksums", "state schema", "deletion vector", "shuffle index", "sqlite journal", "sqlite shared memory", "pickle", "sqlite wal",
}  # fmt: skip
"""Kinds that hold nothing but what the search over their raw bytes sees: numbers, positions, texts as they are."""
_NOT_OURS = re.compile(rb"\A(\x7fELF|%PDF|Rar!|7z\xbc\xaf|\x89PNG|\xff\xd8\xff|Obj\x01|\xca\xfe\xba\xbe|\xac\xed\x00\x05)")


def kind(head: bytes, name: str) -> str | None:
    """The kind, by the first 512 bytes and the path. None: none that is known by its signs; it may be text."""
    for sign, found in _SIGNS:
        if head.startswith(sign):
            return found
    if _ZSTD_SKIPPED.match(head):
        return "zstd"
    if head[257:262] == b"ustar":
        return "tar"
    by_name = next((found for pattern, found in _NAMES if pattern.search(name)), None)
    if by_name == "rocksdb log" and not _log(head):
        by_name = None
    if by_name == "deletion vector" and head[:1] != b"\x01":
        by_name = None
    if by_name is None and re.match(rb"\x80[\x02-\x05]", head) and b"\0" in head:
        return "pickle"
    return by_name


def foreign(head: bytes) -> bool:
    """Whether the signs are those of a kind that no decoder here opens."""
    return _NOT_OURS.match(head) is not None


def _log(head: bytes) -> bool:
    """Whether a file begins with a record of RocksDB's logs. Log files of other programs have such names, too."""
    return not head or (len(head) >= 7 and (head[6] in range(1, 11) or not any(head[:7])))
