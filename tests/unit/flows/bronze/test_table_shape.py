"""Columns of bronze in another type: what does not fit is rescued as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sluice.flows.bronze.table_shape import cast_or_rescue_columns
from sluice.lake import table_creation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_instant_that_is_no_date_is_rescued_with_its_microseconds(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT TIMESTAMP '2026-11-20 10:00:00.123456Z' AS at, TIMESTAMP_NTZ '2026-11-20 10:00:00.123456' AS local, "
        "'{\"x\":1}' AS _rescued_data"
    )
    (row,) = cast_or_rescue_columns(rows, table_creation.parse_ddl_schema("at DATE, local DATE, _rescued_data STRING")).collect()
    assert (row.at, row.local) == (None, None)
    assert json.loads(row._rescued_data) == {
        "x": 1,
        "at": "2026-11-20T10:00:00.123456Z",
        "local": "2026-11-20T10:00:00.123456",
    }


def test_a_map_beside_what_grows_keeps_its_values(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT map('a', 1) AS counts, named_struct('n', 1, 'm', map('b', TIMESTAMP '2026-11-20 10:00:00.123456Z')) AS visit, "
        "CAST(NULL AS STRING) AS _rescued_data"
    )
    wider = "counts MAP<STRING, BIGINT>, visit STRUCT<n: BIGINT, m: MAP<STRING, TIMESTAMP>>, _rescued_data STRING"
    (row,) = cast_or_rescue_columns(rows, table_creation.parse_ddl_schema(wider)).collect()
    assert row.counts == {"a": 1} and row.visit.n == 1 and set(row.visit.m) == {"b"} and row._rescued_data is None
