"""Facts that stay without the person: in bronze, in the table that keeps them, after a refresh and a second delivery."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import requests
from sluice.erasure.steps import rows
from sluice.flows.copies import restoration
from sluice.lake.flow_report import FlowReport
from sluice.lake.pipeline_lake import PipelineLake
from sluice.verification.verify import verify_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.usefixtures("uncontrolled")

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
ORDERS = Source(
    name="orders", schema="id BIGINT, who STRING, email STRING, town STRING, spent INT", subject="who", personal="email"
)


@table(reads="orders", keys="id", sequence_by="spent", subject="who", on_erasure="anonymise")
def order(orders: DataFrame) -> DataFrame:
    """What was sold. The length of a name is not declared as personal, and goes nevertheless: it is made of what is NULL."""
    return orders.select("id", "who", "email", "town", "spent", F.length("who").alias("letters"))


@table(reads="orders", keys="who", sequence_by="id", subject="who")
def customer(orders: DataFrame) -> DataFrame:
    """Who bought last what; erased with the person."""
    return orders.select("who", "id", "email")


@materialized_view(reads="order", keys="town", recompute="keys")
def sales(order: DataFrame) -> DataFrame:
    """What a town spends."""
    return order.groupBy("town").agg(F.sum("spent").alias("spent"), F.count_distinct("who").alias("people"))


LAYER = __name__.rpartition(".")[2]
FIRST = ((1, "ada", "Rome", 5), (2, "ada", "Rome", 6), (3, "bob", "Rome", 100))


def lines(*orders: tuple[int, str, str, int]) -> str:
    told = ({"id": n, "who": who, "email": f"{who}@x.it", "town": town, "spent": spent} for n, who, town, spent in orders)
    return "".join(json.dumps(one) + "\n" for one in told)


@pytest.fixture
def shop(settings: Settings, spark: SparkSession) -> Lakehouse:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [ORDERS, order, customer, sales]))
    lake.land("orders/1.jsonl", lines(*FIRST))
    lake.run()
    requests.receive_erasure_request(PipelineLake(settings, lake.graph), ["ada"], "who")
    return lake


WITHOUT_ADA: list[tuple[Any, ...]] = [
    (1, None, None, "Rome", 5, None),
    (2, None, None, "Rome", 6, None),
    (3, "bob", "bob@x.it", "Rome", 100, 3),
]
COLUMNS = ("id", "who", "email", "town", "spent", "letters")


def assert_without_ada(lake: Lakehouse) -> None:
    assert lake.rows("order", *COLUMNS) == WITHOUT_ADA
    assert lake.rows("customer", "who") == [("bob",)], "whose rows are deleted are deleted, and no row of nobody comes"
    assert lake.rows("sales") == [("Rome", 111, 1)], "the sum is as it was"
    assert lake.rows("orders", "id", "who", "email") == [(1, None, None), (2, None, None), (3, "bob", "bob@x.it")]


def assert_with_those_who_came_later(lake: Lakehouse) -> None:
    assert lake.rows("order", *COLUMNS) == [
        *WITHOUT_ADA,
        (4, None, None, "Bari", 1, None),
        (5, "eve", "eve@x.it", "Bari", 2, 3),
    ]
    assert lake.rows("customer", "who") == [("bob",), ("eve",)]
    assert lake.rows("sales") == [("Bari", 3, 1), ("Rome", 111, 1)]


def test_facts_stay_without_the_person_after_a_second_delivery_and_a_refresh(shop: Lakehouse, spark: SparkSession) -> None:
    shop.run("propagate_deletions")
    assert_without_ada(shop)
    # Delivered again, with one more: facts of somebody who is nobody. Others' records go on as before.
    shop.land("orders/2.jsonl", lines(*FIRST, (4, "ada", "Bari", 1), (5, "eve", "Bari", 2)))
    shop.run()
    assert_with_those_who_came_later(shop)
    shop.run(LAYER, mode="refresh", tables=["order", "customer", "sales"])
    assert_with_those_who_came_later(shop)
    assert "ada" not in str(shop.rows("orders", "who", "email"))
    assert all(finding.equal for finding in verify_tables(shop.settings, spark, shop.graph))


@pytest.mark.slow
def test_a_killed_erasure_ends_the_same(shop: Lakehouse, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rows.refold, "refold_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            shop.run("propagate_deletions")
    assert "ada" in {who for (who,) in shop.rows("order", "who")}
    before = shop.versions()["order"] or 0
    shop.run("propagate_deletions")
    assert_without_ada(shop)
    assert all(finding.equal for finding in verify_tables(shop.settings, spark, shop.graph))
    # As it was before, but without her: what is made of her name, declared or not, does not come back.
    restoration.restore_table_version(
        shop.workspace(), shop.graph.tables["order"], before, FlowReport(flow="order", layer="restore")
    )
    assert shop.rows("order", *COLUMNS) == WITHOUT_ADA
