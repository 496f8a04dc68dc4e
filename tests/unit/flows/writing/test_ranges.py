"""Ranges of a batch's values: they hold every value, and let Delta leave out the files between a few late rows and the rest."""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.flows.writing.difference import apply_merge_operations
from sluice.flows.writing.ranges import (
    MOST,
    BoundingColumns,
    compute_value_ranges,
    group_into_ranges,
    limits_condition,
    range_condition_sql,
    truncation_range_condition,
)
from sluice.lake import commit_history, table_creation, table_frames
from sluice.lake.small_writes import OPERATION
from sluice.lake.table_creation import TableShape


@given(st.sets(st.integers(-1_000, 1_000), max_size=90), st.integers(1, 40))
def test_groups_hold_every_value_are_few_and_leave_out_the_widest_gaps(values: set[int], most: int) -> None:
    groups = group_into_ranges(sorted(values), most)
    assert len(groups) <= most
    assert all(any(low <= value <= high for low, high in groups) for value in values)
    assert all(low in values and high in values for low, high in groups)
    between = [after[0] - before[1] for before, after in itertools.pairwise(groups)]
    assert all(gap > 1 for gap in between)
    inside = [b - a for a, b in itertools.pairwise(sorted(values))]
    assert sorted(between, reverse=True) == sorted((gap for gap in inside if gap > 1), reverse=True)[: most - 1]


def test_a_condition_of_no_range_is_met_by_nothing_and_of_one_value_is_an_equality() -> None:
    assert range_condition_sql("a", ()) == "false"
    assert range_condition_sql("a", (("1", "1"), ("3", "5"))) == "(a = 1 OR (a >= 3 AND a <= 5))"


pytestmark = pytest.mark.spark
DAYS = [date(2026, 1, 1) + timedelta(days=day) for day in (0, 1, 2, 60, 300)]


def of(frame: DataFrame, *columns: str, listed: tuple[str, ...] = ()) -> dict[str, Any]:
    return dict(compute_value_ranges(frame, BoundingColumns(frame.schema, columns, listed)))


def test_bounds_hold_every_value_and_a_column_with_a_null_has_none(spark: SparkSession) -> None:
    rows = [(1, None, datetime(2026, 11, 1, 12, 30, 0, 5), None), (7, 2, datetime(2026, 11, 2), DAYS[0])]
    frame = spark.createDataFrame(rows, "a INT, b INT, t TIMESTAMP, d DATE")
    found = of(frame, "a", "b", "t", "d")
    assert found == {
        "a": (("1", "7"),),
        "t": (("TIMESTAMP'2026-11-01 12:30:00.000005'", "TIMESTAMP'2026-11-02 00:00:00'"),),
    }
    assert frame.where(limits_condition(found)).count() == 2


def test_days_are_listed_and_integers_only_where_they_are_few(spark: SparkSession) -> None:
    rows = [(day.year, day.month, day, datetime(day.year, day.month, day.day, 23, 59, 59, 999999)) for day in DAYS]
    frame = spark.createDataFrame(rows, "y INT, m INT, d DATE, t TIMESTAMP")
    found = of(frame, "m", "d", "t", listed=("m",))
    assert found["m"] == (("1", "1"), ("3", "3"), ("10", "10"))
    assert of(frame, "m")["m"] == (("1", "10"),)
    assert found["d"] == (
        ("DATE'2026-01-01'", "DATE'2026-01-03'"),
        ("DATE'2026-03-02'", "DATE'2026-03-02'"),
        ("DATE'2026-10-28'", "DATE'2026-10-28'"),
    )
    assert found["t"][0] == ("TIMESTAMP'2026-01-01 23:59:59.999999'", "TIMESTAMP'2026-01-03 23:59:59.999999'")
    assert found["t"][1] == ("TIMESTAMP'2026-03-02 00:00:00'", "TIMESTAMP'2026-03-02 23:59:59.999999'")
    assert frame.where(limits_condition(found)).count() == len(DAYS)
    between = spark.createDataFrame([(date(2026, 2, 1),)], "d DATE")
    assert between.where(limits_condition({"d": found["d"]})).count() == 0


