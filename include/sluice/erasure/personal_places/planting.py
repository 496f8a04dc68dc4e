"""Plants the canary in a store of every kind that Sluice, Spark or Airflow leave behind, with one of its identifiers in each."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import json
import lzma
import os
import pickle
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import write_deltalake

from sluice.erasure.personal_places import containers
from sluice.erasure.personal_places.place import SHORT, CanaryMarks
from sluice.lake.workspace import Workspace
from sluice.locations import Location, is_on_disk
from sluice.open_tables import open_table_to_change
from sluice.stores.opening import delta_rs_storage_options

COLUMN = "canary_id"
"""The column of the canary's tables and files that says whose a row or record is."""
_OTHER = "somebody-else-altogether-0000000000"
_OTHER_NUMBER = 7
_LONG_AGO = 86_400
"""Leftover files on a disk are made a day old, so that a sweep recognises them as such."""


def plant_delta_table(path: Location, marks: CanaryMarks, retain: str) -> None:
    """Makes a Delta table as Sluice does, with rows of two people, one of whom is also in its change feed."""
    _write_canary_table(path, _build_canary_rows(marks), "number", retain, feed=True)
    # A change of the row itself puts it into the change feed before it is deleted.
    open_table_to_change(str(path)).update(updates={"number": "number + 10"})


def plant_vector_table(path: Location, marks: CanaryMarks, retain: str) -> None:
    """Makes the same table, whose canary rows will be marked as deleted: see `enable_deletion_vectors`."""
    _write_canary_table(path, _build_canary_rows(marks), "number", retain, feed=False)


def _build_canary_rows(marks: CanaryMarks) -> pa.Table:
    numbers = [marks.short, _OTHER_NUMBER]
    texts = [str(one) for one in numbers]
    return pa.table({COLUMN: [marks.text, _OTHER], "number": [1, 2], SHORT: numbers, f"{SHORT}_text": texts})


def plant_quarantine_table(path: Location, marks: CanaryMarks, retain: str) -> None:
    """Makes a quarantine with rows that name their subject and the record as delivered."""
    records = [json.dumps({COLUMN: one, SHORT: number}) for one, number in ((marks.text, marks.short), (_OTHER, _OTHER_NUMBER))]
    rows = {"_delivery": [1, 2], "_row": [0, 0], "_subject": [marks.text, _OTHER], "record": records, "weight": [1.5, 2.5]}
    # Statistics of a fraction leave the table to Spark, as a large one is: the way that rewrites its files through Spark has a control.
    _write_canary_table(path, pa.table(rows), "_delivery,weight", retain, feed=True)


def enable_deletion_vectors(workspace: Workspace, path: Location) -> None:
    """Makes the table mark its rows as deleted from now on, instead of rewriting its files."""
    workspace.session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")


def plant_landed_files(path: Location, marks: CanaryMarks, _: str) -> None:
    """Writes files as they are delivered."""
    rows = "".join(f"{one},{number}\n" for one, number in _list_delivered_people(marks))
    _write_canary_file(path / "rows.jsonl", _build_json_lines(marks))
    _write_canary_file(path / "rows.csv", f"{COLUMN},{SHORT}\n{rows}".encode())


def plant_archived_files(path: Location, marks: CanaryMarks, _: str) -> None:
    """Writes files as they are archived."""
    lines = _build_json_lines(marks)
    _write_canary_file(path / "rows.jsonl.gz", gzip.compress(lines))
    _write_canary_file(path / "rows.jsonl.bz2", bz2.compress(lines))
    _write_canary_file(path / "rows.jsonl.zst", containers.compress_with_codec("zstd", lines))


def _list_delivered_people(marks: CanaryMarks) -> tuple[tuple[str, int], ...]:
    return (_OTHER, _OTHER_NUMBER), (marks.text, marks.short), (_OTHER, _OTHER_NUMBER)


def _build_json_lines(marks: CanaryMarks) -> bytes:
    return "".join(json.dumps({COLUMN: one, SHORT: number}) + "\n" for one, number in _list_delivered_people(marks)).encode()


def plant_stream_state(path: Location, marks: CanaryMarks, _: str) -> None:
    """Writes state files of a stream, as Spark does."""
    store, value = path / "generation" / "state" / "0" / "0", marks.text.encode()
    row = struct.pack("<qqq", 0, marks.long, len(value)) + value
    _write_canary_file(store / "1.delta", containers.pack_lz4_java(struct.pack(">i", len(row)) + row + struct.pack(">i", -1)))
    # Only the first of a store's partitions has the schema.
    _write_canary_file(store / "_metadata" / "schema", containers.build_state_schema(SHORT, "count"))
    other, keyed = (
        containers.build_state_row(one) + bytes(8) for one in (_OTHER_NUMBER, marks.short)
    )  # a sequence number and a type
    _write_canary_file(
        store / "SSTs" / "000008-canary.sst", containers.build_rocksdb_table([(other, containers.build_state_row(1) + value)])
    )
    _write_canary_file(
        store.parent / "1" / "SSTs" / "000009-canary.sst",
        containers.build_rocksdb_table([(keyed, containers.build_state_row(3))]),
    )
    _write_canary_file(store / "000009.log", containers.build_rocksdb_log_record(value))
    _write_canary_file(
        store / "1.zip", containers.pack_zip({"MANIFEST-000005": containers.build_rocksdb_log_record(b"\x01" + value)})
    )


