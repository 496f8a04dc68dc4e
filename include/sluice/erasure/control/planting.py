"""What stands for the canary: a store of every kind that Sluice, Spark or Airflow leave, each with an identifier in it."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import json
import lzma
import os
import pickle
import secrets
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from sluice.delta_log import opened_table
from sluice.erasure.control import containers
from sluice.erasure.control.stores import SHORT
from sluice.lake.workspace import Workspace

_OTHER = "somebody-else-altogether-0000000000"
_OTHER_NUMBER = 7
_LONG_AGO = 86_400
"""Left-over files are a day old, so that a sweep takes them for what they are."""


@dataclass(frozen=True)
class Marks:
    """The canary's identifiers: a text, a number that is too short to be looked for outside of its columns, and a long one."""

    text: str
    short: int
    long: int

    @classmethod
    def by_chance(cls) -> Marks:
        """Others each time."""
        return cls(
            f"canary-{secrets.token_hex(16)}", 100_000 + secrets.randbelow(900_000), 10**14 + secrets.randbelow(9 * 10**14)
        )


def everything(folder: Path, column: str, marks: Marks, retain: str) -> None:
    """A store of every kind, below a folder."""
    table(folder / "table", column, marks, retain)
    table(folder / "vectors", column, marks, retain)
    quarantine(folder / "quarantine", column, marks, retain)
    landed(folder / "landing", folder / "archive", column, marks)
    state(folder / "state", marks)
    temporary(folder / "temporary", column, marks)


def table(path: Path, column: str, marks: Marks, retain: str) -> None:
    """A Delta table as Sluice makes them, with rows of two people, one of which is in its change feed as well."""
    numbers = [marks.short, _OTHER_NUMBER]
    rows = {column: [marks.text, _OTHER], "number": [1, 2], SHORT: numbers, f"{SHORT}_text": [str(one) for one in numbers]}
    _write(path, pa.table(rows), "number", retain, feed=path.name == "table")
    if path.name == "table":
        # A change of the row itself, so that it is in the change feed before it is deleted.
        opened_table(str(path)).update(updates={"number": "number + 10"})


def quarantine(path: Path, column: str, marks: Marks, retain: str) -> None:
    """Rows that a flow set aside: whose they are, and the record as it came."""
    records = [json.dumps({column: one, SHORT: number}) for one, number in ((marks.text, marks.short), (_OTHER, _OTHER_NUMBER))]
    rows = {"_delivery": [1, 2], "_row": [0, 0], "_subject": [marks.text, _OTHER], "record": records}
    _write(path, pa.table(rows), "_delivery", retain, feed=True)


def with_vectors(workspace: Workspace, path: Path) -> None:
    """Let the table mark its rows as deleted from now on, rather than leave them out of its files."""
    workspace.session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")


def landed(landing: Path, archive: Path, column: str, marks: Marks) -> None:
    """Files as they are delivered, and as they are archived."""
    people = ((_OTHER, _OTHER_NUMBER), (marks.text, marks.short), (_OTHER, _OTHER_NUMBER))
    lines = "".join(json.dumps({column: one, SHORT: number}) + "\n" for one, number in people)
    rows = "".join(f"{one},{number}\n" for one, number in people)
    _file(landing / "rows.jsonl", lines.encode())
    _file(landing / "rows.csv", f"{column},{SHORT}\n{rows}".encode())
    _file(archive / "rows.jsonl.gz", gzip.compress(lines.encode()))
    _file(archive / "rows.jsonl.bz2", bz2.compress(lines.encode()))
    _file(archive / "rows.jsonl.zst", containers.packed("zstd", lines.encode()))


def state(path: Path, marks: Marks) -> None:
    """What a stream remembers: state files as Spark writes them."""
    store, value = path / "generation" / "state" / "0" / "0", marks.text.encode()
    row = struct.pack("<qqq", 0, marks.long, len(value)) + value
    _file(store / "1.delta", containers.lz4_java(struct.pack(">i", len(row)) + row + struct.pack(">i", -1)))
    # Of all partitions of a store, the first alone has the schema.
    _file(store / "_metadata" / "schema", containers.state_schema(SHORT, "count"))
    other, keyed = (containers.state_row(one) + bytes(8) for one in (_OTHER_NUMBER, marks.short))  # a sequence number and a type
    _file(store / "SSTs" / "000008-canary.sst", containers.rocksdb_table([(other, containers.state_row(1) + value)]))
    _file(store.parent / "1" / "SSTs" / "000009-canary.sst", containers.rocksdb_table([(keyed, containers.state_row(3))]))
    _file(store / "000009.log", containers.log_record(value))
    _file(store / "1.zip", containers.zipped({"MANIFEST-000005": containers.log_record(b"\x01" + value)}))