def test_texts_of_partitions_are_listed_whatever_stands_in_them(spark: SparkSession) -> None:
    texts = ["it's", "a\\b", 'q"', "\\'", "a"]
    frame = spark.createDataFrame([(text,) for text in texts], "region STRING")
    found = of(frame, "region", listed=("region",))
    assert frame.where(limits_condition(found)).count() == len(texts)
    assert spark.createDataFrame([("b",), ("c",)], "region STRING").where(limits_condition(found)).count() == 0


def test_of_an_empty_frame_no_value_is_within_bounds(spark: SparkSession) -> None:
    full = spark.createDataFrame([(1, DAYS[0])], "k INT, day DATE")
    assert full.where(limits_condition(of(full.limit(0), "k", "day"))).count() == 0
    assert of(full.limit(0)) == {}


def test_days_that_python_does_not_know_are_bounded_all_the_same(spark: SparkSession) -> None:
    frame = spark.sql("SELECT CAST(d AS DATE) d, CAST(d AS TIMESTAMP) t FROM VALUES ('+12026-01-01'), ('2026-01-01') AS v(d)")
    found = of(frame, "d", "t")
    assert found["d"] == (("DATE'2026-01-01'", "DATE'+12026-01-01'"),)
    assert frame.where(limits_condition(found)).count() == 2


def test_only_the_rows_that_count_bound(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, True), (2, True), (None, False), (9, False)], "k INT, counts BOOLEAN")
    bounding = BoundingColumns(frame.schema, ("k",))
    row = frame.agg(*bounding.aggregates(F.col("counts"))).first()
    assert row is not None
    assert bounding.limits(row.asDict()) == {"k": (("1", "2"),)}


def test_bounds_of_an_expression_are_those_of_its_values(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(date(2026, month, 1),) for month in (1, 10, 11)], "day DATE")
    assert frame.where(limits_condition({"month": (("10", "12"),)}, {"month": "month(day)"})).count() == 2


def test_files_between_a_late_row_and_the_rest_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path, schema = str(tmp_path / "table"), "k INT, t TIMESTAMP, v INT"
    table_creation.create_table(
        spark, path, TableShape(schema=table_creation.parse_ddl_schema(schema), comment="", statistics=("k", "t"))
    )
    days = spark.range(0, 40, 1, 40).selectExpr(
        "CAST(1 AS INT) k", "TIMESTAMP'2026-01-01 06:00:00' + make_interval(0, 0, 0, id) t", "0 v"
    )
    days.selectExpr("k", "t", "CAST(v AS INT) v").write.format("delta").mode("append").save(path)
    late = [("U", 1, datetime(2026, 1, day, 6), 1) for day in (3, 30, 31)]
    operations = spark.createDataFrame(late, f"{OPERATION} STRING, {schema}")
    found = of(operations, "t")
    read = table_frames.read_table(spark, path).where(limits_condition(found))
    assert len(read.select("_metadata.file_path").distinct().collect()) == 3
    assert apply_merge_operations(spark, path, operations, ("k", "t"), BoundingColumns(operations.schema, ("t",))).updated == 3
    commit = commit_history.read_commit_history(path, 1)[0]
    assert int(commit["metrics"]["numTargetFilesRemoved"]) == 3
    assert table_frames.read_table(spark, path).where("v = 1").count() == 3


def test_there_are_at_most_a_few_ranges(spark: SparkSession) -> None:
    frame = spark.range(0, 400).selectExpr("date_add(DATE'2020-01-01', CAST(id * id AS INT)) d")
    assert len(of(frame, "d")["d"]) == MOST
    assert frame.where(limits_condition(of(frame, "d"))).count() == 400


def test_instants_whose_cut_value_is_in_a_range_are_near_it_and_others_are_left_out(spark: SparkSession) -> None:
    rows = spark.range(-90, 200).selectExpr("id", "timestamp_seconds(1772359200 + 60 * id) AS at")
    ten, hour = "TIMESTAMP'2026-03-01 10:00:00'", "date_trunc('hour', at)"
    near = rows.where(truncation_range_condition({"hour": ((ten, ten),)}, {"hour": hour}))
    assert {row.id for row in rows.where(f"{hour} = {ten}").collect()} == set(range(60))
    assert {row.id for row in near.collect()} == set(range(-60, 61))
