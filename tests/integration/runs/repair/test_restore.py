"""`sluice restore`: a table as it was, in one commit that flows below follow; who was erased since does not come back with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse, copy_roots, settings_at
from tests.few_rows import append_delivery

from sluice.declare import F, Pipeline, Source, auto_cdc, materialized_view, table, treat
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.erasure import requests
from sluice.errors import SluiceError, UsageError
from sluice.lake import commit_history, log, versions
from sluice.locations import locate
from sluice.runs import run_ledger
from sluice.runs.planning import plan as plans
from sluice.runs.repair import restoring
from sluice.runs.status import stale

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.on_store

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("shop.bronze", __name__))
SALES = Source(
    name="sales",
    schema="id BIGINT, buyer STRING, city STRING, amount INT, at INT",
    pattern="*.jsonl",
    subject="buyer",
    personal="city",
)
LAYER = __name__.rsplit(".", 1)[-1]


EVERY = ("sale", "spent", "buyers", "hidden", "last")


def declared(*names: str, more: bool = False, factor: int = 1) -> Graph:
    """The pipeline. names: of its tables, by default of all; more: its table has one column more; factor: another transform."""

    @table(reads="sales", keys="id", sequence_by="at", subject="buyer", personal="city")
    def sale(sales: DataFrame) -> DataFrame:
        """What was sold to whom."""
        made = sales.select("id", "buyer", "city", (F.col("amount") * factor).alias("amount"), "at")
        return made.withColumn("more", F.lit(1)) if more else made

    @materialized_view(reads="sale", keys="buyer", subject="buyer", recompute="keys")
    def spent(sale: DataFrame) -> DataFrame:
        """What a buyer spent."""
        return sale.groupBy("buyer").agg(F.sum("amount").alias("amount"))

    @materialized_view(reads="spent", keys="amount", recompute="keys")
    def buyers(spent: DataFrame) -> DataFrame:
        """How many buyers spent so much."""
        return spent.groupBy("amount").agg(F.count("*").alias("number"))

    @materialized_view(reads="sale", keys="who", subject="who", personal={"who": treat.hmac("buyer")}, recompute="keys")
    def hidden(sale: DataFrame) -> DataFrame:
        """Buyers by a pseudonym."""
        return sale.groupBy(F.col("buyer").alias("who")).agg(F.count("*").alias("number"))

    last = auto_cdc("last", reads="sales", keys="buyer", sequence_by="at", subject="buyer", personal="city")
    made = dict(zip(EVERY, (sale, spent, buyers, hidden, last), strict=True))
    return build_declaration_graph(PIPELINE, [SALES, *(made[name] for name in names or EVERY)])


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """A shop after one delivery, to be copied."""
    lake = Lakehouse(settings_at(tmp_path_factory.mktemp("shop")), spark, declared())
    names, sales = ("id", "buyer", "amount", "at"), ((1, "ann", 10, 1), (2, "bob", 20, 1), (3, "cleo", 30, 1))
    rows = [dict(zip(names, one, strict=True)) | {"city": "Rome"} for one in sales]
    lake.land("sales/0.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    lake.run()
    return lake


@pytest.fixture
def shop(first: Lakehouse, tmp_path: Path) -> Lakehouse:
    """A shop of this test's own."""
    return Lakehouse(copy_roots(first.settings, tmp_path), first.spark, first.graph, landed=100)


def deliver(lake: Lakehouse, *sales: tuple[int, str, int, int]) -> None:
    """Put a delivery into bronze."""
    lake.landed += 1
    append_delivery(lake.workspace(), SALES, lake.landed, [(id, buyer, "Rome", amount, at) for id, buyer, amount, at in sales])


def restore(lake: Lakehouse, name: str, version: int | str | None) -> dict[str, Any]:
    report: dict[str, Any] = restoring.run_table_restore(lake.lake, name, str(version))["flows"][0]
    return report


def path(lake: Lakehouse, name: str) -> str:
    return lake.workspace().path(name)


