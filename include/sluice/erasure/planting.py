"""What stands for the canary: a store of every kind that Sluice, Spark or Airflow leave, each with an identifier in it."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import sqlite3
import struct
import time
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from sluice.lake.workspace import Workspace

_OTHER = "somebody-else-altogether-0000000000"
_LONG_AGO = 86_400
"""Left-over files are a day old, so that a sweep takes them for what they are."""

_STORES: tuple[tuple[str, str, str], ...] = (
    ("change feed", r"table/_change_data/", "parquet"),
    ("table", r"table/[^/]*\.parquet\Z", "parquet"),
    ("deletion vectors", r"vectors/[^/]*\.parquet\Z", "parquet"),
    ("quarantine", r"quarantine/[^/]*\.parquet\Z", "parquet"),
    ("landing file, JSON", r"landing/.*\.jsonl\Z", ""),
    ("landing file, CSV", r"landing/.*\.csv\Z", ""),
    ("archive, gzip", r"archive/.*\.gz\Z", ""),
    ("archive, bzip2", r"archive/.*\.bz2\Z", ""),
    ("archive, zstd", r"archive/.*\.zst\Z", ""),
    ("state, lz4-java", r"state/.*\.delta\Z", ""),
    ("state, RocksDB table", r"state/.*\.sst\Z", "rocksdb table"),
    ("state, RocksDB log", r"state/.*/\d+\.log\Z", "rocksdb log"),
    ("state, zip", r"state/.*\.zip\Z", ""),
    ("Delta checkpoint's statistics", r"temporary/checkpoint", "parquet"),
    ("log of a commit", r"temporary/\.0+1\.json", ""),
    ("Parquet metadata", r"temporary/checkpoint", "parquet metadata"),
    ("SQLite", r"temporary/sqlite", "sqlite"),
    ("SQLite, free pages", r"temporary/free", "raw bytes"),
    ("pickle", r"temporary/pickle", ""),
    ("event log, zstd", r"temporary/events", ""),
    ("text log", r"temporary/text", ""),
    ("lz4 frame", r"temporary/lz4", ""),
    ("snappy", r"temporary/snappy", ""),
    ("UTF-16 text", r"temporary/utf-16", ""),
    ("base64 text", r"temporary/base64", ""),
    ("hash without a key", r"temporary/hash", ""),
    ("gzip within zip", r"temporary/nested", ""),
    ("name of a file", r"temporary/", "names"),
)
"""Kinds of stores: what they are called, which files they are, and which decoder must find something; "" for any."""

STORES = tuple(name for name, _, _ in _STORES)


def store_of(path: str, decoder: str) -> str | None:
    """Which kind of store something was found in."""
    return next((name for name, files, by in _STORES if re.match(files, path) and by in ("", decoder)), None)


def everything(folder: Path, column: str, value: str, retain: str) -> None:
    """A store of every kind, below a folder."""
    table(folder / "table", column, value, retain)
    table(folder / "vectors", column, value, retain)
    quarantine(folder / "quarantine", value, retain)
    landed(folder / "landing", folder / "archive", column, value)
    state(folder / "state", value)
    temporary(folder / "temporary", value)


def table(path: Path, column: str, value: str, retain: str) -> None:
    """A Delta table as Sluice makes them, with rows of two people, one of which is in its change feed as well."""
    _write(path, pa.table({column: [value, _OTHER], "number": [1, 2]}), "number", retain, feed=path.name == "table")
    if path.name == "table":
        # A change of the row itself, so that it is in the change feed before it is deleted.
        DeltaTable(path).update(updates={"number": "number + 10"})


def quarantine(path: Path, value: str, retain: str) -> None:
    """Rows that a flow set aside: whose they are, and the record as it came."""
    records = [json.dumps({"canary_id": one, "number": 1}) for one in (value, _OTHER)]
    rows = {"_delivery": [1, 2], "_row": [0, 0], "_subject": [value, _OTHER], "record": records}
    _write(path, pa.table(rows), "_delivery", retain, feed=True)


def with_vectors(workspace: Workspace, path: Path) -> None:
    """Let the table mark its rows as deleted from now on, rather than leave them out of its files."""
    workspace.session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")


def landed(landing: Path, archive: Path, column: str, value: str) -> None:
    """Files as they are delivered, and as they are archived."""
    lines = "".join(json.dumps({column: one, "number": number}) + "\n" for number, one in enumerate((_OTHER, value, _OTHER)))
    _file(landing / "rows.jsonl", lines.encode())
    _file(landing / "rows.csv", f"{column},number\n{_OTHER},1\n{value},2\n".encode())
    _file(archive / "rows.jsonl.gz", gzip.compress(lines.encode()))
    _file(archive / "rows.jsonl.bz2", bz2.compress(lines.encode()))
    _file(archive / "rows.jsonl.zst", _packed("zstd", lines.encode()))


def state(path: Path, value: str) -> None:
    """What a stream remembers: state files as Spark writes them."""
    store = path / "generation" / "state" / "0" / "0"
    row = struct.pack("<qq", 0, len(value)) + value.encode()
    _file(store / "1.delta", lz4_java(struct.pack(">i", len(row)) + row + struct.pack(">i", -1)))
    _file(store / "SSTs" / "000008-canary.sst", rocksdb_table([(value.encode(), b"1")]))
    _file(store / "000009.log", _log_record(value.encode()))
    _file(store / "1.zip", _zipped({"MANIFEST-000005": _log_record(b"\x01" + value.encode())}))


def temporary(path: Path, value: str) -> None:
    """Left-over files of every kind that has a decoder, as writers that were killed leave them."""
    data = value.encode()
    statistics = json.dumps({"numRecords": 1, "minValues": {"canary_id": value}, "maxValues": {"canary_id": value}})
    event = f'{{"Event":"SparkListenerSQLExecutionStart","physicalPlanDescription":"Filter (canary_id#1 = {value})"}}\n'.encode()
    framed = b"\xff\x06\x00\x00sNaPpY" + b"\x00" + _three(_snappy(data)) + _snappy(data)
    nested = _zipped({"inner.txt.gz": gzip.compress(b"of " + data)})
    made: Mapping[str, Callable[[], bytes]] = {
        ".00000000000000000001.json.canary.tmp": lambda: json.dumps({"add": {"stats": statistics}}).encode(),
        "checkpoint.parquet.tmp": lambda: _checkpoint(statistics, value),
        "sqlite.db.tmp": lambda: _sqlite(value, deleted=False),
        "free.db.tmp": lambda: _sqlite(value, deleted=True),
        "pickle.tmp": lambda: pickle.dumps({"conf": value}),
        "events.tmp": lambda: _packed("zstd", event),
        "text.log.tmp": lambda: b"2026-11-21 02:00:00 ERROR no such subject: " + data + b"\n",
        "lz4.tmp": lambda: _packed("lz4", b"of " + data),
        "snappy.tmp": lambda: framed,
        "utf-16.tmp": lambda: f"of {value}".encode("utf-16"),
        "base64.tmp": lambda: _base64(b"{" + data + b"}"),
        "hash.tmp": lambda: _hash(data),
        "nested.tmp": lambda: nested,
        f"of-{value}.tmp": lambda: b"nothing in it",
    }
    for name, content in made.items():
        _file(path / name, content(), age=_LONG_AGO)


def lz4_java(data: bytes) -> bytes:
    """A stream of lz4-java, as Spark's state files are: one block, and the mark of the end."""
    packed = pa.Codec("lz4_raw").compress(data, asbytes=True)
    return _lz4_block(0x25, packed, len(data)) + _lz4_block(0x15, b"", 0)


