"""Provenance is carried through row-local transforms, and what is not row-local is refused by the table's name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sluice.errors import DeclarationError
from sluice.flows.silver.judged_rows import carry_provenance

pytestmark = pytest.mark.spark

Transform = Callable[[DataFrame], DataFrame]
SCHEMA = "k INT, v INT, tags ARRAY<STRING>, _delivery BIGINT, _row BIGINT"
ROWS = [(1, 10, ["a", "b"], 7, 70), (2, 20, [], 7, 71), (None, 30, None, 8, 80)]


@pytest.fixture(scope="module")
def bronze(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA)


ALLOWED: dict[str, tuple[Transform, set[tuple[object, ...]]]] = {
    "select": (lambda b: b.select("v"), {(10, 7, 70), (20, 7, 71), (30, 8, 80)}),
    "where, then select": (lambda b: b.where("k = 2").select("v"), {(20, 7, 71)}),
    "select, then where": (lambda b: b.select("k", "v").where("k = 2").select("v"), {(20, 7, 71)}),
    "withColumn, then drop": (
        lambda b: b.withColumn("w", F.col("v") + 1).select("w").withColumn("x", F.col("w") + 1).drop("w"),
        {(12, 7, 70), (22, 7, 71), (32, 8, 80)},
    ),
    "explode": (lambda b: b.select(F.explode("tags").alias("tag")), {("a", 7, 70), ("b", 7, 70)}),
    "explode_outer and an alias": (
        lambda b: b.alias("b").select("b.k", F.explode_outer("b.tags").alias("tag")).select("tag"),
        {("a", 7, 70), ("b", 7, 70), (None, 7, 71), (None, 8, 80)},
    ),
    "union": (
        lambda b: b.where("k = 1").select("v").union(b.where("k = 2").select((-F.col("v")).alias("w"))),
        {(10, 7, 70), (-20, 7, 71)},
    ),
    "union of other columns": (
        lambda b: b.select("v").unionByName(b.select(F.lit(1).alias("w")), allowMissingColumns=True).select("w"),
        {(None, 7, 70), (None, 7, 71), (None, 8, 80), (1, 7, 70), (1, 7, 71), (1, 8, 80)},
    ),
    "a filter within an array": (
        lambda b: b.select(F.size(F.filter("tags", lambda t: t == "a")).alias("n")),
        {(1, 7, 70), (0, 7, 71), (None, 8, 80)},
    ),
    "all names cleaned by toDF": (
        lambda b: b.toDF(*[name.lower() for name in b.columns]).select("v"),
        {(10, 7, 70), (20, 7, 71), (30, 8, 80)},
    ),
    "all names cleaned by aliases": (
        lambda b: b.select([F.col(name).alias(name.lower()) for name in b.columns]).select("v"),
        {(10, 7, 70), (20, 7, 71), (30, 8, 80)},
    ),
    "fillna": (lambda b: b.fillna(0).select("k"), {(1, 7, 70), (2, 7, 71), (0, 8, 80)}),
    "a query that is named and used twice": (
        lambda b: b.sparkSession.sql(
            "WITH x AS (SELECT * FROM {b}) SELECT v FROM x WHERE k = 1 UNION ALL SELECT v FROM x WHERE k = 2", b=b
        ),
        {(10, 7, 70), (20, 7, 71)},
    ),
    "provenance that the transform keeps itself": (
        lambda b: b.select("v", "_row", "_delivery").select("v", "_delivery", "_row"),
        {(10, 7, 70), (20, 7, 71), (30, 8, 80)},
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_row_local_transforms_carry_the_rows_they_were_made_from(bronze: DataFrame, name: str) -> None:
    transform, expected = ALLOWED[name]
    result = carry_provenance(transform(bronze), "heart_rate")
    assert result.columns[-2:] == ["_delivery", "_row"]
    assert {tuple(row) for row in result.collect()} == expected


def test_sql_carries_too(bronze: DataFrame) -> None:
    made = bronze.sparkSession.sql("SELECT v FROM (SELECT k, v FROM {bronze}) b WHERE k IS NULL", bronze=bronze)
    assert [tuple(row) for row in carry_provenance(made, "heart_rate").collect()] == [(30, 8, 80)]


REFUSED: dict[str, tuple[Transform, str]] = {
    "join": (lambda b: b.join(b.select("k").alias("o"), "k"), "a join"),
    "semi join": (lambda b: b.join(b.select("k"), "k", "left_semi"), "a join"),
    "aggregate": (lambda b: b.groupBy("k").agg(F.sum("v")), "an aggregate"),
    "order by": (lambda b: b.orderBy("v"), "ORDER BY"),
    "distinct": (lambda b: b.select("v").distinct(), "DISTINCT|an aggregate|dropDuplicates"),
    "dropDuplicates": (lambda b: b.dropDuplicates(["k"]), "dropDuplicates"),
    "window": (lambda b: b.select(F.row_number().over(Window.partitionBy("k").orderBy("v")).alias("n")), "a window function"),
    "limit": (lambda b: b.limit(1), "LIMIT"),
    "sample": (lambda b: b.sample(0.5, seed=1), "a sample"),
    "repartition": (lambda b: b.repartition(2), "repartition"),
    "intersect": (lambda b: b.select("v").intersect(b.select("v")), "more than one row"),
    "rand": (lambda b: b.withColumn("r", F.rand()), "something random"),
    "rand in a condition": (lambda b: b.where(F.rand() > 2), "something random"),
    "uuid": (lambda b: b.withColumn("u", F.expr("uuid()")), "something random"),
    "monotonically_increasing_id": (lambda b: b.select(F.monotonically_increasing_id().alias("i")), "something random"),
    "current_timestamp": (lambda b: b.withColumn("t", F.current_timestamp()), r"current_timestamp\(\)"),
    "current_date": (lambda b: b.where(F.current_date() > "2020-01-01"), r"current_date\(\)"),
    "now": (lambda b: b.selectExpr("now() AS t"), r"(now|current_timestamp)\(\)"),
    "localtimestamp": (lambda b: b.select(F.localtimestamp().alias("t")), r"localtimestamp\(\)"),
    "unix_timestamp of now": (lambda b: b.selectExpr("unix_timestamp() AS t"), r"current_timestamp\(\)"),
    "date literal": (lambda b: b.withColumn("t", F.expr("TIMESTAMP 'now'")), "TIMESTAMP 'now'"),
    "text of a date": (lambda b: b.where(F.to_date(F.lit("tomorrow")) > "2020-01-01"), "the date 'tomorrow'"),
    "current_user": (lambda b: b.selectExpr("current_user() AS u"), r"(current_)?user\(\)"),
    "a row number of its own": (lambda b: b.withColumn("_row", F.lit(0).cast("bigint")), "makes a column '_row'"),
    "a delivery of its own": (lambda b: b.select("v", F.col("v").alias("_delivery")), "makes a column '_delivery'"),
    "a delivery in capitals": (lambda b: b.select("v", F.col("v").alias("_DELIVERY")), "makes a column '_DELIVERY'"),
    "exploded into provenance": (lambda b: b.select("v", F.explode("tags").alias("_row")), "makes a column '_row'"),
    "all values replaced": (lambda b: b.replace(7, 8), "makes a column '_delivery'"),
    "provenance exchanged": (
        lambda b: b.select("v", F.col("_row").alias("_delivery"), F.col("_delivery").alias("_row")),
        "makes a column '_delivery'",
    ),
    "subquery": (
        lambda b: b.sparkSession.sql("SELECT * FROM {b} WHERE v > (SELECT avg(v) FROM {b})", b=b),
        "a subquery",
    ),
    "aggregate below a select": (lambda b: b.groupBy("k").agg(F.max("v").alias("v")).select("v"), "an aggregate"),
    "window in one branch of a union": (
        lambda b: b.select("v").union(b.select(F.sum("v").over(Window.partitionBy("k")))),
        "a window function",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_looks_at_more_than_one_row_or_at_the_clock_is_refused(bronze: DataFrame, name: str) -> None:
    transform, what = REFUSED[name]
    with pytest.raises(DeclarationError, match=f"(?s)'heart_rate'.*({what})"):
        carry_provenance(transform(bronze), "heart_rate")
