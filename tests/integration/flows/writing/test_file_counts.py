"""A write makes as many files as its rows' bytes need, however many tasks made the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from sluice.lake import commits
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.table_creation import TableShape, create_table, parse_ddl_schema, replace_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

LARGE = 10**12
"""Bytes that no single file holds."""


def make_rows(spark: SparkSession, tasks: int = 8) -> DataFrame:
    return spark.range(0, 400, 1, tasks).selectExpr("id % 4 AS _delivery", "CONCAT('v', id % 5) AS city")


def count_files(path: str) -> int:
    return len(DeltaTable(path).file_uris())


@pytest.fixture(params=[(), ("city",)], ids=["whole", "partitioned"])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    create_table(spark, path, shape_of(request.param))
    return path


def shape_of(partition_by: tuple[str, ...]) -> TableShape:
    schema = parse_ddl_schema("_delivery BIGINT, city STRING")
    return TableShape(schema=schema, comment="Rows.", statistics=("_delivery",), retain="7 days", partition_by=partition_by)


def test_rows_of_many_tasks_make_one_file_for_each_partition(spark: SparkSession, table: str) -> None:
    expected = 5 if DeltaTable(table).metadata().partition_columns else 1
    commits.append_rows(make_rows(spark), table, None, RowsSize(400_000, 10_000))
    assert count_files(table) == expected
    commits.replace_rows_of_deliveries(make_rows(spark), table, list(range(4)), RowsSize(400_000, 10_000))
    assert count_files(table) == expected
    assert DeltaTable(table).count() == 400


def test_many_rows_of_a_table_without_partitions_stay_with_their_tasks(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    create_table(spark, path, shape_of(()))
    commits.append_rows(make_rows(spark), path, None, RowsSize(LARGE, LARGE))
    assert count_files(path) == 8


def test_a_table_that_is_replaced_has_one_file_for_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    create_table(spark, path, shape_of(("city",)))
    replace_table(make_rows(spark), path, shape_of(("city",)))
    assert count_files(path) == 5
    assert "delta.autoOptimize.optimizeWrite" not in DeltaTable(path).metadata().configuration
