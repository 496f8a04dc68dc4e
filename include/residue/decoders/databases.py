"""Database files, read without changing or locking them: SQLite's tables, and RocksDB's sorted tables (.sst) and logs.

RocksDB's write-ahead logs and MANIFEST are logs of records. Free pages of SQLite are covered by the search of raw bytes.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import numpy as np

from residue.cells import open_cells
from residue.damage import DamagedContent, read_exactly
from residue.decoders.compressed import decompress_rocksdb_block, read_varint
from residue.inspection import Inspection
from residue.stored_files import FilePath

_ROWS = 1000


def search_sqlite_database(path: FilePath | None, content: bytes | None, inspection: Inspection) -> None:
    """Searches all texts, blobs and whole numbers of a database. path: the file; content: its bytes, if it is inside another file."""
    try:
        if isinstance(path, Path):
            connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
        else:
            connection = sqlite3.connect(":memory:")
            connection.deserialize(content or b"")
    except sqlite3.Error:
        raise DamagedContent("the SQLite database cannot be opened") from None
    try:
        connection.text_factory = _SqliteText
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            _search_sqlite_table(connection, name.decode("utf-8", "replace"), inspection)
    except sqlite3.Error:
        raise DamagedContent("the SQLite database cannot be read") from None
    finally:
        connection.close()


class _SqliteText(bytes):
    """The bytes of a text, as distinct from those of a blob."""


def _search_sqlite_table(connection: sqlite3.Connection, name: str, inspection: Inspection) -> None:
    quoted = name.replace('"', '""')
    try:
        found = connection.execute(f'SELECT * FROM "{quoted}"')
    except sqlite3.OperationalError as error:
        if "no such module" in str(error):  # a virtual table: its content is in tables of its own
            return
        raise
    columns = [column[0] for column in found.description]
    while rows := found.fetchmany(_ROWS):
        for number, column in enumerate(columns):
            _search_sqlite_column([row[number] for row in rows], column, inspection)


def _search_sqlite_column(values: list[Any], column: str, inspection: Inspection) -> None:
    inspection.several("sqlite", (value for value in values if isinstance(value, bytes)), column)
    open_cells((value for value in values if type(value) is bytes), inspection)
    numbers = [value for value in values if isinstance(value, int)]
    if numbers:
        inspection.numbers("sqlite", column, np.array(numbers, np.int64))
    floats = [value for value in values if isinstance(value, float)]
    if floats:
        inspection.numbers("sqlite", column, np.array(floats, np.float64))


MAGIC = (0x88E241B785F4CFF7).to_bytes(8, "little")
_FOOTER = 53
_TRAILER = 5
_BLOCK = 32768
_MOST_VERSION = 5
"""The latest version of the format whose footer and index can be read here."""
_HASHED = 1 << 31
_COMPRESSION = 9
"""A log record that gives the compression of those after it."""


def read_rocksdb_table(stream: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block-based table, and its properties. Raises DamagedContent for an unknown kind."""
    stream.seek(0, 2)
    size = stream.tell()
    stream.seek(max(0, size - _FOOTER))
    footer = stream.read()
    if size < _FOOTER or not footer.endswith(MAGIC):
        raise DamagedContent("no footer of a RocksDB table")
    version = struct.unpack_from("<I", footer, 41)[0]
    if version > _MOST_VERSION:
        raise DamagedContent(f"a RocksDB table of format {version}")
    (meta_at, meta_size), at = _read_block_handle(footer, 1)
    (index_at, index_size), _ = _read_block_handle(footer, at)
    properties: dict[bytes, bytes] = {}
    for key, value in _read_block_entries(_read_rocksdb_block(stream, meta_at, meta_size)):
        where, _ = _read_block_handle(value, 0)
        if key == b"rocksdb.properties":
            properties = dict(_read_block_entries(_read_rocksdb_block(stream, *where)))
            yield from properties.items()
        elif key == b"rocksdb.range_del":
            yield from _read_block_entries(_read_rocksdb_block(stream, *where))
    kind = properties.get(b"rocksdb.block.based.table.index.type", bytes(4))
    if kind not in (bytes(4), struct.pack("<I", 1)):
        raise DamagedContent("a RocksDB table with an index of another kind")
    delta = read_varint(properties.get(b"rocksdb.index.value.is.delta.encoded", b"\0"), 0)[0] == 1
    for where in _list_data_blocks(_read_rocksdb_block(stream, index_at, index_size), delta):
        yield from _read_block_entries(_read_rocksdb_block(stream, *where))


def read_rocksdb_log(stream: IO[bytes]) -> Iterator[bytes]:
    """Yields the records of a log, joined from the blocks they lie in. Raises DamagedContent if it is no such log."""
    record = b""
    while block := stream.read(_BLOCK):
        at = 0
        while at + 7 <= len(block):
            size, kind = struct.unpack_from("<HB", block, at + 4)
            header = 11 if 5 <= kind <= 8 else 7
            if kind == 0 and not any(block[at : at + 7]):
                break  # the rest of the block was never written
            if kind == _COMPRESSION:
                raise DamagedContent("a RocksDB log whose records are compressed")
            if kind > 10 or at + header + size > len(block):
                raise DamagedContent("no record of a RocksDB log")
            record += block[at + header : at + header + size]
            at += header + size
            if kind not in (2, 3, 6, 7):  # the first and the middle parts of a record
                yield record
                record = b""
    if record:
        yield record


def _read_block_handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def _read_rocksdb_block(stream: IO[bytes], offset: int, size: int) -> bytes:
    stream.seek(offset)
    block = read_exactly(stream, size + _TRAILER)
    return decompress_rocksdb_block(block[size], block[:size])


def _find_block_restarts(block: bytes) -> tuple[int, list[int]]:
    """Where the entries of a block end, and the offsets of those that share nothing with the previous key."""
    if len(block) < 4:
        raise DamagedContent("a block of a RocksDB table is cut off")
    packed = struct.unpack_from("<I", block, len(block) - 4)[0]
    end = len(block) - 4
    if packed & _HASHED:  # a hash index: its buckets, then their number
        end -= 2 + struct.unpack_from("<H", block, end - 2)[0]
        packed ^= _HASHED
    start = end - 4 * packed
    if start < 0:
        raise DamagedContent("a block of a RocksDB table is damaged")
    return start, list(struct.unpack_from(f"<{packed}I", block, start))


def _read_block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    end, _ = _find_block_restarts(block)
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        own, at = read_varint(block, at)
        size, at = read_varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + size]
        at += size


def _list_data_blocks(block: bytes, delta: bool) -> Iterator[tuple[int, int]]:
    """Offset and size of each data block. delta: the index has only the difference from the previous block."""
    end, restarts = _find_block_restarts(block)
    at = offset = size = 0
    while at < end:
        begins = at in restarts
        if not delta:
            _, at = read_varint(block, at)
        shared = 0
        if delta:
            shared, at = read_varint(block, at)
        own, at = read_varint(block, at)
        if not delta:
            _, at = read_varint(block, at)
        at += own
        if not delta or begins or not shared:
            (offset, size), at = _read_block_handle(block, at)
        else:
            offset += size + _TRAILER
            change, at = read_varint(block, at)
            size += (change >> 1) ^ -(change & 1)
        yield offset, size
