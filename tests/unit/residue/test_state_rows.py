"""Rows as Spark itself lays them out, read by their schema."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from residue.decoders import state_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = {
    "CAST(12140 AS BIGINT)": [12140],
    "CAST(-12 AS TINYINT)": [-12],
    "CAST(12140 AS DOUBLE)": [12140],
    "CAST(12140 AS FLOAT)": [12140],
    "CAST(12140.5 AS DOUBLE)": [],
    "CAST('NaN' AS DOUBLE)": [],
    "CAST(12140 AS DECIMAL(10, 0))": [12140],
    "CAST(12140 AS DECIMAL(18, 3))": [12140],
    "CAST(12140.25 AS DECIMAL(18, 3))": [],
    "CAST(12140 AS DECIMAL(38, 4))": [12140],
    "CAST(-12140 AS DECIMAL(20, 0))": [-12140],
    "'Anna'": [b"Anna"],
    "CAST('Anna' AS BINARY)": [b"Anna"],
    "array(12140L, NULL, 7L)": [12140, 7],
    "array(CAST(1 AS SMALLINT), CAST(12140 AS SMALLINT))": [1, 12140],
    "array('Anna', NULL, 'Bo')": [b"Anna", b"Bo"],
    "array(named_struct('id', 12140, 'at', 'x'))": [12140, b"x"],
    "map('Anna', array(12140L))": [b"Anna", 12140],
    "named_struct('a', named_struct('id', CAST(12140 AS DECIMAL(10, 0))))": [12140],
    "array(CAST(12140 AS DECIMAL(30, 0)))": [12140],
    "sequence(1, 130)": list(range(1, 131)),
    "CAST(NULL AS DECIMAL(10, 0))": [],
    "true": [],
    "DATE'2026-01-01'": [],
    "TIMESTAMP'2026-01-01 00:00:00'": [],
    "INTERVAL '1' DAY": [],
}


def test_each_kind_of_value_is_read_as_spark_writes_it(spark: SparkSession) -> None:
    # The rows come from memory, or a projection would be of constants: they are not laid out by Spark's writer then.
    frame = spark.sql("SELECT " + ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(KINDS))).repartition(1)
    (row,) = frame._jdf.queryExecution().executedPlan().executeCollect()
    schema = [(str(field["name"]), field["type"]) for field in json.loads(frame.schema.json())["fields"]]
    found: dict[str, list[int | bytes]] = {f"c{number}": [] for number in range(len(KINDS))}
    for name, value in state_rows.read_unsafe_row(bytes(row.getBytes()), schema):
        found[name.partition(".")[0]].append(value)
    assert dict(zip(KINDS, found.values(), strict=True)) == KINDS


def test_a_row_that_is_cut_is_not_passed_over(spark: SparkSession) -> None:
    frame = spark.sql("SELECT named_struct('id', 12140L, 'who', 'Anna') AS c, array('Anna', 'Bo') AS d").repartition(1)
    (row,) = frame._jdf.queryExecution().executedPlan().executeCollect()
    schema = [(str(field["name"]), field["type"]) for field in json.loads(frame.schema.json())["fields"]]
    whole = bytes(row.getBytes())
    assert len(list(state_rows.read_unsafe_row(whole, schema))) == 4
    for end in range(0, len(whole) - 8, 8):
        with pytest.raises((state_rows.UnreadableRow, struct.error)):
            list(state_rows.read_unsafe_row(whole[:end], schema))


@pytest.mark.parametrize("kind", ["variant", {"type": "udt"}, "geometry"])
def test_another_kind_is_not_passed_over(kind: object) -> None:
    with pytest.raises(state_rows.UnreadableRow):
        list(state_rows.read_unsafe_row(bytes(24), [("it", kind)]))
