"""What is too old leaves with the stage that propagates deletions, and does not come back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.conftest import Lakehouse, copied_lakehouse, settings_at
from tests.few_rows import append_delivery

from sluice.declare import F, Pipeline, Source, expect_or_quarantine, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import aging
from sluice.erasure.proof.search_scope import find_undeclared_paths
from sluice.erasure.steps import rows
from sluice.errors import SluiceError
from sluice.lake import log
from sluice.lake.commit_marks import find_version_origins
from sluice.runs.repair import restoring
from sluice.runs.status import reconciliation
from sluice.verification.verify import verify_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
ORDERS = Source(name="orders", schema="id BIGINT, who STRING, at STRING, spent INT", subject="who", subject_at="at")
KEPT = replace(ORDERS, keep_for="400 days")


@table(reads="orders", keys="id", sequence_by="spent", subject="who")
@expect_or_quarantine("paid", "spent > 0")
def order(orders: DataFrame) -> DataFrame:
    """The dearest bid for an order, whenever it was."""
    return orders.select("id", "who", "spent")


@materialized_view(reads="order", keys="who", subject="who", recompute="keys")
def spending(order: DataFrame) -> DataFrame:
    """Of each person."""
    return order.groupBy("who").agg(F.sum("spent").alias("spent"))


DERIVED = (order, spending)
LAYER = __name__.rpartition(".")[2]


Order = tuple[int, str, str | None, int]


def bid(number: int, who: str, days: int | None, spent: int) -> Order:
    """An order of so many days ago."""
    at = None if days is None else (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
    return number, who, at, spent


def line(number: int, who: str, days: int | None, spent: int) -> str:
    return json.dumps(dict(zip(("id", "who", "at", "spent"), bid(number, who, days, spent), strict=True))) + "\n"


def adds_up(lake: Lakehouse) -> bool:
    return all(account.adds_up for account in reconciliation.reconcile_deliveries(lake.lake))


@pytest.fixture(scope="module")
def with_old_rows(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """With old rows from a time when nobody had said how long they are kept."""
    lake = Lakehouse(settings_at(tmp_path_factory.mktemp("old")), spark, build_declaration_graph(PIPELINE, [ORDERS, *DERIVED]))
    lake.land("orders/1.jsonl", line(1, "ada", 500, 9) + line(1, "bob", 10, 5) + line(2, "ada", 399, 7) + line(3, "eve", 900, 3))
    lake.land("orders/2.jsonl", line(4, "eve", None, 2) + line(5, "eve", 450, -1) + "{ not a record\n")
    lake.run()
    assert lake.rows("order", "id", "who", "spent") == [(1, "ada", 9), (2, "ada", 7), (3, "eve", 3), (4, "eve", 2)]
    return lake


@pytest.fixture
def shop(with_old_rows: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Since then it is said."""
    lake = copied_lakehouse(with_old_rows, tmp_path)
    lake.graph = build_declaration_graph(PIPELINE, [KEPT, *DERIVED])
    return lake


def test_what_is_too_old_goes_and_younger_rows_take_its_place(shop: Lakehouse, spark: SparkSession) -> None:
    reports = shop.run("propagate_deletions")
    assert reports["orders"].deleted == 3 and "3 rows older than 400 days" in reports["orders"].notes
    # A key whose winner was too old has its next best row; of which it is not known when it was, is as old as it is here.
    assert shop.rows("order", "id", "who", "spent") == [(1, "bob", 5), (2, "ada", 7), (4, "eve", 2)]
    assert shop.rows("spending") == [("ada", 7), ("bob", 5), ("eve", 2)]
    assert shop.rows("order_quarantine", "_row") == [], "and what was set aside of an old record"
    versions = shop.versions()
    of_deletion = find_version_origins(shop.workspace().path("orders"), lambda _: None)
    assert str(of_deletion[max(of_deletion)]) == "1 to 2"
    assert find_undeclared_paths(shop.lake) == [], "what it notes is known to be Sluice's own"
    assert shop.run("propagate_deletions") == {} and shop.versions() == versions

    shop.land("orders/1-again.jsonl", line(1, "ada", 500, 9) + line(6, "eve", 401, 1) + line(7, "eve", 399, 4))
    again = shop.run()
    assert again["orders"].suppressed == 2, "counted as left out"
    assert [row[0] for row in shop.rows("order", "id")] == [1, 2, 4, 7]
    shop.run(LAYER, mode="refresh", tables=["order", "spending"])
    assert shop.rows("order", "id", "who") == [(1, "bob"), (2, "ada"), (4, "eve"), (7, "eve")]
    assert all(finding.equal for finding in verify_tables(shop.settings, spark, shop.graph))