def erase(lake: Lakehouse, *people: str) -> None:
    requests.receive_erasure_request(lake.lake, people, "buyer")
    lake.run("propagate_deletions")


def fed(lake: Lakehouse, name: str, since: int) -> set[str]:
    """Who is in a table's change feed from a version on, deletes left out."""
    reader = lake.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since)
    return {
        row.buyer for row in reader.load(path(lake, name)).where("_change_type NOT IN ('delete', 'update_preimage')").collect()
    }


def test_a_table_is_as_it_was_in_one_commit_and_what_reads_it_follows(shop: Lakehouse) -> None:
    shop.graph = declared("sale", "spent", "buyers")
    before, version = shop.rows("sale"), log.latest_table_version(path(shop, "sale"))
    deliver(shop, (1, "ann", 11, 2), (4, "dan", 40, 2))
    shop.run(LAYER)
    assert shop.rows("buyers") == [(11, 1), (20, 1), (30, 1), (40, 1)]

    found = restore(shop, "sale", version)
    assert shop.rows("sale") == before
    assert (found["updated"], found["deleted"], found["note"]) == (1, 1, f"restored to version {version}")
    made = commit_history.read_commit_history(path(shop, "sale"), 2)
    assert [commit["operation"] for commit in made] == ["MERGE", "SET TBLPROPERTIES"]
    assert {commit["note"]["mode"] for commit in made} == {"restore"}
    assert [(row["mode"], row["stage"], row["flow"]) for row in run_ledger.read_run_ledger(shop.records)] == [
        ("restore", "restore", "sale")
    ]
    mark = versions.read_restoration_mark(path(shop, "sale"))
    assert mark is not None and mark.version == version and mark.at is not None
    assert [note for note in plans.plan_run(shop.lake).notes if f"'sale' was restored to version {version}" in note]
    assert restore(shop, "sale", version)["version_after"] == found["version_after"], "once more changes nothing"

    # Its flow goes on with what is new, and its readers follow both; what it took since comes with a refresh.
    deliver(shop, (5, "eve", 50, 3))
    reports = shop.run(LAYER)
    assert shop.rows("spent") == [("ann", 10), ("bob", 20), ("cleo", 30), ("eve", 50)]
    assert shop.rows("buyers") == [(10, 1), (20, 1), (30, 1), (50, 1)]
    assert not [note for name in ("spent", "buyers") for note in reports[name].notes if "in full" in note]
    assert [(row[0], row[3]) for row in shop.rows("sale")] == [(1, 10), (2, 20), (3, 30), (5, 50)]
    shop.run(LAYER, mode="refresh", tables=["sale"])
    assert [(row[0], row[3]) for row in shop.rows("sale")] == [(1, 11), (2, 20), (3, 30), (4, 40), (5, 50)]
    assert versions.read_restoration_mark(path(shop, "sale")) is None
    assert shop.rows("buyers") == [(11, 1), (20, 1), (30, 1), (40, 1), (50, 1)]


@pytest.mark.slow
def test_whoever_was_erased_since_does_not_come_back(shop: Lakehouse) -> None:
    versions = {name: log.latest_table_version(path(shop, name)) for name in ("sale", "spent", "buyers", "hidden", "last")}
    erase(shop, "bob")
    since = {name: log.latest_table_version(path(shop, name)) or 0 for name in versions}
    deliver(shop, (1, "ann", 12, 2))
    shop.run(LAYER)
    for name in ("sale", "spent", "last"):
        found = restore(shop, name, versions[name])
        assert found["suppressed"] == 1, name
        column = "buyer"
        assert {row[0] for row in shop.rows(name, column)} == {"ann", "cleo"}, name
        assert fed(shop, name, since[name] + 1) == {"ann"}, name
    assert shop.rows("spent") == [("ann", 10), ("cleo", 30)]
    # Where nothing says whose a row is, only a version of after the erasure is taken.
    for name in ("buyers", "hidden"):
        with pytest.raises(SluiceError, match=r"Somebody who was erased may be in version .* refresh"):
            restore(shop, name, versions[name])
    texts = [file.read_bytes() for file in Path(path(shop, "sale"), "_delta_log").glob("*.json")]
    assert not any(b"bob" in text for text in texts)


