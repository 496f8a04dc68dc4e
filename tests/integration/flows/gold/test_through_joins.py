"""A view follows a change that reaches its rows only through a join with another input, without a full recompute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from deltalake import DeltaTable as RustTable
from pyspark.sql import SparkSession
from tests.conftest import Lakehouse, copy_roots, settings_at
from tests.few_rows import merge_rows

from sluice.cli.running.plan import _describe_bound
from sluice.declare import Pipeline, Source, materialized_view
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.flows.gold import choice
from sluice.lake import table_creation
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.locations import locate
from sluice.runs.execution import stages
from sluice.runs.planning import transforms
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks
from sluice.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.on_store]

LAYER = __name__.rsplit(".", 1)[-1]
PIPELINE = Pipeline(name="shopping", description="Views.", owner="tests", layers=("shopping.bronze", __name__))
INPUTS = {
    "orders": ("order INT, customer INT, item INT", "order"),
    "customers": ("customer INT, city STRING", "customer"),
    "items": ("item INT, price INT", "item"),
}


@materialized_view(reads=("orders", "customers"), keys="order", recompute="keys")
def order_cities(orders, customers):
    return orders.join(customers, "customer", "left").select("order", "city")


@materialized_view(reads=("orders", "customers", "items"), keys="order", recompute="keys")
def order_lines(orders, customers, items):
    return orders.join(customers, "customer", "left").join(items, "item", "left").select("order", "city", "price")


@materialized_view(reads=("orders", "customers", "items"), keys="order", recompute="keys")
def bargains(orders, customers, items):
    """Only what two inputs say together keeps a row."""
    known = orders.join(customers, "customer").join(items, "item")
    return known.where("city = 'Oslo' AND price = 5").select("order")


class Shop:
    """Ten customers with ten orders each, of twenty items: made by `make`, and by `first_run` for all tests."""

    def __init__(self, settings: Settings, spark: SparkSession, *views: MaterializedView[...]) -> None:
        sources = [
            Source(name=name, format="json", path=name, schema=ddl, comment="Stands for a table.")
            for name, (ddl, _) in INPUTS.items()
        ]
        self.workspace = Workspace(settings, build_declaration_graph(PIPELINE, [*sources, *views]), spark, "run")

    def make(self) -> None:
        self.put("orders", [(number, number // 10, number % 20) for number in range(100)])
        self.put("customers", [(number, "Oslo") for number in range(10)])
        self.put("items", [(number, 5) for number in range(20)])

    def put(self, name: str, rows: list[tuple[object, ...]]) -> None:
        """Rows that come, or take the place of others."""
        path, (ddl, key) = self.workspace.path(name), INPUTS[name]
        if not DeltaTable.isDeltaTable(self.workspace.session, path):
            shape = TableShape(schema=table_creation.parse_ddl_schema(ddl), comment="", statistics=(key,))
            table_creation.create_table(self.workspace.session, path, shape)
        merge_rows(path, ddl, (key,), rows)

    def run(self) -> dict[str, FlowReport]:
        try:
            return {report.flow: report for report in stages.run_pipeline_stage(self.workspace, LAYER)}
        except FlowsFailed as failed:
            raise next(iter(failed.errors.values())) from None

    def is_right(self) -> bool:
        """Whether every view equals its transform."""
        held = Lakehouse(self.workspace.settings, self.workspace.session, self.workspace.graph)
        inputs = {name: table_creation.make_inline_frame(held.spark, held.rows(name), ddl) for name, (ddl, _) in INPUTS.items()}
        return all(
            held.rows(one.name) == sorted(map(tuple, one(*(inputs[name] for name in one.reads)).collect()), key=repr)
            for one in self.workspace.graph.views.values()
        )


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Settings:
    """A lake after the first run of three views, to be copied."""
    shop = Shop(settings_at(tmp_path_factory.mktemp("first_run")), spark, order_cities, order_lines, bargains)
    shop.make()
    shop.run()
    return shop.workspace.settings


OpenShop = Callable[..., Shop]


@pytest.fixture
def open_shop(first_run: Settings, tmp_path: Path, spark: SparkSession) -> OpenShop:
    """Opens a copy of that lake with some of its views."""
    return lambda *views: Shop(copy_roots(first_run, tmp_path), spark, *views)


def test_a_customers_change_makes_anew_the_rows_of_the_customers_orders(open_shop: OpenShop) -> None:
    shop = open_shop(order_cities)
    shop.put("customers", [(3, "Rome"), (77, "Bergen")])
    report = shop.run()["order_cities"]
    assert (report.recomputed, report.updated, report.inserted) == ("keys: 10 of 100 rows", 10, 0)
    assert shop.is_right()


def test_a_join_is_followed_only_where_that_is_worth_its_jobs(open_shop: OpenShop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = open_shop(replace(order_cities, recompute="auto"))
    shop.run()
    # 210 rows in all: more than the bound of any view, and as many as ten times that.
    monkeypatch.setattr(choice, "SMALL_ROWS", 21)
    shop.put("customers", [(3, "Rome")])
    assert shop.run()["order_cities"].recomputed == "full: small for a join" and shop.is_right()
    shop.put("orders", [(30, 4, 0)])
    assert shop.run()["order_cities"].recomputed == "keys: 1 of 100 rows", "a change by its own key is followed all the same"
    monkeypatch.setattr(choice, "SMALL_ROWS", 20)
    shop.put("customers", [(5, "Bergen")])
    assert shop.run()["order_cities"].recomputed == "keys: 10 of 100 rows" and shop.is_right()


def test_changes_on_both_sides_of_the_join_at_once(open_shop: OpenShop) -> None:
    """An order goes from a customer who moves to another: its old row is found by the order itself."""
    shop = open_shop(order_cities)
    shop.put("customers", [(3, "Rome")])
    shop.put("orders", [(30, 4, 0), (200, 3, 0)])
    report = shop.run()["order_cities"]
    assert report.recomputed == "keys: 11 of 100 rows" and shop.is_right()
    books = PipelineBooks(shop.workspace.settings, shop.workspace.graph)
    assert lag.read_view_standing(books, order_cities).unbounded == (), "a change that a join follows is bounded"


@pytest.mark.thorough
def test_two_inputs_that_are_each_followed_by_a_join_may_change_at_once(open_shop: OpenShop) -> None:
    shop = open_shop(order_lines, bargains)
    shop.put("items", [(3, 7)])
    assert shop.run()["order_lines"].recomputed == "keys: 5 of 100 rows"
    # Order 34 is of customer 3 and item 14: no new row of one goes with an old row of the other.
    shop.put("items", [(14, 7)])
    shop.put("customers", [(3, "Rome")])
    reports = shop.run()
    assert reports["order_lines"].recomputed == "keys: 14 of 100 rows"
    assert reports["bargains"].recomputed == "keys: 0 of 95 rows"
    assert reports["bargains"].deleted == 14 and shop.is_right()


@pytest.mark.thorough
def test_what_cannot_be_read_as_it_was_is_not_joined(open_shop: OpenShop) -> None:
    shop = open_shop(order_lines)
    before = RustTable(shop.workspace.path("items")).file_uris()
    shop.put("items", [(number, 7) for number in range(20)])
    shop.put("customers", [(3, "Rome")])
    for file in before:
        locate(file).unlink()
    report = shop.run()["order_lines"]
    assert report.recomputed == "full: a change of 'customers' can touch any row, since 'items' cannot be read as it was"
    assert shop.is_right()


def test_check_says_what_a_join_follows(open_shop: OpenShop, spark: SparkSession) -> None:
    shop = open_shop(order_lines)
    found = transforms.examine_transforms(spark.newSession(), shop.workspace.lake)
    told = {bound["input"]: _describe_bound(bound["columns"], bound["joined"], bound["reach"]) for bound in found.bounds}
    assert told == {"orders": ["order"], "customers": ["order by a join"], "items": ["order by a join"]}
