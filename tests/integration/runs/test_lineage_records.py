"""Real runs record where columns come from and send events of it: names and counts, no value, no condition, nobody."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse, settings_at

from sluice.cli.monitoring import status
from sluice.cli.monitoring.metrics import collect_numbers, format_metrics
from sluice.cli.monitoring.report import render_report
from sluice.column_origins import Origin, TableOrigins
from sluice.declare import F, Pipeline, Source, expect, materialized_view, table, treat, view
from sluice.declare.assembly import loading
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.ingest.deliveries.landed_file import read_file_state
from sluice.locations import is_on_disk, locate
from sluice.runs import stage_run
from sluice.runs.execution import stages
from sluice.runs.job import JobRequest
from sluice.runs.run_ledger import read_run_ledger
from sluice.runs.status.column_lineage_record import list_first_columns, read_column_lineage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.on_store]

PERSON, BANNED = "ada.lovelace@example.org", "mallory-the-banned"
"""A value of a personal column, and a literal of a transform's filter and of an expectation."""

ORDERS = Source(name="orders", schema="who STRING, at TIMESTAMP, spent INT", subject="who")


@table(reads="orders", keys=("who", "at"), subject="who", personal={"who": None, "mark": treat.truncate(1)})
@expect("allowed", f"mark <> '{BANNED}'")
def order(orders: DataFrame) -> DataFrame:
    return orders.where(F.col("who") != BANNED).select("who", F.col("who").alias("mark"), "at", "spent")


@materialized_view(reads="order", keys="day")
def spending(order: DataFrame) -> DataFrame:
    return order.groupBy(F.to_date("at").alias("day")).agg(F.sum("spent").alias("spent"))


@view(reads="order")
def large_order(order: DataFrame) -> DataFrame:
    return order.where("spent > 4").select("at", (F.col("spent") * 2).alias("twice"))


@view(reads=("large_order", "spending"))
def large_day(large_order: DataFrame, spending: DataFrame) -> DataFrame:
    return large_order.join(spending, F.to_date("at") == F.col("day")).select("day", "twice")


@materialized_view(reads="large_day", keys="day")
def largest(large_day: DataFrame) -> DataFrame:
    return large_day.groupBy("day").agg(F.max("twice").alias("twice"))


def origins_of(found: TableOrigins, column: str) -> list[Origin]:
    return [origin for one in found.columns if one.name == column for origin in one.origins]


def land_and_run(lake: Lakehouse, file: str, run: str) -> None:
    if file:
        row = {"who": PERSON, "at": f"1987-03-{20 + int(run)} 10:00:00", "spent": 5}
        lake.land(f"orders/{file}", json.dumps(row) + "\n" + json.dumps(row)[:-1] + "\n")  # the latter is no JSON
    for stage in lake.graph.pipeline.layer_names:

        def work(stage: str = stage) -> Any:
            return stages.run_pipeline_stage(lake.workspace(run=run), stage)

        stage_run.record_stage_run(lake.workspace(run=run), JobRequest("shop", stage, run=run), work)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """After a first run."""
    pipeline = Pipeline(name="shop", description="Tests.", owner="tests", layers=("shop.bronze", __name__))
    lake = Lakehouse(
        replace(settings_at(tmp_path_factory.mktemp("lineage")), openlineage_file=True),
        spark,
        build_declaration_graph(pipeline, [ORDERS, order, spending, large_order, large_day, largest]),
    )
    land_and_run(lake, "1.jsonl", "1")
    return lake


def test_runs_leave_lineage_and_events_with_nothing_of_anybody_in_them(shop: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    # This pipeline has no folder of its own by which commands would find it.
    monkeypatch.setattr(loading, "load_pipeline_declaration", lambda *_: replace(shop.graph.pipeline, layers=()))
    monkeypatch.setattr(loading, "build_declaration_graph", lambda *_, **__: shop.graph)
    known = read_column_lineage(shop.records)
    assert set(known) == {"orders", "order", "spending", "large_order", "large_day", "largest"}
    assert origins_of(known["large_order"], "twice") == [Origin("order", "spent", "transformation")]
    assert origins_of(known["large_day"], "twice") == [Origin("large_order", "twice", "identity")]
    assert Origin("order", "spent", "filter") in known["large_order"].rows_by
    assert list_first_columns(known, "large_day", "twice") == [Origin("orders", "spent", "identity")]
    assert origins_of(known["largest"], "twice") == [Origin("order", "spent", "aggregation")], "through the views, to the table"
    columns = {one.name: one for one in known["order"].columns}
    assert columns["mark"].treated == "truncate" and Origin("orders", "who", "filter") in known["order"].rows_by
    (spent,) = [one for one in known["spending"].columns if one.name == "spent"]
    assert spent.origins == (Origin("order", "spent", "aggregation"),)

    folder = locate(shop.records.bookkeeping("openlineage"))
    told = [file.read_text() for file in sorted(folder.glob("events*.jsonl"))]
    events = [json.loads(line) for text in told for line in text.splitlines()]
    done = {one["job"]["name"]: one for one in events if one.get("eventType") == "COMPLETE"}
    layer = shop.graph.pipeline.layer_names[1]
    assert {f"shop.{layer}", f"shop.{layer}.order", f"shop.{layer}.order.rules", f"shop.{layer}.spending"} <= set(done)
    (read,) = done[f"shop.{layer}.spending"]["inputs"]
    assert read["name"] == "shop.order" and "version" in read["facets"]
    assert {"columnLineage", "schema", "version"} <= set(done[f"shop.{layer}.spending"]["outputs"][0]["facets"])

    views = {one["job"]["name"]: one for one in events if "run" not in one}
    assert set(views) == {"shop.large_order", "shop.large_day"}
    named = {one["name"] for event in events for one in (*event["inputs"], *event["outputs"])}
    assert named <= {f"shop.{name}" for name in (*shop.graph.stored, *shop.graph.computed)}, "nothing points at what is not there"

    record = locate(shop.records.bookkeeping("column_lineage.json"))
    seen = (
        render_report(shop.lake),
        format_metrics([collect_numbers(shop.records)]),
        str(read_run_ledger(shop.records)),  # of which `why` and `runs` say a part
        json.dumps(status.compute_status(shop.records), default=str),
    )
    assert "'quarantined': 1," in seen[2], "a record in quarantine is part of what is said"
    for text in (record.read_text(), *told, *seen):
        assert not [value for value in (PERSON, BANNED, "1987-03-21 10") if value in text]
    assert not any(str(shop.settings.lake) in text for text in (record.read_text(), *told)), (
        "what leaves the house names no place"
    )
    if is_on_disk(folder):
        assert all(file.stat().st_mode & 0o077 == 0 for file in (record, folder / "events.jsonl"))


@pytest.mark.thorough
def test_what_is_known_is_not_looked_for_again(shop: Lakehouse) -> None:
    record = locate(shop.records.bookkeeping("column_lineage.json"))
    before = (read_file_state(record), record.read_text())
    land_and_run(shop, "2.jsonl", "2")
    assert (read_file_state(record), record.read_text()) == before
