"""`sluice repair` of bronze and its quarantine, of which a commit holds some rows of a delivery only: nothing is lost, or it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice import delta_log, open_tables
from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.flows.bronze import accounting
from sluice.flows.quarantine import readmission, settlement
from sluice.lake import log
from sluice.lake.flow_report import FlowReport
from sluice.locations import locate
from sluice.runs.repair import lost_commits
from sluice.runs.status import reconciliation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
CSV = Source(name="orders", format="csv", schema="id BIGINT, name STRING")
MISQUOTED = replace(CSV, quote="'")


@table(reads="orders", keys="id")
def order(orders: DataFrame) -> DataFrame:
    """An order."""
    return orders.select("id", "name")


def declare(lake: Lakehouse, source: Source) -> None:
    lake.graph = build_declaration_graph(PIPELINE, [source, order])


def readmit(lake: Lakehouse) -> None:
    readmission.replay_quarantined_entries(lake.workspace(), "orders", None, FlowReport(flow="orders", layer="bronze"))


def spoil(path: str, version: int) -> None:
    locate(path, "_delta_log", f"{version:020d}.json").write_bytes(b"")


def repair(lake: Lakehouse) -> dict[str, tuple[int, ...]]:
    """Repairs the damaged table. Returns the deliveries that are read again. What follows is as in another process."""
    (found,) = lost_commits.find_log_repairs(lake.lake)
    lost_commits.repair_table_log(lake.lake, found)
    begin_another_process(lake.spark)
    return found.lost


def begin_another_process(spark: SparkSession) -> None:
    open_tables._OPEN_TABLES.__dict__.update(type(open_tables._OPEN_TABLES)().__dict__)
    for name in dir(delta_log):
        if hasattr(getattr(delta_log, name), "cache_clear"):
            getattr(delta_log, name).cache_clear()
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def adds_up(lake: Lakehouse) -> bool:
    return all(account.adds_up for account in reconciliation.reconcile_deliveries(lake.lake))


def aside(lake: Lakehouse) -> list[tuple[Any, ...]]:
    return lake.rows("orders_quarantine", "_delivery", "_row")


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    """A delivery whose second record is in bronze, and the first in quarantine, but fits by today's declaration; and another delivery."""
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [MISQUOTED, order]))
    lake.land("orders/1.csv", 'id,name\n1,"a, b"\n2,c\n')
    lake.run()
    assert (lake.rows("orders", "id"), aside(lake)) == ([(2,)], [(1, 0)])
    declare(lake, CSV)
    return lake


def outcome(lake: Lakehouse) -> tuple[Any, ...]:
    (row,) = lake.outcomes()
    return row["state"], row["read"], row["rows"], row["quarantined"]


@pytest.mark.parametrize("lost", ["the delivery", pytest.param("the readmission", marks=pytest.mark.thorough)])
def test_a_delivery_of_which_bronze_lost_only_some_rows_is_read_again_whole(lake: Lakehouse, lost: str) -> None:
    readmit(lake)
    lake.run()
    path = lake.workspace().path("orders")
    spoil(path, 1 if lost == "the delivery" else log.latest_table_version(path) or 0)
    assert repair(lake) == {"orders": (1,)}
    lake.land("orders/2.csv", "id,name\n7,g\n")
    lake.run()
    assert lake.rows("orders", "id", "name", "_delivery", "_row") == [(1, "a, b", 1, 0), (2, "c", 1, 1), (7, "g", 2, 0)]
    assert lake.rows("order", "id", "name") == [(1, "a, b"), (2, "c"), (7, "g")]
    assert aside(lake) == [] and adds_up(lake)
    assert [(row["state"], row["rows"]) for row in lake.outcomes()] == [("ingested", 2), ("ingested", 1)]


@pytest.mark.thorough
def test_a_record_that_quarantine_lost_is_read_again_though_bronze_has_the_others(lake: Lakehouse) -> None:
    declare(lake, MISQUOTED)
    spoil(lake.workspace().quarantine("orders"), log.latest_table_version(lake.workspace().quarantine("orders")) or 0)
    assert repair(lake) == {"orders": (1,)}
    lake.run()
    assert (lake.rows("orders", "id"), aside(lake)) == ([(2,)], [(1, 0)])
    assert adds_up(lake) and outcome(lake) == ("ingested", 2, 1, 1)


@pytest.mark.thorough
def test_a_record_that_comes_back_to_quarantine_is_not_counted_twice(lake: Lakehouse) -> None:
    readmit(lake)
    lake.run()
    spoil(lake.workspace().quarantine("orders"), log.latest_table_version(lake.workspace().quarantine("orders")) or 0)
    assert repair(lake) == {"orders": (1,)} and aside(lake) == [(1, 0)]
    lake.run()
    assert (lake.rows("orders", "id"), aside(lake)) == ([(1,), (2,)], [])
    assert adds_up(lake) and outcome(lake) == ("ingested", 2, 2, 0)


def test_rows_whose_file_is_gone_stay_and_the_ledger_says_how_many_are_lost(lake: Lakehouse) -> None:
    readmit(lake)
    lake.run()
    path = lake.workspace().path("orders")
    spoil(path, log.latest_table_version(path) or 0)
    repair(lake)
    lake.land("orders/2.csv", "id,name\n7,g\n")
    (lake.settings.landing / "shop" / "orders" / "1.csv").unlink()
    reports = lake.run()
    assert lake.rows("orders", "id") == lake.rows("order", "id") == [(2,), (7,)]
    row = lake.outcomes()[0]
    assert str(row["reason"]).startswith("1 of 2 records is left after a commit was lost, and it cannot be read again: the file")
    assert f"delivery 1: {row['reason']}" in reports["orders"].notes


@pytest.mark.thorough
def test_a_killed_readmission_of_a_lost_delivery_is_finished_and_the_delivery_is_read_again(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(settlement, "settle_readmission", lambda *_: 1 / 0)
        readmit(lake)
    spoil(lake.workspace().path("orders"), 1)
    assert repair(lake) == {"orders": (1,)}
    assert (lake.rows("orders", "id"), aside(lake)) == ([(1,)], [(1, 0)])
    lake.run()
    assert lake.rows("orders", "id") == lake.rows("order", "id") == [(1,), (2,)]
    assert aside(lake) == [] and adds_up(lake) and outcome(lake) == ("ingested", 2, 2, 0)


@pytest.mark.thorough
def test_a_delivery_that_a_killed_attempt_read_again_is_read_once_more(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    readmit(lake)
    lake.run()
    spoil(lake.workspace().path("orders"), 1)
    repair(lake)
    with monkeypatch.context() as patch:
        patch.setattr(accounting, "build_outcome_rows", lambda *_: 1 / 0)
        with pytest.raises(Exception, match="division by zero"):
            lake.run("bronze")
    assert lake.rows("orders", "id") == [(1,), (2,)]
    lake.run()
    assert lake.rows("orders", "id") == lake.rows("order", "id") == [(1,), (2,)]
    assert adds_up(lake) and outcome(lake) == ("ingested", 2, 2, 0)
