"""How many Spark jobs an increment takes: what can be counted on, where seconds cannot. Each bound is what was counted, not a goal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.conftest import Lakehouse

from sluice import open_tables
from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.flows.progress import streams
from sluice.open_tables import open_table_to_change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.flows.progress.checkpoints import Checkpoint
    from sluice.lake.workspace import Workspace
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


def count_listeners(lake: Lakehouse) -> int:
    """How many listeners Spark gives each of its events to."""
    context: Any = lake.spark._jsc
    return int(context.sc().listenerBus().listeners().size())


LAYERS = ("bronze", "silver", "gold")


def test_a_later_increment_takes_few_jobs_a_flow_and_nothing_new_none(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n2,b,1\n3,c,1\n")
    lake.run()
    for name in ("sale", "by_city"):
        first, second = reversed(DeltaTable(lake.workspace().path(name)).history()[-2:])
        assert [first["operation"], second["operation"]] == ["CREATE TABLE", "SET TBLPROPERTIES"]
        assert all(one["engineInfo"].startswith("delta-rs") for one in (first, second)), "made and marked without a job"
    most = {"bronze": 2, "silver": 3, "gold": 6}
    listeners = count_listeners(lake)
    for day in (2, 3):
        lake.land(f"sales/{day}.csv", f"id,city,amount\n1,a,{day}\n{day + 2},b,1\n")
        counted = {stage: count_jobs(lake, stage) for stage in LAYERS}
        assert {stage: jobs for stage, jobs in counted.items() if jobs > most[stage]} == {}, (day, counted)
    assert count_listeners(lake) <= listeners, "an increment of a process that is kept running leaves nothing to tell of the next"
    assert {stage: count_jobs(lake, stage) for stage in (*LAYERS, "vacuum")} == dict.fromkeys((*LAYERS, "vacuum"), 0)

    opened: list[str] = []

    def open_and_note(path: str) -> DeltaTable:
        opened.append(path)
        return open_table_to_change(path)

    monkeypatch.setattr(open_tables, "open_table_to_change", open_and_note)
    lake.run(*LAYERS)
    assert [path for path in opened if "/_sluice/" not in path] == [], "no table is opened again that is as it was"
    lake.land("sales/4.csv", "id,city,amount\n4,a,1\n")
    lake.run("bronze")
    assert lake.workspace().path("sales") not in opened, "nor one that delta-rs has written"
    DeltaTable(lake.workspace().path("sales")).alter.set_table_properties({"by": "somebody else"}, raise_if_not_exists=False)
    lake.run("bronze")
    assert lake.workspace().path("sales") in opened, "it would be seen"


def test_where_one_source_has_something_new_the_flows_of_others_start_no_stream(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rents = Source(name="rents", format="csv", path="rents", comment="Rents.", schema="id INT, city STRING, amount DOUBLE")
    rent, rents_by_city = replace(sale, name="rent", reads=("rents",)), replace(by_city, name="rents_by_city", reads=("rent",))
    of_silver = [replace(one, declared_in="shop.silver") for one in (sale, rent)]
    of_gold = [replace(one, declared_in="shop.gold") for one in (by_city, rents_by_city)]
    pipeline = Pipeline(name="shop", description="s", owner="t", layers=("shop.bronze", "shop.silver", "shop.gold"))
    lake = Lakehouse(settings, spark, build_declaration_graph(pipeline, [sales, rents, *of_silver, *of_gold]))
    started: list[str] = []
    run_stream = streams.run_stream

    def run_and_note(workspace: Workspace, frame: DataFrame, checkpoint: Checkpoint, *others: Any) -> Any:
        started.append(checkpoint.flow)
        return run_stream(workspace, frame, checkpoint, *others)

    monkeypatch.setattr(streams, "run_stream", run_and_note)
    for day in range(3):
        for folder in ("sales", "rents") if day == 0 else ("sales",):
            lake.land(f"{folder}/{day}.csv", f"id,city,amount\n{day},a,1\n")
        started.clear()
        lake.run(*LAYERS)
    assert started == ["bronze_sales", "silver_sale", "gold_by_city"]
    assert lake.rows("by_city", "city", "amount") == [("a", 3.0)] and lake.rows("rents_by_city", "amount") == [(1.0,)]
    lake.land("rents/3.csv", "id,city,amount\n3,a,1\n")
    started.clear()
    lake.run(*LAYERS)
    assert started == ["bronze_rents", "silver_rent", "gold_rents_by_city"]
    assert lake.rows("rents_by_city", "amount") == [(2.0,)]
