"""Records that wait on the disk are those that stand in a plan, of every type; and their folder is nobody else's, and goes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from sluice.ingest.reading import staging
from sluice.ingest.reading.staging import StagedRowsWriter, make_staging_folder, read_staged_rows, remove_staging_folder
from sluice.locations import locate

EARLY, LATE = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
FULL = {
    "tiny": -128,
    "whole": -(1 << 63),
    "float": float("-inf"),
    "double": -0.0,
    "narrow": Decimal("-1.50"),
    "wide": Decimal("9" * 38),
    "day": date(1582, 10, 10),
    "at": EARLY,
    "local": EARLY.replace(tzinfo=None),
    "text": "é🙂\0\n",
    "bytes": b"\0\xff",
    "yes": True,
    "of.parts and, more": {"a b": [1, None], "c": {"d": None}},
    "many": [{"x": "1"}, None, {"x": None}],
    "map": [("k", [1]), ("", None)],
}
SCHEMA = pa.schema([
    ("tiny", pa.int8()),
    ("whole", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("narrow", pa.decimal128(5, 2)),
    ("wide", pa.decimal128(38, 0)),
    ("day", pa.date32()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("local", pa.timestamp("us")),
    ("text", pa.string()),
    ("bytes", pa.binary()),
    ("yes", pa.bool_()),
    ("of.parts and, more", pa.struct([("a b", pa.list_(pa.int32())), ("c", pa.struct([("d", pa.string())]))])),
    ("many", pa.list_(pa.struct([("x", pa.string())]))),
    ("map", pa.map_(pa.string(), pa.list_(pa.int64()))),
])
ROWS = [
    FULL,
    dict.fromkeys(SCHEMA.names),
    FULL | {"at": LATE, "local": LATE.replace(tzinfo=None), "day": date.max, "double": float("inf"), "text": "", "many": [], "map": []},
]  # fmt: skip


def test_staged_rows_are_those_of_a_plan(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(ROWS, SCHEMA)
    kind = from_arrow_schema(SCHEMA)
    folder = make_staging_folder(spark, tmp_path / "shared")
    with StagedRowsWriter(folder / "0.parquet", SCHEMA) as writer:
        writer.add_rows(rows)
    staged = read_staged_rows(spark, folder, kind)
    assert staged.schema == kind
    text = [f"CAST(`{name}` AS STRING)" for name in SCHEMA.names if name != "bytes"]
    expected = spark.createDataFrame(rows, kind)
    assert staged.selectExpr(*text, "hex(bytes)").collect() == expected.selectExpr(*text, "hex(bytes)").collect()
    assert str(staged.select("double").collect()[0][0]) == "-0.0"
    remove_staging_folder(folder)
    assert not folder.exists()


def test_the_folder_is_private_and_below_the_sessions_local_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_staging_folder(spark, tmp_path / "shared")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.is_relative_to(spark.sparkContext._temp_dir)
    remove_staging_folder(folder)
    assert not (tmp_path / "shared").exists(), "which is for clusters"


def test_on_a_cluster_rows_wait_below_the_shared_folder_and_a_killed_applications_go(tmp_path: Path) -> None:
    context = SimpleNamespace(master="spark://somewhere:7077", applicationId="app-1", _temp_dir="/of/the/driver/alone")
    session: Any = SimpleNamespace(sparkContext=context)
    shared = tmp_path / "_sluice" / "staging"
    one, other = make_staging_folder(session, shared), make_staging_folder(session, shared)
    assert one != other and one.parent == other.parent == shared
    assert {path.stat().st_mode & 0o777 for path in (shared, one, other)} == {0o700}
    (shared / "0").write_text("a file that is taken out of quarantine")
    context.applicationId = "app-10"
    third = make_staging_folder(session, shared)
    assert sorted(shared.iterdir()) == sorted([third, shared / "0"])


def test_a_file_of_rows_is_whole_though_two_workers_write_it(tmp_path: Path) -> None:
    from pyarrow import parquet

    schema = pa.schema([("a", pa.int64())])
    rows, path = pa.table({"a": list(range(10))}, schema=schema), tmp_path / "0.parquet"
    with StagedRowsWriter(path, schema) as lost:
        lost.add_rows(rows)
        lost._write_waiting()
        with StagedRowsWriter(path, schema) as again:
            again.add_rows(rows)
        lost.add_rows(rows)
        lost._write_waiting()
        assert parquet.read_table(path).equals(rows), "though the lost one writes on"
    assert parquet.read_table(path).num_rows == 2 * rows.num_rows, "of two whole files, one"
    with pytest.raises(OSError, match="no space"), StagedRowsWriter(tmp_path / "1.parquet", schema) as half:
        half.add_rows(rows)
        half._write_waiting()
        raise OSError("no space")
    assert [file.name for file in tmp_path.iterdir()] == ["0.parquet"]


def test_rows_wait_until_there_are_enough_and_no_file_is_made_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import parquet

    schema = pa.schema([("a", pa.int64())])
    rows = pa.table({"a": list(range(10))}, schema=schema)
    monkeypatch.setattr(staging, "_GROUP", 2 * rows.nbytes)
    with StagedRowsWriter(tmp_path / "some.parquet", schema) as writer:
        for _ in range(5):
            writer.add_rows(rows)
    file = parquet.ParquetFile(tmp_path / "some.parquet")
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [20, 20, 10]
    with StagedRowsWriter(tmp_path / "none.parquet", schema) as writer:
        writer.add_rows(rows.slice(0, 0))
    assert not (tmp_path / "none.parquet").exists()


def test_rows_for_a_store_are_collected_on_a_local_disk_and_nothing_of_them_stays_there(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "not" / "there"  # as for the driver of a cluster, before it spills
    monkeypatch.setenv("SPARK_EXECUTOR_DIRS", f"{local},{tmp_path / 'other'}")
    location = locate(f"{bucket_url}/staging/of-app/0.parquet")
    with StagedRowsWriter(location, pa.schema({"id": pa.int64()})) as writer:
        writer.add_rows(pa.table({"id": pa.array([1, 2], pa.int64())}))
    assert location.is_file() and not list(local.iterdir()) and local.stat().st_mode & 0o077 == 0
    with (
        pytest.raises(ValueError, match="broken"),
        StagedRowsWriter(location.with_name("1.parquet"), pa.schema({"id": pa.int64()})) as writer,
    ):
        writer.add_rows(pa.table({"id": pa.array([1], pa.int64())}))
        raise ValueError("broken")
    assert [one.name for one in location.parent.iterdir()] == ["0.parquet"] and not list(local.iterdir())