def rocksdb_table(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A small RocksDB table: one block of data, its index, and the footer."""
    data = _block(entries, compression=4)
    where = _varint(0) + _varint(len(data) - 5)
    index = _block([(entries[-1][0], where)])
    meta = _block([])
    handles = _handle(len(data) + len(index), meta) + _handle(len(data), index)
    footer = b"\x01" + handles.ljust(40, b"\0") + struct.pack("<I", 5) + (0x88E241B785F4CFF7).to_bytes(8, "little")
    return data + index + meta + footer


def _write(path: Path, rows: pa.Table, counted: str, retain: str, feed: bool) -> None:
    properties = {
        "delta.enableChangeDataFeed": str(feed).lower(),
        "delta.dataSkippingStatsColumns": counted,
        "delta.deletedFileRetentionDuration": f"interval {retain}",
    }
    write_deltalake(path, rows, configuration=properties)


def _file(path: Path, content: bytes, age: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if age:
        os.utime(path, (time.time() - age, time.time() - age))


def _checkpoint(statistics: str, value: str) -> bytes:
    target = io.BytesIO()
    rows = pa.table({"add": [{"path": "part-0.parquet", "stats": statistics}]}).replace_schema_metadata({"of": value})
    pq.write_table(rows, target)
    return target.getvalue()


def _sqlite(value: str, deleted: bool) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("CREATE TABLE run (conf TEXT, at TEXT)")
    connection.execute("INSERT INTO run VALUES (?, ?)", (value, datetime.now(UTC).isoformat()))
    if deleted:
        connection.execute("DELETE FROM run")
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content


def _zipped(members: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def _packed(codec: str, data: bytes) -> bytes:
    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, codec) as packed:
        packed.write(data)
    packed_bytes: bytes = target.getvalue().to_pybytes()
    return packed_bytes


def _base64(data: bytes) -> bytes:
    return base64.b64encode(data)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _snappy(data: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return bytes(4) + packed


def _three(data: bytes) -> bytes:
    return len(data).to_bytes(3, "little")


def _lz4_block(token: int, packed: bytes, size: int) -> bytes:
    return b"LZ4Block" + struct.pack("<BIII", token, len(packed), size, 0) + packed


def _log_record(payload: bytes) -> bytes:
    return struct.pack("<IHB", 0, len(payload), 1) + payload


def _block(entries: list[tuple[bytes, bytes]], compression: int = 0) -> bytes:
    data = b"".join(_varint(0) + _varint(len(key)) + _varint(len(value)) + key + value for key, value in entries)
    data += struct.pack("<II", 0, 1)
    if compression:
        data = _varint(len(data)) + pa.Codec("lz4_raw").compress(data, asbytes=True)
    return data + bytes([compression]) + bytes(4)


def _handle(at: int, block: bytes) -> bytes:
    return _varint(at) + _varint(len(block) - 5)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
