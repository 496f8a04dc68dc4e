"""Personal columns through the layers: stored as treated, joined by pseudonym, restricted, erased. With another key nothing continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice import delta_log
from sluice.declare import Pipeline, Source, expect_or_quarantine, materialized_view, table, treat
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.lazy_spark import F
from sluice.erasure import requests
from sluice.errors import SluiceError, UsageError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import locate, walk_folders
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import compute_pseudonym
from sluice.runs import run_ledger
from sluice.runs.planning import transforms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
ORDERS = Source(name="orders", schema="id BIGINT, who STRING, born DATE, spent INT", subject="who", personal="born")
VISITS = Source(name="visits", schema="mac STRING, seen BIGINT, age INT, who STRING", subject="who", personal=("mac", "age"))


@table(reads="orders", keys="id", subject="who", personal="born")
def order(orders: DataFrame) -> DataFrame:
    """An order, with the person's own number."""
    return orders.select("id", "who", "born", "spent")


@table(reads="orders", keys="who", subject="who", personal={"pseudonym": treat.hmac("user")}, restricted=True)
@expect_or_quarantine("known", "who != 'nobody'")
def person_keys(orders: DataFrame) -> DataFrame:
    """Who is behind a pseudonym."""
    return orders.select("who", F.col("who").alias("pseudonym"))


@materialized_view(
    reads="order",
    keys=("pseudonym", "born"),
    personal={"pseudonym": treat.hmac("user"), "born": treat.date_to_year(), "most": treat.bin(10, 100)},
)
def spending(order: DataFrame) -> DataFrame:
    """What a person spends, without the person."""
    return order.groupBy(F.col("who").alias("pseudonym"), "born").agg(F.sum("spent").alias("spent"), F.max("spent").alias("most"))


@table(
    reads="visits",
    keys="device",
    sequence_by="seen",
    subject="who",
    personal={"device": treat.hmac("device", canonical="hex"), "age": treat.bin(18, 65)},
)
@expect_or_quarantine("of_age", "age >= 14")
def device(visits: DataFrame) -> DataFrame:
    """The last visit of a device."""
    return visits.select(F.col("mac").alias("device"), "seen", "age", "who")


Shop = Callable[..., Lakehouse]


@pytest.fixture
def shop(settings: Settings, spark: SparkSession) -> Shop:
    return lambda *declared: Lakehouse(settings, spark, build_declaration_graph(PIPELINE, declared))


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def of(shop: Lakehouse, who: str, domain: str = "user") -> str | None:
    return compute_pseudonym(secrets.read_secret_key(shop.settings, treat.PSEUDONYM_KEY), domain, who)


def spent(shop: Lakehouse) -> set[tuple[Any, ...]]:
    return {(who, str(born), amount, most) for who, born, amount, most in shop.rows("spending")}


FIRST = (
    {"id": 1, "who": "ada", "born": "1987-06-05", "spent": 5},
    {"id": 2, "who": "ada", "born": "1987-06-05", "spent": 6},
    {"id": 3, "who": "bob", "born": "1990-01-01", "spent": 100},
)


@pytest.mark.slow
def test_what_is_stored_is_treated_and_a_view_follows_by_pseudonym(shop: Shop) -> None:
    lake = shop(ORDERS, order, person_keys, spending)
    lake.land("orders/1.jsonl", lines(*FIRST))
    lake.run()
    ada, bob = of(lake, "ada"), of(lake, "bob")
    assert spent(lake) == {(ada, "1987-01-01", 11, "<10"), (bob, "1990-01-01", 100, ">=100")}
    assert set(lake.rows("person_keys", "who", "pseudonym")) == {("ada", ada), ("bob", bob)}
    # An order changes hands, a new one comes: both persons' rows follow.
    lake.land("orders/2.jsonl", lines({"id": 4, "who": "bob", "born": "1990-01-01", "spent": 1}))
    lake.land("orders/3.jsonl", lines({"id": 5, "who": "eve", "born": None, "spent": 50}))
    lake.run()
    after = {(ada, "1987-01-01", 11, "<10"), (bob, "1990-01-01", 101, ">=100"), (of(lake, "eve"), "None", 50, "10-99")}
    assert spent(lake) == after
    versions = lake.versions()
    lake.run()
    assert lake.versions() == versions, "nothing new, nothing written"

    requests.receive_erasure_request(lake.lake, ["ada"], "who")
    lake.run("propagate_deletions")
    assert spent(lake) == {row for row in after if row[0] != ada}
    assert {who for (who,) in lake.rows("person_keys", "who")} == {"bob", "eve"}


def test_a_key_may_be_a_pseudonym_and_rules_see_the_row_before(shop: Shop) -> None:
    lake = shop(VISITS, device)
    lake.land(
        "visits/1.jsonl",
        lines(
            {"mac": "00:AB:12:00:00:01", "seen": 1, "age": 17},
            {"mac": "00-ab-12-00-00-01", "seen": 3, "age": 66},
            {"mac": "00ab12000001", "seen": 2, "age": 18},
            {"mac": "00ab12000002", "seen": 9, "age": 13},
        ),
    )
    lake.run()
    assert lake.rows("device") == [(of(lake, "00ab12000001", "device"), 3, ">=65", None, 1, 1)], "three ways to write one device"
    assert len(lake.rows("device_quarantine")) == 1
    log_files = locate(lake.workspace().path("device"), "_delta_log").glob("*.json")
    added = [json.loads(line)["add"] for file in log_files for line in file.read_text().splitlines() if '"add"' in line]
    assert added and all("device" not in json.loads(file["stats"])["minValues"] for file in added)


