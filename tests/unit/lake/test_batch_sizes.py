"""Rows whose number is known are collected in one pass, and no large one is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.lake.batch_sizes import collect_few_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "i INT, t STRING, at TIMESTAMP, day DATE, price DECIMAL(38, 18), b BINARY, tags ARRAY<STRING>, nested STRUCT<a: INT, b: STRING>"
ROWS = """SELECT 1, 'a', TIMESTAMP'0001-01-01 00:00:00', DATE'9999-12-31', 1.5, X'00', array('x', NULL), named_struct('a', 1, 'b', NULL)
    UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"""


def test_few_rows_come_as_they_are_and_none_where_one_takes_more_than_its_share(spark: SparkSession) -> None:
    wanted = StructType.fromDDL(COLUMNS)
    some = spark.sql(ROWS).toDF(*wanted.names).to(wanted)
    for rows in (some, some.where("false")):
        assert collect_few_rows(rows, 2, 10_000) == rows.toArrow()
    for long in ("repeat(t, 6000) AS t", "transform(tags, tag -> repeat(tag, 1500)) AS tags"):
        rows = some.where("i = 1").selectExpr(long)
        assert collect_few_rows(rows, 1, 10_000) == rows.toArrow() and collect_few_rows(rows, 2, 10_000) is None
    assert collect_few_rows(some.selectExpr("named_struct('n', 1) AS s"), 1, 10_000) is None, "its NULL could not be brought"


def test_more_rows_than_there_can_be_are_not_brought_and_the_look_at_them_is_no_further_job(spark: SparkSession) -> None:
    scheduler = cast("Any", spark._jsc).sc().dagScheduler()

    def collect_and_count_jobs(collect: Callable[[], pa.Table | None]) -> tuple[int | None, int]:
        before = scheduler.nextJobId()
        found = collect()
        return None if found is None else found.num_rows, scheduler.nextJobId() - before

    for rows in (
        spark.range(0, 1000, 1, 4),
        spark.range(0, 1000, 1, 1),
        spark.range(0, 1000, 1, 4).groupBy("id").agg({"id": "max"}),
    ):
        nullable = rows.select(F.nullif(F.col("id"), F.lit(-1)).alias("id"))
        expected, jobs = collect_and_count_jobs(nullable.toArrow)
        assert expected == 1000
        assert collect_and_count_jobs(functools.partial(collect_few_rows, nullable, 1000, 10**6)) == (1000, jobs)
        assert collect_and_count_jobs(functools.partial(collect_few_rows, nullable, 999, 10**6)) == (None, jobs)
        assert collect_and_count_jobs(functools.partial(collect_few_rows, nullable, 0, 10**6)) == (None, jobs)
