"""Expectations in runs: a refused batch leaves nothing visible, counts are in the ledger, rules on whole tables warn or fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

from sluice.declare import (
    Pipeline,
    Source,
    expect,
    expect_fresh,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
    expect_references,
    expect_row_count,
    expect_unique,
    materialized_view,
    table,
)
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import DeclarationError, SluiceError
from sluice.quality import verdicts
from sluice.runs import job, run_ledger
from sluice.runs.execution import layers, stages, table_rules
from sluice.runs.job import JobRequest
from sluice.runs.planning import transforms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

SILVER = __name__.rsplit(".", 1)[-1]
PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
ORDERS = Source(name="orders", schema="id BIGINT, amount BIGINT, customer BIGINT, at TIMESTAMP")
CUSTOMERS = Source(name="customers", schema="id BIGINT, name STRING")
Shop = Callable[..., Lakehouse]


def order(orders: DataFrame) -> DataFrame:
    """An order."""
    return orders.select("id", "amount", "customer", "at")


def customer(customers: DataFrame) -> DataFrame:
    """A customer."""
    return customers.select("id", "name")


def total(order: DataFrame) -> DataFrame:
    """What a customer spent."""
    return order.groupBy("customer").agg({"amount": "sum"}).toDF("customer", "amount")


@pytest.fixture
def shop(settings: Settings, spark: SparkSession) -> Shop:
    """A lakehouse with these sources and tables. Rows are put into bronze: only the stage of the tables runs."""
    return lambda *declared: Lakehouse(settings, spark, build_declaration_graph(PIPELINE, declared))


def put_orders(lake: Lakehouse, delivery: int, *rows: tuple[int | None, int | None, int | None]) -> None:
    """Orders by id, amount and customer."""
    append_delivery(lake.workspace(), ORDERS, delivery, [(*row, None) for row in rows])


def put_customer(lake: Lakehouse, delivery: int, number: int) -> None:
    append_delivery(lake.workspace(), CUSTOMERS, delivery, [(number, "x")])


def recorded(lake: Lakehouse) -> dict[str, dict[str, Any]]:
    """Run the tables as a job does, under the lease and with their record. Returns the newest row of the run ledger by flow."""
    request = JobRequest(pipeline=lake.name, stage=SILVER)
    job.run_under_lease(lake.lake, request, lambda workspace: stages.run_pipeline_stage(workspace, SILVER))
    return newest(lake)


def newest(lake: Lakehouse) -> dict[str, dict[str, Any]]:
    return {row["flow"]: row for row in run_ledger.read_run_ledger(lake.records)}


RULES = (
    expect_or_quarantine("priced", "amount > 0"),
    expect_or_drop("no_test", "customer != 0", null_ok=True),
    expect("cheap", "amount < 1000"),
)


@pytest.mark.parametrize(
    ("adds", "text"),
    [
        (expect_or_fail("known", "id IS NOT NULL"), "Table 'order': 1 row does not meet 'known', which must not happen."),
        (
            expect("paid", "amount > 5", at_most=0.4),
            "Table 'order': 3 of 6 rows do not meet 'paid'; at most 40 % of a batch may.",
        ),
    ],
    ids=["fail", "at_most"],
)
def test_a_refused_batch_leaves_nothing_visible_and_is_taken_whole_when_the_rule_allows_it(
    shop: Shop, adds: Any, text: str
) -> None:
    def declared(*more: Any) -> Any:
        return table(reads="orders", keys="id", name="order", expectations=(*RULES, *more))(order)

    lake = shop(ORDERS, declared(adds))
    put_orders(lake, 1, (1, 10, 1), (2, -1, 1))
    mild = shop(ORDERS, declared())
    recorded(mild)
    before, versions = mild.rows("order", "id"), mild.versions()
    put_orders(lake, 2, (None, 20, 1), (3, None, 1), (4, -7, 1), (5, 30, 0), (6, 2000, None), (7, 1, 1))
    with pytest.raises(SluiceError) as caught:
        recorded(lake)
    assert str(caught.value) == f"{text} Nothing of this batch was written."
    after = lake.versions()
    assert lake.rows("order", "id") == before
    assert {name: after[name] for name in ("order", "order_quarantine")} == {
        name: versions[name] for name in ("order", "order_quarantine")
    }
    failed = newest(lake)["order"]
    assert (failed["state"], failed["rows_in"], failed["quarantined"], failed["dropped"]) == ("failed", 0, 0, 0)
    counts = {"priced": 2, "no_test": 1, "cheap": 2}
    own = adds.expectations[0].name
    assert {name: failed["rules"].get(name) for name in (*counts, own)} == {**counts, own: 1 if own == "known" else 3}
    assert {name: failed["null_rules"].get(name) for name in ("priced", "cheap")} == {"priced": 1, "cheap": 1}
    done = recorded(mild)["order"]
    assert [row[0] for row in mild.rows("order", "id")] == [1, 6, 7, None]
    assert (done["rows_in"], done["quarantined"], done["dropped"]) == (6, 2, 1)
    assert (
        done["rules_version"] == verdicts.expectations_version(mild.graph.tables["order"].expectations) != failed["rules_version"]
    )


@pytest.mark.thorough
def test_a_views_rule_that_must_hold_stops_it_before_anything_is_visible(shop: Shop) -> None:
    view = materialized_view(reads="orders", keys="customer", name="total", expectations=(expect_or_fail("paid", "amount > 0"),))(
        lambda orders: total(orders)
    )
    lake = shop(ORDERS, view)
    put_orders(lake, 1, (1, 10, 1))
    lake.run(SILVER)
    before = lake.versions()["total"]
    put_orders(lake, 2, (2, 10, 3), (3, -4, 2))
    with pytest.raises(SluiceError, match="Table 'total': 1 row does not meet 'paid'"):
        lake.run(SILVER)
    assert lake.versions()["total"] == before
    assert lake.rows("total", "customer") == [(1,)]


def test_rules_on_whole_tables_warn_are_looked_at_once_and_freshness_every_time(shop: Shop) -> None:
    warns = (
        expect_unique("one_customer", "customer"),
        expect_row_count("grows", most_times=2),
        expect_fresh("recent", "at", within="2 days"),
        expect_references("known_customer", "customer", of="customer", of_columns="id"),
    )
    lake = shop(
        ORDERS,
        CUSTOMERS,
        table(reads="orders", keys="id", name="order", expectations=warns)(order),
        table(reads="customers", keys="id", name="customer")(customer),
    )
    put_orders(lake, 1, (1, 1, 1), (2, 1, 1), (3, 1, 2))
    put_customer(lake, 2, 1)
    first = recorded(lake)["order"]
    found = first["table_rules"]
    assert {name: (one["met"], one["count"]) for name, one in found.items()} == {
        "one_customer": (False, 2),
        "grows": (None, 0),
        "recent": (False, 1),
        "known_customer": (False, 1),
    }, "customers come in the same stage, and were there when the references were looked at"
    assert (first["state"], found["grows"]["rows"]) == ("done", 3)
    second = recorded(lake)["order"]
    assert second["version_before"] == second["version_after"]
    looked: list[str] = []
    original = table_rules.whole_table.evaluate_table_rule

    def counted(rule: Any, whole: Any) -> Any:
        looked.append(rule.name)
        return original(rule, whole)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_rules.whole_table, "evaluate_table_rule", counted)
        third = recorded(lake)["order"]
        assert looked == ["recent"], "time passes by itself; nothing else changed"
        assert third["table_rules"] == {**found, "recent": third["table_rules"]["recent"]}
        put_customer(lake, 3, 2)
        fourth = recorded(lake)["order"]["table_rules"]
        assert looked[1:] == ["recent", "known_customer"], "what is referred to has changed"
        assert fourth["known_customer"]["met"] is True
        put_orders(lake, 4, *((number, 1, number) for number in range(4, 8)))
        fifth = recorded(lake)["order"]["table_rules"]
    assert (fifth["grows"]["met"], fifth["grows"]["count"]) == (False, 1), "7 rows, and 3 before: only runs that changed it count"


def test_a_rule_that_a_whole_table_must_meet_fails_again_until_it_is_met(shop: Shop) -> None:
    must = expect_unique("one_customer", "customer", or_fail=True)
    view = materialized_view(reads="order", keys="customer", name="total")(total)
    lake = shop(ORDERS, table(reads="orders", keys="id", name="order", expectations=(must,))(order), view)
    put_orders(lake, 1, (1, 1, 7_654_321_987), (2, 1, 7_654_321_987))
    for _ in range(2):
        with pytest.raises(
            SluiceError, match=r"'order' does not meet 'one_customer', which it must: 2 rows share their customer"
        ) as caught:
            recorded(lake)
        assert "7654321987" not in str(caught.value)
        assert newest(lake)["order"]["state"] == "failed"
        assert "total" not in newest(lake)
    followed = layers.run_layers_above_bronze(lake.workspace())
    assert {one.flow for one in followed} == {"order", "total"}, "an erasure is not stopped half way by it"
    assert len(lake.rows("order")) == 2, "what is in the table stays: a rule on the whole of it touches no row"
    lake.graph.tables["order"].__dict__["table_expectations"] = (replace(must.expectations[0], or_fail=False),)
    done = recorded(lake)
    assert done["order"]["state"] == "done"
    assert "total" in done


def test_wrong_rules_are_found_by_check_and_by_the_job_before_it_writes(shop: Shop) -> None:
    wrong = (
        expect_or_drop("typo", "amuont > 0"),
        expect("whole", "sum(amount) > 0"),
        expect_unique("one", "custmer"),
        expect_fresh("recent", "amount", within="1 day"),
        expect_references("known", "customer", of="customer", of_columns="name"),
    )
    lake = shop(
        ORDERS,
        CUSTOMERS,
        table(reads="orders", keys="id", name="order", expectations=wrong)(order),
        table(reads="customers", keys="id", name="customer")(customer),
    )
    found = transforms.examine_transforms(lake.spark, lake.lake)
    assert found.mistakes == [
        "Table 'order', expectation 'typo': its condition names 'amuont', no column of it. Did you mean 'amount'?",
        "Table 'order', expectation 'whole': its condition uses an aggregate, which looks at more than one row. "
        "It may use this row's columns only.",
        "Table 'order', expectation 'one': it names 'custmer', no column of 'order'. Did you mean 'customer'?",
        "Table 'order', expectation 'recent': 'amount' is of type BIGINT; freshness needs a DATE or TIMESTAMP.",
        "Table 'order', expectation 'known': 'customer' and 'customer.name' are of types BIGINT and STRING, which are not compared. "
        "Give them one type.",
    ]
    put_orders(lake, 1, (1, 1, 1))
    with pytest.raises(DeclarationError, match="expectation 'typo': its condition names 'amuont'"):
        lake.run(SILVER)
    assert lake.versions()["order"] is None