def test_restricted_tables_lie_apart_for_their_owner_only_and_every_command_finds_them(shop: Shop) -> None:
    lake = shop(ORDERS, person_keys)
    lake.land("orders/1.jsonl", lines(*FIRST, {"id": 9, "who": "nobody", "born": None, "spent": 0}))
    lake.run()
    root = lake.settings.restricted
    path = root / "shop" / "test_pseudonyms" / "person_keys"
    assert lake.workspace().path("person_keys") == str(path) and delta_log.is_delta_table(str(path))
    assert root.stat().st_mode & 0o777 == 0o700
    folders = (here for here, _, _ in walk_folders(locate(lake.settings.lake)) if here.name.endswith("person_keys"))
    in_lake = {str(one.relative_to(locate(lake.settings.lake))) for one in folders}
    assert in_lake == {"shop/_sluice/checkpoints/test_pseudonyms_person_keys"}, "neither its rows nor those that it set aside"
    assert len(lake.rows("person_keys_quarantine")) == 1
    found = {
        row["table"]: row
        for row in run_ledger.list_pipeline_tables(PipelineRecords(lake.settings, "shop"))
        if row["layer"] != "quarantine"
    }
    assert found["person_keys"]["path"] == str(path) and found["person_keys"]["rows"] == 2
    assert run_ledger.find_table_path(PipelineRecords(lake.settings, "shop"), "person_keys") == str(path)
    assert run_ledger.find_table_path(PipelineRecords(lake.settings, "shop"), "person_keys_quarantine") == str(
        root / "shop" / "quarantine" / "person_keys"
    )
    lake.run("optimize", "vacuum")


@pytest.mark.thorough
def test_rows_do_not_stay_where_a_table_was_before_it_was_restricted(shop: Shop, spark: SparkSession) -> None:
    lake = shop(ORDERS, person_keys)
    lake.land("orders/1.jsonl", lines(*FIRST))
    lake.run()
    open_ = Lakehouse(lake.settings, spark, build_declaration_graph(PIPELINE, (ORDERS, replace(person_keys, restricted=False))))
    with pytest.raises(SluiceError, match="'person_keys' is not restricted any more: its earlier rows still lie in"):
        open_.run()
    lake.settings.restricted.chmod(0o755)
    lake.land("orders/2.jsonl", lines({"id": 8, "who": "eve", "born": None, "spent": 0}))
    with pytest.raises(UsageError, match="is open to others"):
        lake.run()


@pytest.mark.slow
def test_nothing_goes_on_with_another_key_and_a_refresh_makes_all_anew(shop: Shop) -> None:
    lake = shop(VISITS, device)
    lake.land("visits/1.jsonl", lines({"mac": "00ab12000001", "seen": 1, "age": 30}))
    lake.run()
    before = lake.rows("device")
    secrets.delete_secret(lake.settings, treat.PSEUDONYM_KEY)
    lake.land("visits/2.jsonl", lines({"mac": "00ab12000001", "seen": 2, "age": 30}))
    with pytest.raises(SluiceError, match=r"The secret 'pseudonym\.key' is not in .* any more"):
        lake.run()
    secrets.ensure_secret(lake.settings, treat.PSEUDONYM_KEY)
    with pytest.raises(SluiceError, match=r"'device' has pseudonyms that were made with another key \(secret 'pseudonym\.key'\)"):
        lake.run()
    assert lake.rows("device") == before
    lake.run("test_pseudonyms", mode="refresh", tables=["device"])
    assert [row[:2] for row in lake.rows("device")] == [(of(lake, "00ab12000001", "device"), 2)]
    lake.land("visits/3.jsonl", lines({"mac": "00ab12000001", "seen": 3, "age": 30}))
    lake.run()
    assert [row[1] for row in lake.rows("device")] == [3]


def test_plans_are_looked_into_without_a_key(spark: SparkSession, settings: Settings) -> None:
    found = transforms.examine_transforms(
        spark, PipelineLake(settings, build_declaration_graph(PIPELINE, (ORDERS, VISITS, order, person_keys, spending, device)))
    )
    assert found.mistakes == []
    assert {(row["view"], tuple(row["columns"])) for row in found.bounds} == {("spending", ())}, "no treated column bounds"
    assert not settings.secrets.exists() and not settings.restricted.exists()

    @materialized_view(reads="order", keys="who", personal={"born": treat.bin(18), "who": treat.hmac("user")})
    def wrong(order: DataFrame) -> DataFrame:
        return order.select("who", "born")

    @materialized_view(reads="order", keys="who", personal={"whom": treat.hmac("user")})
    def unknown(order: DataFrame) -> DataFrame:
        return order.select("who")

    mistakes = transforms.examine_transforms(
        spark, PipelineLake(settings, build_declaration_graph(PIPELINE, (ORDERS, order, wrong, unknown)))
    ).mistakes
    assert [one.split(";")[0] for one in mistakes] == [
        "View 'wrong': personal treats 'born', which is DATE, by treat.bin, which is for numbers",
        "View 'unknown': personal names 'whom', no column of it. Did you mean 'who'?",
    ]
