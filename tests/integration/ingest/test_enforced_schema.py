"""`schema=`: bad rows go to quarantine, another type or column stops the run before any commit, and the table is the last guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

from sluice import delta_log
from sluice.declare import Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import DeclarationError, SluiceError
from sluice.lake import log
from sluice.lake.flow_report import FlowsFailed
from sluice.runs.execution import stages
from sluice.runs.planning import transforms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.on_store]

SILVER = __name__.rsplit(".", 1)[-1]
PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
SOURCE = Source(name="orders", schema="id BIGINT, price DOUBLE, note STRING")
SCHEMA = """
    price DOUBLE COMMENT 'in euro, it''s with tax' CONSTRAINT positive CHECK (price > 0),
    id BIGINT NOT NULL, -- whose order
    note STRING
"""
Shop = Callable[..., Lakehouse]


def orders(schema: str | None = SCHEMA, transform: Callable[[DataFrame], DataFrame] | None = None, doc: str = "An order.") -> Any:
    def order(orders: DataFrame) -> DataFrame:
        return transform(orders) if transform else orders.select("id", "price", "note")

    return table(reads="orders", keys="id", sequence_by="price", schema=schema, comment=doc)(order)


def totals(schema: str, divisor: int = 1) -> Any:
    def total(orders: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return orders.groupBy("note").agg((F.sum("price") / divisor).alias("total"))

    return materialized_view(reads="orders", keys="note", schema=schema)(total)


@pytest.fixture
def shop(settings: Settings, spark: SparkSession) -> Shop:
    """A lakehouse with these tables above bronze, whose rows are put there: only the stage of these tables runs."""
    return lambda *declared: Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [SOURCE, *declared]))


def put(lake: Lakehouse, delivery: int, *rows: tuple[int | None, float | None, str]) -> None:
    append_delivery(lake.workspace(), SOURCE, delivery, rows)


def properties(lake: Lakehouse, name: str = "order") -> dict[str, str]:
    return log.read_table_properties(lake.workspace().path(name))


def refuses(lake: Lakehouse, row: str) -> str:
    """The name of the constraint for which Delta itself refuses a row."""
    with pytest.raises(Exception, match="CONSTRAINT") as caught:
        lake.spark.sql(f"INSERT INTO delta.`{lake.workspace().path('order')}` (id, price, note, _delivery, _row) VALUES {row}")
    return str(caught.value)


def test_rows_that_break_the_schema_are_set_aside_and_the_table_refuses_them_by_itself(shop: Shop) -> None:
    lake = shop(orders())
    put(lake, 1, (1, 5.0, "x"), (None, 5.0, "x"), (3, -5.0, "x"), (4, None, "x"))
    report = lake.run(SILVER)["order"]
    assert lake.rows("order", "id", "price") == [(1, 5.0)]
    assert report.rules == {"not_null_id": 1, "positive": 2}
    assert lake.rows("order_quarantine", "_row", "reasons") == [(1, ["not_null_id"]), (2, ["positive"]), (3, ["positive"])]
    fields = {field.name: field for field in lake.spark.read.format("delta").load(lake.workspace().path("order")).schema}
    assert fields["price"].metadata == {"comment": "in euro, it's with tax"}
    assert [fields[name].nullable for name in ("id", "price")] == [False, True]
    assert properties(lake)["delta.constraints.positive"] == "price > 0"
    assert log.read_table_comment(lake.workspace().path("order")) == "An order."
    assert "positive" in refuses(lake, "(7, -1, 'x', 1, 1)")
    assert "id" in refuses(lake, "(NULL, 1, 'x', 1, 1)")
    before = lake.versions()
    put(lake, 2, (1, 6.0, "later"), (2, 1.0, "x"))
    lake.run(SILVER)
    assert lake.rows("order", "id", "price", "note") == [(1, 6.0, "later"), (2, 1.0, "x")]
    assert lake.versions()["order"] == (before["order"] or 0) + 1, "one merge, and no change of what is declared"


MISFITS: list[tuple[Callable[[DataFrame], DataFrame], list[str]]] = [
    (
        lambda o: o.selectExpr("id", "CAST(price AS STRING) AS price", "note"),
        ["column 'price' is double, its transform gives string"],
    ),
    (lambda o: o.select("id", "price"), ["names the column 'note' (string), which its transform does not give"]),
    (lambda o: o.selectExpr("*", "1 AS more"), ["gives the column 'more' (int), which schema= does not name"]),
    (
        lambda o: o.selectExpr("id", "price AS prise", "note"),
        ["'price' (double), which its transform does not give. Did you mean 'prise'?", "gives the column 'prise'"],
    ),
]
"""Transforms that give other columns than `SCHEMA`, and what is said of each."""


def test_other_columns_than_declared_fail_before_any_commit(shop: Shop) -> None:
    said = {f"order{number}": parts for number, (_, parts) in enumerate(MISFITS)}
    lake = shop(*(replace(orders(transform=given), name=name) for name, (given, _) in zip(said, MISFITS, strict=True)))
    found = transforms.examine_transforms(lake.spark, lake.lake).mistakes
    put(lake, 1, (1, 5.0, "x"))
    with pytest.raises(FlowsFailed) as caught:
        stages.run_pipeline_stage(lake.workspace(), SILVER)
    assert set(caught.value.errors) == set(said)
    for name, error in caught.value.errors.items():
        assert isinstance(error, DeclarationError) and f"Table '{name}'" in str(error)
        (mistake,) = (one for one in found if f"Table '{name}'" in one)
        assert all(part in str(error) and part in mistake for part in said[name]), (str(error), mistake)
        assert not delta_log.is_delta_table(lake.workspace().path(name))
        assert not delta_log.is_delta_table(lake.workspace().quarantine(name))


def test_a_schema_that_comes_later_or_changes_is_given_to_the_table_that_is_there(shop: Shop) -> None:
    lake = shop(orders(schema=None))
    put(lake, 1, (1, 5.0, "x"), (2, 7.0, "x"))
    lake.run(SILVER)
    lake = shop(orders(doc="It's an \\ order."))
    lake.run(SILVER)
    assert properties(lake)["delta.constraints.positive"] == "price > 0"
    assert properties(lake)["delta.constraints.not_null_id"] == "`id` IS NOT NULL", "a column cannot become NOT NULL later"
    assert log.read_table_comment(lake.workspace().path("order")) == "It's an \\ order."
    assert "not_null_id" in refuses(lake, "(NULL, 1, 'x', 1, 1)")
    before = lake.versions()
    lake.run(SILVER)
    assert lake.versions() == before
    lake.spark.sql(f"ALTER TABLE delta.`{lake.workspace().path('order')}` ADD CONSTRAINT by_hand CHECK (id < 1000)")
    lake = shop(orders(schema="id BIGINT, price DOUBLE CONSTRAINT positive CHECK (price > 1), note STRING COMMENT 'new'"))
    lake.run(SILVER)
    kept = {name: value for name, value in properties(lake).items() if name.startswith("delta.constraints.")}
    assert kept == {"delta.constraints.positive": "price > 1", "delta.constraints.by_hand": "id < 1000"}
    lake = shop(orders(schema=None))
    lake.run(SILVER)
    assert [name for name in properties(lake) if name.startswith("delta.constraints.")] == ["delta.constraints.by_hand"]


@pytest.mark.thorough
def test_a_schema_that_rows_of_the_table_do_not_meet_is_refused_until_the_table_is_made_anew(shop: Shop) -> None:
    lake = shop(orders(schema=None))
    put(lake, 1, (1, 5.0, "x"), (2, -7654321.5, "bad"), (3, -8.0, "bad"))
    lake.run(SILVER)
    before = lake.versions()
    lake = shop(orders())
    with pytest.raises(SluiceError, match=r"now says 'positive', which 2 rows .*--mode refresh --table order") as caught:
        lake.run(SILVER)
    assert "7654321" not in str(caught.value)
    assert before == lake.versions()
    lake.run(SILVER, mode="refresh", tables=["order"])
    assert lake.rows("order", "id") == [(1,)]
    assert len(lake.rows("order_quarantine", "_row")) == 2
    kept = {name: value for name, value in properties(lake).items() if name.startswith("delta.constraints.")}
    assert kept == {"delta.constraints.positive": "price > 0", "delta.constraints.not_null_id": "`id` IS NOT NULL"}
    put(lake, 2, (5, 6.0, "x"), (1, 9.0, "x"))
    lake.run(SILVER)
    assert lake.rows("order", "id", "price") == [(1, 9.0), (5, 6.0)]


@pytest.mark.thorough
def test_a_view_with_a_schema_fails_where_a_row_breaks_it_and_is_made_anew_with_its_transform(shop: Shop) -> None:
    schema = "note STRING, total DOUBLE CONSTRAINT small CHECK (total < 10)"
    lake = shop(totals(schema))
    put(lake, 1, (1, 5.0, "x"))
    lake.run(SILVER)
    put(lake, 2, (2, 7.0, "x"))
    with pytest.raises(SluiceError, match=r"'total': 1 row does not meet 'small'"):
        lake.run(SILVER)
    assert lake.rows("total", "total") == [(5.0,)]
    lake = shop(totals(schema, divisor=2))
    lake.run(SILVER)
    assert lake.rows("total", "total") == [(6.0,)]
    lake = shop(totals(schema.replace("10", "5"), divisor=3))
    lake.run(SILVER)
    assert lake.rows("total", "total") == [(4.0,)], "its old rows need not meet the new rule, as they are all made again"
    assert properties(lake, "total")["delta.constraints.small"] == "total < 5"
