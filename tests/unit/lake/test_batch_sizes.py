"""Rows whose number is known are collected in one pass, and no large one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
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
        rows = some.selectExpr(long)
        assert collect_few_rows(rows, 1, 10_000) == rows.toArrow() and collect_few_rows(rows, 2, 10_000) is None
    assert collect_few_rows(some.selectExpr("named_struct('n', 1) AS s"), 1, 10_000) is None, "its NULL could not be brought"
