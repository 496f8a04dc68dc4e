"""A view over tables without a row is its transform over no rows, as over any others, though its stream has no batch then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

LAYERS = ("shop.bronze", "shop.silver", "shop.gold")
EVENTS = Source(name="events", schema="id BIGINT, level STRING")


@table(reads="events", keys="id")
def error(events: DataFrame) -> DataFrame:
    """What went wrong."""
    return events.where("level = 'error'").select("id", "level")


@materialized_view(reads="error", keys="scope")
def total(error: DataFrame) -> DataFrame:
    """How much went wrong."""
    return error.agg(F.count("*").alias("n")).select(F.lit("all").alias("scope"), "n")


def doubled(error: DataFrame) -> DataFrame:
    """How much went wrong, and one more."""
    return error.agg((F.count("*") + 1).alias("n")).select(F.lit("all").alias("scope"), "n")


def declaring(view: object = total) -> Graph:
    gold = replace(view, declared_in="shop.gold")  # type: ignore[type-var]
    pipeline = Pipeline(name="shop", description="A shop.", owner="tests", layers=LAYERS)
    return build_declaration_graph(pipeline, [EVENTS, replace(error, declared_in="shop.silver"), gold])


def waits(lake: Lakehouse) -> bool:
    flow = lag.measure_flow_lag(PipelineBooks(lake.settings, lake.graph), lake.graph["total"])
    return bool(flow.anew or flow.waits)


def follow(lake: Lakehouse, delivery: int, *rows: tuple[int, str]) -> None:
    """Put a delivery into bronze and run the layers above it."""
    append_delivery(lake.workspace(), EVENTS, delivery, rows)
    lake.run("silver", "gold")


@pytest.mark.thorough(beside="integration/flows/gold/test_view_keys.py")
def test_a_view_of_no_rows_is_computed_recomputed_and_followed(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, declaring())
    follow(lake, 1, (1, "info"))
    assert lake.rows("error") == [] and lake.rows("total") == [("all", 0)]
    assert not waits(lake)
    versions = lake.versions()
    lake.run("gold")
    assert lake.versions() == versions

    lake.graph = declaring(replace(total, function=doubled))
    assert waits(lake)
    assert lake.run("gold")["total"].recomputed == "full: its transform changed"
    assert lake.rows("total") == [("all", 1)] and not waits(lake)
    spark.sql(f"DELETE FROM delta.`{lake.workspace().path('total')}`")
    lake.run("gold", mode="refresh", tables=["total"])
    assert lake.rows("total") == [("all", 1)] and not waits(lake)

    follow(lake, 2, (2, "error"), (3, "error"))
    assert lake.rows("total") == [("all", 3)] and not waits(lake), "from where it was, by its stream"
