"""A table read by the paths of its files is the table that Delta's reader reads; what paths do not say is left to Delta's reader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from sluice.delta_log import LOG
from sluice.lake import table_creation
from sluice.lake.table_frames import MOST_FILES, read_table, read_table_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = """id BIGINT COMMENT 'Its number.', at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, price DECIMAL(38, 18), text STRING, raw BINARY,
    tags ARRAY<STRING>, nested STRUCT<a: INT, b: MAP<STRING, DOUBLE>>"""
ROWS = """SELECT 1, TIMESTAMP'0001-01-01 00:00:00', TIMESTAMP_NTZ'1850-02-03 04:05:06', DATE'1500-01-01', 1.5, 'a', X'00', array('x', NULL),
    named_struct('a', 1, 'b', map('k', double('NaN')))
    UNION ALL SELECT 2, TIMESTAMP'9999-12-31 23:59:59.999999', NULL, NULL, NULL, '', NULL, NULL, NULL"""


def make_table(spark: SparkSession, path: Path, columns: str = COLUMNS, rest: str = "") -> str:
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {rest}")
    return str(path)


def read_by_delta(spark: SparkSession, path: str, version: int | None = None) -> DataFrame:
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(path)


def is_read_by_path(frame: DataFrame) -> bool:
    """Whether no log of Delta is asked when the frame is computed."""
    leaf: Any = frame._jdf.queryExecution().analyzed().collectLeaves().apply(0)
    if leaf.getClass().getSimpleName() == "LocalRelation":
        return True
    return bool(leaf.relation().location().getClass().getSimpleName() == "InMemoryFileIndex")


def same_rows(one: DataFrame, other: DataFrame) -> bool:
    def as_text(frame: DataFrame) -> list[str]:
        return sorted(str(row[0]) for row in frame.select(F.to_json(F.struct("*"))).collect())

    return as_text(one) == as_text(other)


@pytest.fixture(scope="module")
def every_type(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with columns of many types, whose last version has a row less than the one before."""
    path = tmp_path_factory.mktemp("every_type") / "plain"
    make_table(spark, path)
    for _ in range(2):
        spark.sql(f"INSERT INTO delta.`{path}` {ROWS}")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    return path


@pytest.mark.parametrize(
    ("folder", "versions"),
    [("plain", (None, 0, 1, 2)), ("with space", (None,)), ("Ünïcode=1", (None,)), ("_hidden", (None,))],
    ids=["plain", "with space", "Ünïcode=1", "_hidden"],
)
def test_a_small_table_is_read_by_its_files_with_every_value_and_column_as_delta_reads_it(
    spark: SparkSession, every_type: Path, tmp_path: Path, folder: str, versions: tuple[int | None, ...]
) -> None:
    path = str(shutil.copytree(every_type, tmp_path / folder))
    for version in versions:
        by_path, by_delta = read_table(spark, path, version), read_by_delta(spark, path, version)
        assert is_read_by_path(by_path) and by_path.schema == by_delta.schema
        assert same_rows(by_path, by_delta)
    assert read_table_columns(spark, path) == read_by_delta(spark, path).schema


def test_a_folder_whose_name_delta_rs_takes_for_an_encoded_one_is_read_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    made = tmp_path / "made"
    write_deltalake(made, pa.table({"id": [1]}))
    for folder in ("per%20cent", "a[b]c"):
        path = str(shutil.copytree(made, tmp_path / folder))
        assert read_table(spark, path).collect() == [(1,)]


def test_a_column_that_came_later_is_null_in_older_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": [1]}))
    write_deltalake(path, pa.table({"id": [2], "name": ["b"]}), mode="append", schema_mode="merge")
    frame = read_table(spark, path)
    assert is_read_by_path(frame) and sorted(map(tuple, frame.collect())) == [(1, None), (2, "b")]


ROWS_OF_TWO = pa.table({"id": pa.array([1, 3], pa.int32()), "city": ["a", None]})


def assert_left_to_delta(spark: SparkSession, path: str) -> None:
    frame = read_table(spark, path)
    assert not is_read_by_path(frame) and frame.schema == read_by_delta(spark, path).schema == read_table_columns(spark, path)
    assert sorted(map(tuple, frame.collect())) == [(1, "a"), (3, None)]


def test_partitions_and_required_columns_are_left_to_deltas_reader(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "parted", ROWS_OF_TWO, partition_by=["city"])
    assert_left_to_delta(spark, str(tmp_path / "parted"))
    required = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("city", pa.string())])
    write_deltalake(tmp_path / "required", ROWS_OF_TWO.cast(required))
    assert_left_to_delta(spark, str(tmp_path / "required"))


@pytest.mark.parametrize(
    "properties",
    ["'delta.enableDeletionVectors' = 'true'", "'delta.columnMapping.mode' = 'name'", "'delta.enableTypeWidening' = 'true'"],
    ids=["deletion vectors", "mapped columns", "widened types"],
)
def test_what_a_protocol_may_hold_is_left_to_deltas_reader(spark: SparkSession, tmp_path: Path, properties: str) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.concat_tables([ROWS_OF_TWO, pa.table({"id": pa.array([2], pa.int32()), "city": ["b"]})]))
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    assert_left_to_delta(spark, path)


def test_many_files_are_left_to_deltas_reader(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1]}))
    add_copies_of_file(path, MOST_FILES - 1)
    assert is_read_by_path(read_table(spark, str(path)))
    add_copies_of_file(path, 1)
    frame = read_table(spark, str(path))
    assert not is_read_by_path(frame) and frame.count() == MOST_FILES + 1


def add_copies_of_file(path: Path, copies: int) -> None:
    """Commits copies of a table's first file, as if as many tasks had written one each."""
    (add,) = (line for line in (path / LOG / f"{0:020d}.json").read_text().splitlines() if '"add"' in line)
    name, version = json.loads(add)["add"]["path"], DeltaTable(path).version() + 1
    names = [f"copy-{version}-{number}.parquet" for number in range(copies)]
    for copy in names:
        shutil.copy(path / name, path / copy)
    (path / LOG / f"{version:020d}.json").write_text("".join(f"{add.replace(name, copy)}\n" for copy in names))


def test_a_table_that_is_not_there_is_said_by_delta(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException) as said:
        read_table(spark, str(tmp_path / "nowhere")).count()
    with pytest.raises(AnalysisException) as by_delta:
        read_by_delta(spark, str(tmp_path / "nowhere")).count()
    assert said.value.getCondition() == by_delta.value.getCondition()


def test_table_shapes_of_sluice_are_read_by_path(spark: SparkSession, tmp_path: Path) -> None:
    shape = table_creation.TableShape(
        schema=table_creation.parse_ddl_schema("id BIGINT, name STRING"), comment="c", statistics=("id",)
    )
    table_creation.create_table(spark, str(tmp_path / "t"), shape)
    assert is_read_by_path(read_table(spark, str(tmp_path / "t")))
