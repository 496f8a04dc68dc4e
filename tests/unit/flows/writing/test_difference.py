"""The difference merge: touches only what differs, and nothing where nothing does."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.errors import SluiceError
from sluice.flows.writing import difference
from sluice.flows.writing.difference import join_old_and_new
from sluice.flows.writing.ranges import BoundingColumns
from sluice.lake import commit_history, log, small_writes, table_creation, table_frames
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.flow_report import MergeCounts
from sluice.lake.small_writes import OPERATION
from sluice.lake.table_creation import TableShape

pytestmark = pytest.mark.spark

SCHEMA = "k INT, day DATE, v INT"
KEYS = ("k", "day")
COLUMNS = StructType().add("k", "integer").add("day", "date").add("v", "integer")
BY = BoundingColumns(COLUMNS, KEYS)
DAY = date(2026, 11, 1)
ROWS = [(1, DAY, 10), (2, DAY, 20), (None, DAY, 30), (3, None, None)]


@pytest.fixture(autouse=True, params=["delta-rs", "delta-rs, few rows known before", "Spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What merges: a merge as small as these goes through delta-rs, and no row is few enough where none is allowed."""
    if request.param == "Spark":
        monkeypatch.setattr(small_writes, "MOST_ROWS", 0)
    if request.param.endswith("before"):
        monkeypatch.setattr(difference, "_summarize_operations", None)  # they are collected in one pass, and no other one is made
        monkeypatch.setitem(KNOWN, "at_most", RowsSize(5))
    return str(request.param).partition(",")[0]


KNOWN: dict[str, RowsSize] = {}
"""What the merge is told of the operations before."""


def merge(spark: SparkSession, path: str, rows: DataFrame, by: BoundingColumns, conflict: str = "") -> MergeCounts:
    return difference.apply_merge_operations(spark, path, rows, KEYS, by, conflict, at_most=KNOWN.get("at_most"))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    table_creation.create_table(
        spark, path, TableShape(schema=table_creation.parse_ddl_schema(SCHEMA), comment="", statistics=KEYS)
    )
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.format("delta").mode("append").save(path)
    return path


def operations(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), f"{OPERATION} STRING, {SCHEMA}")


def held(spark: SparkSession, path: str) -> set[tuple[object, ...]]:
    return {tuple(row) for row in table_frames.read_table(spark, path).collect()}


def changes(spark: SparkSession, path: str, version: int) -> set[tuple[object, ...]]:
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(path)
    return {(row._change_type, row.k, row.v) for row in feed.collect()}


def test_no_difference_is_no_new_version(spark: SparkSession, table: str) -> None:
    before = log.latest_table_version(table)
    assert merge(spark, table, operations(spark), BY) == MergeCounts()
    assert log.latest_table_version(table) == before


def test_inserts_updates_and_deletes_go_where_they_should_null_keys_included(spark: SparkSession, table: str, way: str) -> None:
    before = log.latest_table_version(table)
    wanted = operations(
        spark, ("U", None, DAY, 31), ("D", 3, None, None), ("I", 4, None, 40), ("I", None, None, 50), ("U", 1, DAY, None)
    )
    assert merge(spark, table, wanted, BY) == MergeCounts(inserted=2, updated=2, deleted=1)
    assert held(spark, table) == {(1, DAY, None), (2, DAY, 20), (None, DAY, 31), (4, None, 40), (None, None, 50)}
    assert log.latest_table_version(table) == before + 1 and commit_history.summarize_new_versions(table, before).writers == way


def test_only_changed_rows_are_in_the_change_feed(spark: SparkSession, table: str) -> None:
    merge(spark, table, operations(spark, ("U", 1, DAY, 11), ("D", None, DAY, 30), ("I", 5, DAY, 50)), BY)
    assert changes(spark, table, 2) == {
        ("update_preimage", 1, 10),
        ("update_postimage", 1, 11),
        ("delete", None, 30),
        ("insert", 5, 50),
    }


@pytest.mark.parametrize("key", [1, None])
def test_a_key_that_comes_twice_is_refused_and_nothing_is_written(spark: SparkSession, table: str, key: int | None) -> None:
    before = log.latest_table_version(table)
    with pytest.raises(SluiceError, match=r"^1 row has a key \(k, day\) that another row has too") as caught:
        merge(spark, table, operations(spark, ("I", key, None, 71), ("I", key, None, 72)), BY)
    assert "71" not in str(caught.value)
    assert "72" not in str(caught.value)
    assert log.latest_table_version(table) == before


def test_a_conflict_is_refused_with_the_callers_words_and_nothing_is_written(spark: SparkSession, table: str) -> None:
    before = log.latest_table_version(table)
    with pytest.raises(SluiceError, match=r"^A key came in two files\. 1 row is"):
        merge(spark, table, operations(spark, ("X", 1, DAY, 1), ("I", 8, DAY, 1)), BY, "A key came in two files.")
    assert log.latest_table_version(table) == before


def test_a_file_that_no_change_can_be_in_is_not_rewritten(spark: SparkSession, table: str, way: str) -> None:
    spark.createDataFrame([(9, date(2027, 1, 1), 90)], SCHEMA).write.format("delta").mode("append").save(table)
    merge(spark, table, operations(spark, ("U", 9, date(2027, 1, 1), 91)), BY)
    assert commit_history.read_commit_history(table, 1)[0]["metrics"]["numTargetFilesRemoved"] in ("1", 1)
    bound = {"Spark": "2027-01-01", "delta-rs": "k = 9"}[way]
    assert bound in str(commit_history.read_commit_history(table, 1)[0]["parameters"])


def test_columns_that_do_not_bound_leave_no_value_in_the_history(spark: SparkSession, table: str) -> None:
    merge(spark, table, operations(spark, ("U", 1, DAY, 11)), BoundingColumns(COLUMNS, ()))
    parameters = str(commit_history.read_commit_history(table, 1)[0]["parameters"])
    # Spark numbers columns, k#2026, on and on for as long as its session lives.
    assert "2026" not in re.sub(r"#\d+", "", parameters)


def test_rows_beside_each_other_meet_by_null_keys_too(spark: SparkSession) -> None:
    new = spark.createDataFrame([(1, 10), (None, 11), (3, 12)], "k INT, v INT")
    old = spark.createDataFrame([(1, 10), (None, 20), (4, 21)], "k INT, v INT")
    both = join_old_and_new(new, old, ("k",)).select(F.col("new.v"), F.col("old.v"))
    assert {tuple(row) for row in both.collect()} == {(10, 10), (11, 20), (12, None), (None, 21)}


def test_rows_whose_columns_stand_in_another_order_meet_as_well(spark: SparkSession) -> None:
    """A column that the transform gives since yesterday stands last in the table."""
    new = spark.createDataFrame([(1, "x", 10)], "k INT, later STRING, v INT")
    old = spark.createDataFrame([(1, 10, "y"), (2, 20, "z")], "k INT, v INT, later STRING")
    both = join_old_and_new(new, old, ("k",)).select(F.coalesce("new", "old").alias("row")).select("row.*")
    assert {(row.k, row.later, row.v) for row in both.collect()} == {(1, "x", 10), (2, "z", 20)}
