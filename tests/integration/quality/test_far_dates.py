"""A date beyond the year 9999, which Python cannot hold: freshness, a replay and the upkeep take it as Spark does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conftest import Lakehouse

from sluice.declare import F, Pipeline, Source, expect_fresh, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.quality.table_expectations import Fresh
from sluice.quality.whole_table import WholeTable, evaluate_table_rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="events", description="Events.", owner="tests", layers=("events.bronze", __name__))
LAYERS = ("bronze", __name__.rsplit(".", 1)[-1])


def declared(factor: int) -> Graph:
    source = Source(name="events", schema="id BIGINT, day STRING", dated_by="try_cast(day AS DATE)")

    @table(reads="events", keys="id", zorder_by="day")
    @expect_fresh("recent", "day", within="2 days")
    def event(events: DataFrame) -> DataFrame:
        """An event."""
        return events.select((F.col("id") * factor).alias("id"), F.col("day").try_cast("date").alias("day"))

    return build_declaration_graph(PIPELINE, [source, event])


def test_a_far_date_ends_no_run(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, declared(1))
    lake.land("events/1.json", '{"id": 1, "day": "20201-03-04"}\n{"id": 2, "day": "2026-11-20"}\n')
    lake.run(*LAYERS)
    lake.land("events/2.json", '{"id": 3, "day": "2026-11-21"}\n')
    lake.run(*LAYERS)
    path = lake.workspace().path("event")
    assert spark.read.format("delta").load(path).where("day > '9999-12-31'").count() == 1
    assert evaluate_table_rule(Fresh(name="recent", column="day", within="2 days"), WholeTable(spark, path)).met
    lake.run("optimize")
    lake.graph = declared(10)
    lake.replay("0001-01-01", "9999-12-30")
    assert lake.rows("event", "id") == [(1,), (20,), (30,)], "the far row is in no interval of a replay"