@pytest.mark.thorough
def test_a_restored_view_loses_what_gets_too_old_later_and_no_restore_brings_it_back(shop: Lakehouse) -> None:
    before = {name: str(log.latest_table_version(shop.workspace().path(name))) for name in ("order", "spending")}
    shop.graph = build_declaration_graph(PIPELINE, [ORDERS, *DERIVED])
    append_delivery(shop.workspace(), ORDERS, 3, [bid(3, "kim", 1, 30)])
    shop.run(LAYER)
    assert shop.rows("spending") == [("ada", 16), ("eve", 2), ("kim", 30)]
    restoring.run_table_restore(shop.lake, "spending", before["spending"])
    assert shop.rows("spending") == [("ada", 16), ("eve", 5)], (
        "with a row that its inputs do not have any more: no change of them tells"
    )
    shop.graph = build_declaration_graph(PIPELINE, [KEPT, *DERIVED])
    shop.run("propagate_deletions")
    left = [("ada", 7), ("bob", 5), ("eve", 2), ("kim", 30)]
    assert shop.rows("spending") == left

    restoring.run_table_restore(shop.lake, "order", before["order"])
    # The young rows of two keys are not in the old version; the old ones, which are, may not come back.
    assert shop.rows("order", "id", "who") == [(2, "ada"), (4, "eve")]
    with pytest.raises(SluiceError, match=r"have become too old since may be in version .* --mode refresh --table spending"):
        restoring.run_table_restore(shop.lake, "spending", before["spending"])
    assert shop.rows("spending") == left

    shop.graph = build_declaration_graph(PIPELINE, [ORDERS, order])
    shop.run(LAYER, mode="refresh", tables=["order"])
    restoring.run_table_restore(shop.lake, "order", before["order"])
    assert shop.rows("order", "id", "who") == [(2, "ada"), (4, "eve")], "nor if all is kept by now"


def test_what_could_not_be_read_goes_by_when_it_was_set_aside(shop: Lakehouse) -> None:
    assert len(shop.rows("orders_quarantine")) == 1
    shop.graph = build_declaration_graph(PIPELINE, [KEPT])
    later = datetime.now(UTC) + timedelta(days=401)
    aging.delete_expired_rows(shop.workspace(), lambda: [], now=later)
    assert shop.rows("orders_quarantine") == [] and shop.rows("orders", "id") == [], "nothing is younger than 400 days then"


@pytest.mark.slow
@pytest.mark.parametrize("declared", [KEPT, ORDERS], ids=["as before", "all is kept by now"])
def test_a_run_that_was_killed_is_brought_to_its_end(
    shop: Lakehouse, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, declared: Source
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rows.refold, "refold_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            shop.run("propagate_deletions")
    assert len(shop.rows("orders", "id")) == 3 and (1, "ada") in shop.rows("order", "id", "who"), "bronze only"
    _as_after_a_vacuum(Path(shop.settings.lake) / "shop" / "bronze" / "orders")
    shop.graph = build_declaration_graph(PIPELINE, [declared, *DERIVED])
    shop.run("propagate_deletions")
    assert shop.rows("order", "id", "who") == [(1, "bob"), (2, "ada"), (4, "eve")]
    assert all(finding.equal for finding in verify_tables(shop.settings, spark, shop.graph))
    assert not list(Path(shop.records.bookkeeping("aging")).glob("*"))


def _as_after_a_vacuum(table: Path) -> None:
    """No earlier version of a table can be read any more."""
    current = DeltaTable(table)
    needed = {Path(file).resolve() for file in current.file_uris()}
    for file in table.rglob("*.parquet"):
        if "_delta_log" not in file.parts and file.resolve() not in needed:
            file.unlink()


@pytest.mark.thorough
def test_a_row_whose_place_was_too_old_goes_when_the_place_that_has_it_too_gets_too_old(
    settings: Settings, spark: SparkSession
) -> None:
    """The file comes again, with another time for the same row: silver does not show the time, so its row is the same."""
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [ORDERS, order]))
    for delivery, days in ((1, 500), (2, 450)):
        append_delivery(lake.workspace(), ORDERS, delivery, [bid(1, "ada", days, 9)], file="1.jsonl")
        lake.run(LAYER)
    assert lake.rows("order", "id", "_delivery") == [(1, 1)]
    for kept, left in (("480 days", [(1, 2)]), ("400 days", [])):
        lake.graph = build_declaration_graph(PIPELINE, [replace(ORDERS, keep_for=kept), order])
        lake.run("propagate_deletions")
        assert lake.rows("order", "id", "_delivery") == left, kept
    assert lake.rows("orders", "id") == []
