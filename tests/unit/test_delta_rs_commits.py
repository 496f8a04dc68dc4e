"""With a checksum beside its commit, Spark knows a table that delta-rs wrote without a job; what it reads and writes is the same."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from sluice import delta_rs_commits, durable_files
from sluice.delta_rs_commits import complete_commit, remove_checksums_without_commit, write_version_checksum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def make_table(path: Path, rows: int) -> str:
    DeltaTable.create(str(path), SCHEMA, configuration={"delta.logRetentionDuration": "interval 30 days"})
    for number in range(rows):
        write_deltalake(str(path), pa.Table.from_pylist([{"id": number, "name": "a"}], schema=SCHEMA), mode="append")
    return str(path)


def list_checksums(path: str) -> list[int]:
    return sorted(int(file.stem) for file in (Path(path) / "_delta_log").glob("*.crc") if file.stem.isdecimal())


def forget_tables(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def jobs_to_read_schema(spark: SparkSession, path: str) -> tuple[int, StructType]:
    forget_tables(spark)
    context: Any = spark._jsc
    scheduler = context.sc().dagScheduler()
    before = scheduler.nextJobId()
    schema = spark.read.format("delta").load(path).schema
    return scheduler.nextJobId() - before, schema


@pytest.mark.spark
def test_a_schema_is_known_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    path = make_table(tmp_path / "t", 3)
    without, schema = jobs_to_read_schema(spark, path)
    write_version_checksum(path, DeltaTable(path))
    assert without > 0 and jobs_to_read_schema(spark, path) == (0, schema)


@pytest.mark.spark
def test_spark_reads_the_rows_and_goes_on_from_there(spark: SparkSession, tmp_path: Path) -> None:
    path = make_table(tmp_path / "t", 3)
    write_version_checksum(path, DeltaTable(path))
    DeltaTable(path).alter.add_columns(Field("more", "string"))
    write_version_checksum(path, DeltaTable(path))
    assert sorted(map(tuple, spark.read.format("delta").load(path).collect())) == [(n, "a", None) for n in range(3)]
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, 'b', 'c')")
    added = pa.Table.from_pylist([{"id": 4, "name": "d", "more": "e"}], schema=SCHEMA.append(pa.field("more", pa.string())))
    write_deltalake(path, added, mode="append")
    write_version_checksum(path, DeltaTable(path))
    forget_tables(spark)
    expected = [*((n, "a", None) for n in range(3)), (3, "b", "c"), (4, "d", "e")]
    assert sorted(map(tuple, spark.read.format("delta").load(path).collect())) == expected
    # Delta compares what a checksum says with the whole state of the log when it makes a checkpoint, and refuses where they differ.
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).checkpoint()
    assert spark.read.format("delta").load(path).count() == 5


def test_what_the_table_is_comes_from_the_checksum_before_or_from_the_log(tmp_path: Path) -> None:
    path = make_table(tmp_path / "t", 3)
    write_version_checksum(path, DeltaTable(path))
    by_log = (tmp_path / "t/_delta_log" / f"{3:020d}.crc").read_text()
    DeltaTable(path).create_checkpoint()
    (tmp_path / "t/_delta_log" / f"{0:020d}.json").unlink()
    write_deltalake(path, pa.Table.from_pylist([{"id": 9, "name": "a"}], schema=SCHEMA), mode="append")
    write_version_checksum(path, DeltaTable(path))
    by_checksum = json.loads((tmp_path / "t/_delta_log" / f"{4:020d}.crc").read_text())
    assert {name: by_checksum[name] for name in ("metadata", "protocol")} == {
        name: json.loads(by_log)[name] for name in ("metadata", "protocol")
    }
    assert (by_checksum["numFiles"], json.loads(by_log)["numFiles"]) == (4, 3)


def test_where_neither_tells_it_there_is_none_and_the_commit_stands(tmp_path: Path) -> None:
    path = make_table(tmp_path / "t", 1)
    DeltaTable(path).create_checkpoint()
    (tmp_path / "t/_delta_log" / f"{0:020d}.json").unlink()
    write_version_checksum(path, DeltaTable(path))
    assert list_checksums(path) == [] and DeltaTable(path).version() == 1


def test_a_commit_and_its_files_are_on_the_disk_before_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, flushed = make_table(tmp_path / "t", 1), []

    def flush_and_note(file: Path, below: Path | None = None) -> None:
        flushed.append((file.suffix, list_checksums(path)))
        durable_files.flush_file_and_name(file, below)

    monkeypatch.setattr(delta_rs_commits, "flush_file_and_name", flush_and_note)
    complete_commit(path, DeltaTable(path))
    assert flushed == [(".parquet", []), (".json", [])] and list_checksums(path) == [1]


def test_the_names_of_new_folders_of_partitions_are_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, flushed = tmp_path / "t", list[Path]()
    write_deltalake(path, pa.table({"a": [1], "b": [2], "c": [3]}), partition_by=["a", "b"])
    monkeypatch.setattr(durable_files, "_flush_folder", flushed.append)
    complete_commit(str(path), DeltaTable(path))
    assert {path, path / "a=1", path / "a=1" / "b=2"} <= set(flushed) and tmp_path not in flushed


@pytest.mark.parametrize("fails", [".parquet", ".json"])
def test_a_disk_that_does_not_take_a_commit_or_its_files_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = make_table(tmp_path / "t", 1)

    def fail_to_flush(file: Path, below: Path | None = None) -> None:
        if file.suffix == fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(delta_rs_commits, "flush_file_and_name", fail_to_flush)
    with pytest.raises(OSError, match="Input/output"):
        complete_commit(path, DeltaTable(path))
    assert list_checksums(path) == [], "which would say that the commit is there"


def test_checksums_of_commits_that_are_gone_go_too(tmp_path: Path) -> None:
    path = make_table(tmp_path / "t", 2)
    write_version_checksum(path, DeltaTable(path))
    log = tmp_path / "t" / "_delta_log"
    DeltaTable(path).create_checkpoint()
    for version in range(2):
        (log / f"{version:020d}.crc").write_text("{}")
        (log / f"{version:020d}.json").unlink()
    (log / f"{3:020d}.crc").write_text("{}")
    remove_checksums_without_commit(path)
    assert list_checksums(path) == [2, 3], "the last tells that a commit was lost"
    (log / f"{3:020d}.crc").unlink()
    assert DeltaTable(path).version() == 2