@pytest.mark.slow
def test_whoever_is_erased_after_a_restore_leaves_it_too(shop: Lakehouse) -> None:
    version = log.latest_table_version(path(shop, "spent"))
    deliver(shop, (2, "cleo", 20, 2))  # nothing of bob is left in silver
    shop.run(LAYER)
    assert "bob" not in {row[0] for row in shop.rows("spent")}
    restore(shop, "spent", version)
    assert "bob" in {row[0] for row in shop.rows("spent")}
    erase(shop, "bob")
    assert {row[0] for row in shop.rows("spent")} == {"ann", "cleo"}
    assert versions.read_restoration_mark(path(shop, "spent")) is None


def test_requests_that_wait_come_first(shop: Lakehouse) -> None:
    requests.receive_erasure_request(shop.lake, ["bob"], "buyer")
    with pytest.raises(SluiceError, match="Erasure requests of 'shop' wait"):
        restore(shop, "sale", 0)


@pytest.mark.slow
def test_a_target_of_changes_goes_back_and_the_next_change_is_by_its_log(shop: Lakehouse) -> None:
    version = log.latest_table_version(path(shop, "last"))
    deliver(shop, (1, "ann", 11, 2), (2, "bob", 21, 2))
    shop.run(LAYER)
    restore(shop, "last", version)
    assert shop.rows("last", "buyer", "amount") == [("ann", 10), ("bob", 20), ("cleo", 30)]
    deliver(shop, (1, "ann", 12, 3))
    reports = shop.run(LAYER)
    # A small view is recomputed as a whole, and so is not restored any more.
    assert reports["last"].recomputed == "full: small table"
    assert shop.rows("last", "buyer", "amount") == [("ann", 12), ("bob", 21), ("cleo", 30)]
    assert versions.read_restoration_mark(path(shop, "last")) is None


@pytest.mark.thorough
def test_rows_of_earlier_code_are_told_to_be_so(shop: Lakehouse) -> None:
    version = log.latest_table_version(path(shop, "sale"))
    shop.graph = declared("sale", factor=2)
    shop.run(LAYER, mode="refresh", tables=["sale"])
    assert not stale.find_stale_intervals(shop.lake, shop.graph.tables["sale"])
    restore(shop, "sale", version)
    assert stale.find_stale_intervals(shop.lake, shop.graph.tables["sale"])


@pytest.mark.parametrize(
    ("name", "to", "error", "text"),
    [
        ("sales", "0", UsageError, "is bronze"),
        ("sale_quarantine", "0", UsageError, "is a quarantine"),
        ("last_changes", "0", UsageError, "is the change log of 'last'"),
        ("sail", "0", UsageError, "sale"),
        ("sale", "99", UsageError, "has no version 99"),
        ("sale", "yesterday", UsageError, "is no version, date or instant"),
        ("sale", "2001-01-01", UsageError, "is not known as of 2001-01-01"),
    ],
)
def test_what_is_not_restored_says_why(first: Lakehouse, name: str, to: str, error: type[SluiceError], text: str) -> None:
    with pytest.raises(error, match=text):
        restore(first, name, to)


@pytest.mark.thorough
def test_versions_of_other_columns_and_without_their_files_are_refused(shop: Lakehouse) -> None:
    version = log.latest_table_version(path(shop, "sale"))
    shop.graph = declared("sale", "spent", more=True)
    deliver(shop, (1, "ann", 11, 2))
    shop.run(LAYER)
    latest = log.latest_table_version(path(shop, "sale"))
    with pytest.raises(SluiceError, match=rf"other columns than it has now \(more\).* of now: .*{latest}\."):
        restore(shop, "sale", version)
    for file in locate(path(shop, "spent")).glob("*.parquet"):
        file.unlink()
    with pytest.raises(SluiceError, match=r"Files of version 2 of 'shop\.spent' are gone"):
        restore(shop, "spent", 2)
