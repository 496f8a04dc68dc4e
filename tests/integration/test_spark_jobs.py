"""How many Spark jobs an increment takes: what can be counted on, where seconds cannot. Each bound is what was counted, not a goal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.conftest import Lakehouse

from sluice import delta_log
from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.delta_log import open_table_to_change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

sales = Source(name="sales", format="csv", path="sales", comment="Sales.", schema="id INT, city STRING, amount DOUBLE")


@table(reads="sales", keys="id")
def sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "city", "amount")


@materialized_view(reads="sale", keys="city", recompute="keys")
def by_city(sale: DataFrame) -> DataFrame:
    """Sales of a city."""
    return sale.groupBy("city").agg(F.sum("amount").alias("amount"))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    declared = [sales, replace(sale, declared_in="shop.silver"), replace(by_city, declared_in="shop.gold")]
    pipeline = Pipeline(name="shop", description="s", owner="t", layers=("shop.bronze", "shop.silver", "shop.gold"))
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, declared))


def count_jobs(lake: Lakehouse, *stages: str) -> int:
    """How many Spark jobs begin while these stages run."""
    jvm: Any = lake.spark._jsc
    scheduler = jvm.sc().dagScheduler()
    before = scheduler.nextJobId()
    lake.run(*stages)
    return int(scheduler.nextJobId() - before)


LAYERS = ("bronze", "silver", "gold")


def test_a_later_increment_takes_few_jobs_a_flow_and_nothing_new_none(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n2,b,1\n3,c,1\n")
    lake.run()
    counted: dict[str, int] = {}
    for day in (2, 3):
        lake.land(f"sales/{day}.csv", f"id,city,amount\n1,a,{day}\n{day + 2},b,1\n")
        counted = {stage: count_jobs(lake, stage) for stage in LAYERS}
    most = {"bronze": 4, "silver": 6, "gold": 7}
    assert {stage: jobs for stage, jobs in counted.items() if jobs > most[stage]} == {}, counted
    assert {stage: count_jobs(lake, stage) for stage in (*LAYERS, "vacuum")} == dict.fromkeys((*LAYERS, "vacuum"), 0)

    opened: list[str] = []

    def open_and_note(path: str) -> DeltaTable:
        opened.append(path)
        return open_table_to_change(path)

    monkeypatch.setattr(delta_log, "open_table_to_change", open_and_note)
    lake.run(*LAYERS)
    assert [path for path in opened if "/_sluice/" not in path] == [], "no table is opened again that is as it was"
    lake.land("sales/4.csv", "id,city,amount\n4,a,1\n")
    lake.run("bronze")
    assert lake.workspace().path("sales") in opened, "it would be seen"
