"""The difference merge: touches only what differs, and nothing where nothing does."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.errors import SluiceError
from sluice.flows.difference import OPERATION, Changes, beside, bounds, merge, within
from sluice.lake import log, tables
from sluice.lake.tables import Shape

pytestmark = pytest.mark.spark

SCHEMA = "k INT, day DATE, v INT"
KEYS = ("k", "day")
DAY = date(2026, 11, 1)
ROWS = [(1, DAY, 10), (2, DAY, 20), (None, DAY, 30), (3, None, None)]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    tables.create(spark, path, Shape(schema=tables.columns(SCHEMA), comment="", statistics=KEYS))
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.format("delta").mode("append").save(path)
    return path


def operations(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), f"{OPERATION} STRING, {SCHEMA}")


def held(spark: SparkSession, path: str) -> set[tuple[object, ...]]:
    return {tuple(row) for row in tables.read(spark, path).collect()}


def changes(spark: SparkSession, path: str, version: int) -> set[tuple[object, ...]]:
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(path)
    return {(row._change_type, row.k, row.v) for row in feed.collect()}


def test_no_difference_is_no_new_version(spark: SparkSession, table: str) -> None:
    before = log.version(table)
    assert merge(spark, table, operations(spark), KEYS, KEYS) == Changes()
    assert log.version(table) == before


def test_inserts_updates_and_deletes_go_where_they_should_null_keys_included(spark: SparkSession, table: str) -> None:
    before = log.version(table)
    wanted = operations(
        spark, ("U", None, DAY, 31), ("D", 3, None, None), ("I", 4, None, 40), ("I", None, None, 50), ("U", 1, DAY, None)
    )
    assert merge(spark, table, wanted, KEYS, KEYS) == Changes(inserted=2, updated=2, deleted=1)
    assert held(spark, table) == {(1, DAY, None), (2, DAY, 20), (None, DAY, 31), (4, None, 40), (None, None, 50)}
    assert log.version(table) == before + 1


def test_only_changed_rows_are_in_the_change_feed(spark: SparkSession, table: str) -> None:
    merge(spark, table, operations(spark, ("U", 1, DAY, 11), ("D", None, DAY, 30), ("I", 5, DAY, 50)), KEYS, KEYS)
    assert changes(spark, table, 2) == {
        ("update_preimage", 1, 10),
        ("update_postimage", 1, 11),
        ("delete", None, 30),
        ("insert", 5, 50),
    }


@pytest.mark.parametrize("key", [1, None])
def test_a_key_that_comes_twice_is_refused_and_nothing_is_written(spark: SparkSession, table: str, key: int | None) -> None:
    before = log.version(table)
    with pytest.raises(SluiceError, match=r"^1 rows have a key \(k, day\) that another row has too") as caught:
        merge(spark, table, operations(spark, ("I", key, None, 71), ("I", key, None, 72)), KEYS, KEYS)
    assert "71" not in str(caught.value)
    assert "72" not in str(caught.value)
    assert log.version(table) == before


def test_a_conflict_is_refused_with_the_callers_words_and_nothing_is_written(spark: SparkSession, table: str) -> None:
    before = log.version(table)
    with pytest.raises(SluiceError, match=r"^A key came in two files\. 1 rows"):
        merge(spark, table, operations(spark, ("X", 1, DAY, 1), ("I", 8, DAY, 1)), KEYS, KEYS, "A key came in two files.")
    assert log.version(table) == before


def test_a_file_that_no_change_can_be_in_is_not_rewritten(spark: SparkSession, table: str) -> None:
    spark.createDataFrame([(9, date(2027, 1, 1), 90)], SCHEMA).write.format("delta").mode("append").save(table)
    merge(spark, table, operations(spark, ("U", 9, date(2027, 1, 1), 91)), KEYS, KEYS)
    assert log.commits(table, 1)[0]["metrics"]["numTargetFilesRemoved"] in ("1", 1)
    assert "2027-01-01" in str(log.commits(table, 1)[0]["parameters"])


def test_columns_that_do_not_bound_leave_no_value_in_the_history(spark: SparkSession, table: str) -> None:
    merge(spark, table, operations(spark, ("U", 1, DAY, 11)), KEYS, ())
    assert "2026" not in str(log.commits(table, 1)[0]["parameters"])


def test_rows_beside_each_other_meet_by_null_keys_too(spark: SparkSession) -> None:
    new = spark.createDataFrame([(1, 10), (None, 11), (3, 12)], "k INT, v INT")
    old = spark.createDataFrame([(1, 10), (None, 20), (4, 21)], "k INT, v INT")
    both = beside(new, old, ("k",)).select(F.col("new.v"), F.col("old.v"))
    assert {tuple(row) for row in both.collect()} == {(10, 10), (11, 20), (12, None), (None, 21)}


def test_bounds_hold_every_value_and_a_column_with_a_null_has_none(spark: SparkSession) -> None:
    rows = [(1, None, datetime(2026, 11, 1, 12, 30, 0, 5)), (7, 2, datetime(2026, 11, 2))]
    frame = spark.createDataFrame(rows, "a INT, b INT, t TIMESTAMP")
    found = bounds(frame, ("a", "b", "t"))
    assert found == {
        "a": "BETWEEN 1 AND 7",
        "t": "BETWEEN TIMESTAMP'2026-11-01 12:30:00.000005' AND TIMESTAMP'2026-11-02 00:00:00'",
    }
    assert frame.where(within(found)).count() == 2


def test_of_an_empty_frame_no_value_is_within_bounds(spark: SparkSession, table: str) -> None:
    found = bounds(spark.createDataFrame([], SCHEMA), ("k", "day"))
    assert tables.read(spark, table).where(within(found)).count() == 0
    assert bounds(spark.createDataFrame([], SCHEMA), ()) == {}


def test_bounds_of_an_expression_are_those_of_its_values(spark: SparkSession, table: str) -> None:
    found = tables.read(spark, table).where(within({"month": "BETWEEN 10 AND 12"}, {"month": "month(day)"}))
    assert found.count() == 3
