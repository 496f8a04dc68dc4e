"""A table read by the paths of its files is the table that Delta's reader reads; what paths do not say is left to Delta's reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from sluice.lake import tables
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


@pytest.mark.parametrize("folder", ["plain", "with space", "Ünïcode=1", "_hidden"])
def test_a_small_table_is_read_by_its_files_with_every_value_and_column_as_delta_reads_it(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    path = make_table(spark, tmp_path / folder)
    assert is_read_by_path(read_table(spark, path)) and read_table(spark, path).schema == read_by_delta(spark, path).schema
    for _ in range(2):
        spark.sql(f"INSERT INTO delta.`{path}` {ROWS}")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    for version in (None, 0, 1, 2):
        by_path, by_delta = read_table(spark, path, version), read_by_delta(spark, path, version)
        assert is_read_by_path(by_path) and by_path.schema == by_delta.schema
        assert same_rows(by_path, by_delta)
    assert read_table_columns(spark, path) == read_by_delta(spark, path).schema


def test_a_folder_whose_name_delta_rs_takes_for_an_encoded_one_is_read_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    for folder in ("per%20cent", "a[b]c"):
        path = make_table(spark, tmp_path / folder, "id INT")
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (1)")
        assert read_table(spark, path).collect() == [(1,)]


def test_a_column_that_came_later_is_null_in_older_files(spark: SparkSession, tmp_path: Path) -> None:
    path = make_table(spark, tmp_path / "t", "id INT")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1)")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (name STRING)")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (2, 'b')")
    frame = read_table(spark, path)
    assert is_read_by_path(frame) and sorted(map(tuple, frame.collect())) == [(1, None), (2, "b")]


@pytest.mark.parametrize(
    ("columns", "rest"),
    [
        ("id INT, city STRING", "PARTITIONED BY (city)"),
        ("id INT NOT NULL, city STRING", ""),
        ("id INT, city STRING", "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"),
        ("id INT, city STRING", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"),
        ("id INT, city STRING", "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"),
    ],
    ids=["partitions", "required column", "deletion vectors", "mapped columns", "widened types"],
)
def test_what_paths_do_not_say_is_left_to_deltas_reader(spark: SparkSession, tmp_path: Path, columns: str, rest: str) -> None:
    path = make_table(spark, tmp_path / "t", columns, rest)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    frame = read_table(spark, path)
    assert not is_read_by_path(frame) and frame.schema == read_by_delta(spark, path).schema == read_table_columns(spark, path)
    assert sorted(map(tuple, frame.collect())) == [(1, "a"), (3, None)]


def test_many_files_are_left_to_deltas_reader(spark: SparkSession, tmp_path: Path) -> None:
    path = make_table(spark, tmp_path / "t", "id BIGINT")
    spark.range(MOST_FILES + 1).repartition(MOST_FILES + 1, "id").write.format("delta").mode("append").save(path)
    files = spark.read.format("delta").load(path).inputFiles()
    frame = read_table(spark, path)
    assert is_read_by_path(frame) == (len(files) <= MOST_FILES) and frame.count() == MOST_FILES + 1


def test_a_table_that_is_not_there_is_said_by_delta(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException) as said:
        read_table(spark, str(tmp_path / "nowhere")).count()
    with pytest.raises(AnalysisException) as by_delta:
        read_by_delta(spark, str(tmp_path / "nowhere")).count()
    assert said.value.getCondition() == by_delta.value.getCondition()


def test_table_shapes_of_sluice_are_read_by_path(spark: SparkSession, tmp_path: Path) -> None:
    shape = tables.TableShape(schema=tables.parse_ddl_schema("id BIGINT, name STRING"), comment="c", statistics=("id",))
    tables.create_table(spark, str(tmp_path / "t"), shape)
    assert is_read_by_path(read_table(spark, str(tmp_path / "t")))