def temporary(path: Path, column: str, marks: Marks) -> None:
    """Left-over files of every kind that has a decoder, as writers that were killed leave them."""
    for name, content in {**_of_spark(column, marks), **_of_others(marks)}.items():
        _file(path / name, content(), age=_LONG_AGO)
    _file(path / f"of-{marks.text}.tmp", b"nothing in it", age=_LONG_AGO)


def _of_spark(column: str, marks: Marks) -> Mapping[str, Callable[[], bytes]]:
    """What Spark and Delta leave, and files that hold tables."""
    value, data = marks.text, marks.text.encode()
    ends = {column: value, SHORT: marks.short}
    statistics = json.dumps({"numRecords": 1, "minValues": ends, "maxValues": ends})
    event = f'{{"Event":"SparkListenerSQLExecutionStart","physicalPlanDescription":"Filter ({column}#1 = {value})"}}\n'.encode()
    added = pa.table({"add": [{"path": "part-0.parquet", "stats": statistics}]}).replace_schema_metadata({"of": value})
    rows = pa.table({"who": [value]})
    return {
        ".00000000000000000001.json.canary.tmp": lambda: json.dumps({"add": {"stats": statistics}}).encode(),
        "checkpoint.parquet.tmp": lambda: containers.parquet_of(added),
        "cell.parquet.tmp": lambda: containers.parquet_of(pa.table({"file": [gzip.compress(b"of " + data)]}), dictionary=False),
        "dictionary.tmp": lambda: containers.with_unused_entry(value),
        "orc.tmp": lambda: containers.orc_of(rows),
        "arrow.tmp": lambda: containers.arrow_of(rows),
        "events.tmp": lambda: containers.packed("zstd", event),
        "lz4.tmp": lambda: containers.packed("lz4", b"of " + data),
        "framed.tmp": lambda: containers.snappy_framed(b"of " + data),
        "raw.snappy": lambda: containers.snappy(b"of " + data),
        "xerial.tmp": lambda: containers.xerial(b"of " + data),
    }


def _of_others(marks: Marks) -> Mapping[str, Callable[[], bytes]]:
    """What other programs leave."""
    data = marks.text.encode()
    return {
        "sqlite.db.tmp": lambda: _sqlite(marks, deleted=False),
        "free.db.tmp": lambda: _sqlite(marks, deleted=True),
        "pickle.tmp": lambda: pickle.dumps({"conf": marks.text}),
        "text.log.tmp": lambda: b"2026-11-21 02:00:00 ERROR no such subject: " + data + b"\n",
        "xz.tmp": lambda: lzma.compress(b"of " + data),
        "deflate.tmp": lambda: zlib.compress(b"of " + data),
        "tar.tmp": lambda: containers.tarred("inner.txt.gz", gzip.compress(b"of " + data)),
        "utf-16.tmp": lambda: json.dumps({"of": marks.text, SHORT: marks.short}).encode("utf-16"),
        "base64.tmp": lambda: base64.b64encode(b"{" + data + b"}"),
        "escaped.tmp": lambda: json.dumps({"of": marks.text}).replace("-", "\\u002d").encode(),
        "wrapped.tmp": lambda: base64.encodebytes(b"{" * 70 + data + b"}"),
        "hash.tmp": lambda: hashlib.sha256(data).hexdigest().encode(),
        "nested.tmp": lambda: containers.zipped({"inner.txt.gz": gzip.compress(b"of " + data)}),
    }


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


def _sqlite(marks: Marks, deleted: bool) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute(f"CREATE TABLE run (conf TEXT, {SHORT} INTEGER, at TEXT)")
    connection.execute("INSERT INTO run VALUES (?, ?, ?)", (marks.text, marks.short, datetime.now(UTC).isoformat()))
    if deleted:
        connection.execute("DELETE FROM run")
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content
