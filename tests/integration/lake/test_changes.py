"""`sluice changes` reads a table that Spark wrote as Spark does, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.commands import use_roots_of

from sluice.cli import main
from sluice.lake import table_creation
from sluice.lake.table_creation import TableShape
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

COLUMNS = "id BIGINT, day DATE, s STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, INT>, price DECIMAL(10, 2), t TIMESTAMP"


def rows(spark: SparkSession, first: int, end: int, value: int) -> DataFrame:
    return spark.range(first, end).selectExpr(
        "id",
        "date'2026-01-01' + int(id % 2) AS day",
        f"named_struct('a', int(id), 'b', IF(id % 3 = 0, NULL, '{value}')) AS s",
        f"array(named_struct('x', {value})) AS l",
        f"map('k', {value}) AS m",
        "CAST(1.25 AS DECIMAL(10, 2)) AS price",
        "timestamp'2026-01-01 10:00:00.123456' AS t",
    )


def asked(capsys: pytest.CaptureFixture[str]) -> Counter[tuple[Any, ...]]:
    with pytest.raises(SystemExit) as ended:
        main(("changes", "gym.heart_rate", "--from-version", "0", "--limit", "100", "--json"))
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    answer = json.loads(printed.out.splitlines()[-1])
    return Counter(
        (row["_commit_version"], row["_change_type"], row["id"], row["day"], row["s"]["b"], *row["m"][0], row["price"], row["t"])
        for row in answer["rows"]
    )


@pytest.mark.spark
def test_changes_are_what_spark_reads_of_nested_and_partitioned_and_widened_tables(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_roots_of(monkeypatch, settings)
    path = PipelineRecords(settings, "gym").table_path("silver", "heart_rate")
    shape = TableShape(schema=table_creation.parse_ddl_schema(COLUMNS), comment="", statistics=("id",), partition_by=("day",))
    table_creation.create_table(spark, path, shape)
    rows(spark, 0, 4, 1).write.format("delta").mode("append").save(path)
    target = DeltaTable.forPath(spark, path).alias("t")
    merging = target.merge(rows(spark, 3, 6, 2).alias("s"), "t.id <=> s.id")
    merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (more STRING)")
    target.delete("id = 1")
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(path)
    values = feed.selectExpr(
        *("_commit_version", "_change_type", "id", "string(day)", "s.b", "'k'", "m['k']", "string(price)"),
        "date_format(t, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS+00:00\")",
    )
    expected = Counter(tuple(row) for row in values.collect())
    assert len(expected) == 9
    assert asked(capsys) == expected
