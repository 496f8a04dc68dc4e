"""Groups of too few people are not stored, whichever way the view is brought up to date, and go when somebody in them is erased."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import requests
from sluice.erasure.vault import Identifier
from sluice.errors import DeclarationError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.runs.planning import transforms
from sluice.verification.verify import verify_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
LAYER = __name__.rsplit(".", 1)[-1]
ORDERS = Source(name="orders", schema="id BIGINT, who STRING, town STRING, spent INT", subject="who")


@table(reads="orders", keys="id", sequence_by="spent", subject="who")
def order(orders: DataFrame) -> DataFrame:
    """Orders."""
    return orders.select("id", "who", "town", "spent")


def of_towns(order: DataFrame) -> DataFrame:
    """What is spent in a town, of three people at least."""
    return order.groupBy("town").agg(F.count_distinct("who").alias("people"), F.sum("spent").alias("spent"))


def towns(recompute: Any = "keys", **options: Any) -> Any:
    given = {"at_least": 3, "subjects": "people", **options}
    return materialized_view(name="towns", reads="order", keys="town", recompute=recompute, **given)(of_towns)


def lines(*orders: tuple[int, str, str, int]) -> str:
    return "".join(json.dumps(dict(zip(("id", "who", "town", "spent"), one, strict=True))) + "\n" for one in orders)


FIRST = ((1, "ada", "Rome", 1), (2, "bob", "Rome", 2), (3, "cem", "Rome", 4), (4, "cem", "Rome", 8), (5, "dan", "Bari", 16))


DAN = tuple((number, "dan", "Bari", 1) for number in (6, 7, 8))


@pytest.mark.usefixtures("uncontrolled")
def test_a_group_is_there_while_it_has_enough_people(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [ORDERS, order, towns()]))
    append_delivery(lake.workspace(), ORDERS, 1, (*FIRST, *DAN))
    lake.run(LAYER)
    assert lake.rows("towns") == [("Rome", 3, 15)], "orders are not people: Bari has four of one"
    # An order turns out to be another's as well: Rome has two people left.
    append_delivery(lake.workspace(), ORDERS, 2, ((9, "eve", "Bari", 32), (10, "ada", "Bari", 64), (1, "bob", "Rome", 3)))
    lake.run(LAYER)
    assert lake.rows("towns") == [("Bari", 3, 115)]
    assert next(verify_tables(lake.settings, spark, lake.graph, ["towns"])).equal is True
    requests.receive_erasure_request(lake.lake, [Identifier("who", "eve")])
    lake.run("propagate_deletions")
    assert lake.rows("towns") == []


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["keys", "full"])
def test_a_group_comes_and_goes_with_its_people(settings: Settings, spark: SparkSession, recompute: Any) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [ORDERS, order, towns(recompute)]))
    lake.land("orders/1.jsonl", lines(*FIRST, *DAN))
    lake.run()
    assert lake.rows("towns") == [("Rome", 3, 15)], "orders are not people: Bari has four of one"
    lake.land("orders/2.jsonl", lines((9, "eve", "Bari", 32), (10, "ada", "Bari", 64)))
    lake.run()
    assert lake.rows("towns") == [("Bari", 3, 115), ("Rome", 3, 15)]
    # An order that turns out to be another's: Rome has two people left.
    lake.land("orders/3.jsonl", lines((1, "bob", "Rome", 3)))
    lake.run()
    assert lake.rows("towns") == [("Bari", 3, 115)]
    assert next(verify_tables(lake.settings, spark, lake.graph, ["towns"])).equal is True
    requests.receive_erasure_request(lake.lake, [Identifier("who", "eve")])
    lake.run("propagate_deletions")
    assert lake.rows("towns") == []
    lake.land("orders/4.jsonl", lines((9, "eve", "Bari", 33)))  # stays out, and out of the count
    lake.run()
    assert lake.rows("towns") == []
    assert next(verify_tables(lake.settings, spark, lake.graph, ["towns"])).equal is True


@pytest.mark.thorough
def test_another_size_makes_the_view_anew(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [ORDERS, order, towns()]))
    append_delivery(lake.workspace(), ORDERS, 1, FIRST)
    lake.run(LAYER)
    assert [row[0] for row in lake.rows("towns")] == ["Rome"]
    lake.graph = build_declaration_graph(PIPELINE, [ORDERS, order, towns(at_least=4)])
    lake.run(LAYER)
    assert lake.rows("towns") == []


def test_what_counts_people_is_a_whole_number_of_the_view(settings: Settings, spark: SparkSession) -> None:
    def mistakes(**options: Any) -> list[str]:
        return transforms.examine_transforms(
            spark, PipelineLake(settings, build_declaration_graph(PIPELINE, [ORDERS, order, towns(**options)]))
        ).mistakes

    assert mistakes() == []
    (lacking,) = mistakes(subjects="peple")
    assert "subjects names 'peple', no column of it. Did you mean 'people'?" in lacking
    (text,) = mistakes(subjects="town")
    assert "'town', which is STRING; it must count the people that a row is about" in text
    with pytest.raises(DeclarationError, match="come together"):
        towns(subjects=None)