def plant_leftover_files(path: Location, marks: CanaryMarks, _: str) -> None:
    """Writes leftover files of every kind that has a decoder, as killed writers leave them."""
    for name, content in {**_list_spark_leftovers(marks), **_list_other_leftovers(marks)}.items():
        _write_canary_file(path / name, content(), age=_LONG_AGO)
    _write_canary_file(path / f"of-{marks.text}.tmp", b"nothing in it", age=_LONG_AGO)


def _list_spark_leftovers(marks: CanaryMarks) -> Mapping[str, Callable[[], bytes]]:
    """Files left by Spark and Delta, and files that hold tables."""
    value, data = marks.text, marks.text.encode()
    ends = {COLUMN: value, SHORT: marks.short}
    statistics = json.dumps({"numRecords": 1, "minValues": ends, "maxValues": ends})
    event = f'{{"Event":"SparkListenerSQLExecutionStart","physicalPlanDescription":"Filter ({COLUMN}#1 = {value})"}}\n'.encode()
    added = pa.table({"add": [{"path": "part-0.parquet", "stats": statistics}]}).replace_schema_metadata({"of": value})
    rows = pa.table({"who": [value]})
    return {
        ".00000000000000000001.json.canary.tmp": lambda: json.dumps({"add": {"stats": statistics}}).encode(),
        "checkpoint.parquet.tmp": lambda: containers.encode_parquet(added),
        "cell.parquet.tmp": lambda: containers.encode_parquet(
            pa.table({"file": [gzip.compress(b"of " + data)]}), dictionary=False
        ),
        "dictionary.tmp": lambda: containers.encode_unused_dictionary_entry(value),
        "orc.tmp": lambda: containers.encode_orc(rows),
        "arrow.tmp": lambda: containers.encode_arrow(rows),
        "events.tmp": lambda: containers.compress_with_codec("zstd", event),
        "lz4.tmp": lambda: containers.compress_with_codec("lz4", b"of " + data),
        "framed.tmp": lambda: containers.compress_framed_snappy(b"of " + data),
        "raw.snappy": lambda: containers.compress_raw_snappy(b"of " + data),
        "xerial.tmp": lambda: containers.compress_xerial_snappy(b"of " + data),
    }


def _list_other_leftovers(marks: CanaryMarks) -> Mapping[str, Callable[[], bytes]]:
    """Files left by other programs."""
    data = marks.text.encode()
    return {
        "sqlite.db.tmp": lambda: _build_sqlite_database(marks, deleted=False),
        "free.db.tmp": lambda: _build_sqlite_database(marks, deleted=True),
        "pickle.tmp": lambda: pickle.dumps({"conf": marks.text}),
        "text.log.tmp": lambda: b"2026-11-21 02:00:00 ERROR no such subject: " + data + b"\n",
        "xz.tmp": lambda: lzma.compress(b"of " + data),
        "deflate.tmp": lambda: zlib.compress(b"of " + data),
        "tar.tmp": lambda: containers.pack_tar("inner.txt.gz", gzip.compress(b"of " + data)),
        "utf-16.tmp": lambda: json.dumps({"of": marks.text, SHORT: marks.short}).encode("utf-16"),
        "base64.tmp": lambda: base64.b64encode(b"{" + data + b"}"),
        "escaped.tmp": lambda: json.dumps({"of": marks.text}).replace("-", "\\u002d").encode(),
        "wrapped.tmp": lambda: base64.encodebytes(b"{" * 70 + data + b"}"),
        "hash.tmp": lambda: hashlib.sha256(data).hexdigest().encode(),
        "nested.tmp": lambda: containers.pack_zip({"inner.txt.gz": gzip.compress(b"of " + data)}),
    }


def _write_canary_table(path: Location, rows: pa.Table, counted: str, retain: str, feed: bool) -> None:
    properties = {
        "delta.enableChangeDataFeed": str(feed).lower(),
        "delta.dataSkippingStatsColumns": counted,
        "delta.deletedFileRetentionDuration": f"interval {retain}",
    }
    write_deltalake(str(path), rows, configuration=properties, storage_options=delta_rs_storage_options(str(path)))


def _write_canary_file(path: Location, content: bytes, age: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if age and is_on_disk(path):  # a store says itself when an object was written: just now
        os.utime(path, (time.time() - age, time.time() - age))


def _build_sqlite_database(marks: CanaryMarks, deleted: bool) -> bytes:
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
