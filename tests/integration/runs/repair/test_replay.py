"""A backfill means something: what the interval touches is as today's code would make it, the rest is as it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse, copy_roots, settings_at

from sluice.declare import F, Pipeline, Source, expect_or_quarantine, materialized_view, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.interval import Interval
from sluice.flows.silver import refold
from sluice.lake.flow_report import report_table_change
from sluice.lake.workspace import PROVENANCE
from sluice.open_tables import open_delta_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

PIPELINE = Pipeline(name="shop", description="Sales.", owner="tests", layers=("shop.bronze", __name__))
LAYERS = ("bronze", __name__.rsplit(".", 1)[-1])
FIRST, DAYS = date(2025, 12, 25), 50
SHOPS = ("north", "south")
sales = Source(
    name="sales",
    format="csv",
    path="sales",
    redelivery="replace",
    infer_types=False,
    date_in_path="%Y%m%d",
    comment="Sales a day.",
)


def declared(factor: int, least: int, source: Source = sales) -> Graph:
    """The pipeline with one version of its transform: amounts times a factor, and a rule."""

    @table(reads="sales", keys=("shop", "day"), zorder_by="day")
    @expect_or_quarantine("enough", f"amount >= {least}")
    def sale(sales: DataFrame) -> DataFrame:
        """What a shop took on a day."""
        return sales.select("shop", F.to_date("day").alias("day"), (F.col("amount").cast("int") * factor).alias("amount"))

    @materialized_view(reads="sale", keys=("shop", "day"), zorder_by="day")
    def week(sale: DataFrame) -> DataFrame:
        """What a shop took in the seven days up to a day."""
        days = sale.select("shop", F.explode(F.sequence("day", F.date_add("day", 6))).alias("day"), "amount")
        return days.groupBy("shop", "day").agg(F.sum("amount").alias("amount"))

    return build_declaration_graph(PIPELINE, [source, sale, week])


OLD, NEW = declared(1, 0), declared(2, 20)


def land_day(lake: Lakehouse, day: date, extra: int = 0) -> None:
    amounts = {shop: (day.toordinal() * 7 + number * 5) % 23 + extra for number, shop in enumerate(SHOPS)}
    rows = "".join(f"{shop},{day},{amount}\n" for shop, amount in amounts.items())
    lake.land(f"sales/sales-{day:%Y%m%d}.csv", f"shop,day,amount\n{rows}")


def days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


@pytest.fixture(scope="module")
def as_it_was(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """Fifty days, taken with the old code."""
    lake = Lakehouse(settings_at(tmp_path_factory.mktemp("old")), spark, OLD)
    for day in days(FIRST, FIRST + timedelta(days=DAYS - 1)):
        land_day(lake, day)
    lake.run(*LAYERS)
    return lake


@pytest.fixture
def lake(as_it_was: Lakehouse, tmp_path: Path) -> Lakehouse:
    """A copy of it, with today's code."""
    return Lakehouse(copy_roots(as_it_was.settings, tmp_path / "copy"), as_it_was.spark, NEW, landed=10_000)


def by_day(lake: Lakehouse, name: str) -> dict[tuple[str, date], int]:
    return {(shop, day): amount for shop, day, amount in lake.rows(name, "shop", "day", "amount")}


def recomputed(lake: Lakehouse) -> dict[tuple[str, date], int]:
    """The view in plain Python, from silver as it is."""
    found: dict[tuple[str, date], int] = {}
    for (shop, day), amount in by_day(lake, "sale").items():
        for later in range(7):
            key = (shop, day + timedelta(days=later))
            found[key] = found.get(key, 0) + amount
    return found


def with_new_code(lake: Lakehouse, some: list[date], extra: int = 0) -> dict[tuple[str, date], int]:
    amounts = {(shop, day): 2 * ((day.toordinal() * 7 + n * 5) % 23 + extra) for day in some for n, shop in enumerate(SHOPS)}
    return {key: amount for key, amount in amounts.items() if amount >= 20}


def test_a_month_is_as_a_full_recompute_would_make_it_and_the_rest_as_it_was(lake: Lakehouse) -> None:
    january = days(date(2026, 1, 1), date(2026, 1, 31))
    was, weeks = by_day(lake, "sale"), by_day(lake, "week")
    lake.replay("2026-01-01", "2026-01-31")
    sale, week = by_day(lake, "sale"), by_day(lake, "week")
    assert {key: amount for key, amount in sale.items() if key[1] in january} == with_new_code(lake, january)
    assert {k: v for k, v in sale.items() if k[1] not in january} == {k: v for k, v in was.items() if k[1] not in january}
    assert week == recomputed(lake)
    reached = days(january[0], january[-1] + timedelta(days=6))
    assert {k: v for k, v in week.items() if k[1] not in reached} == {k: v for k, v in weeks.items() if k[1] not in reached}
    assert any(week.get((shop, reached[-1])) != weeks[shop, reached[-1]] for shop in SHOPS), "the edge of the view moved too"
    aside = {row[0] for row in lake.rows("sale_quarantine", "_delivery")}
    dated = {row["delivery"] for row in lake.outcomes() if any(f"{day:%Y%m%d}" in row["file"] for day in january)}
    assert aside and aside <= dated

    versions = lake.versions()
    reports = lake.replay("2026-01-01", "2026-01-31")
    assert lake.versions() == versions and not any(report.committed for report in reports.values())
    lake.run(*LAYERS)
    assert by_day(lake, "sale") == sale, "an increment goes on as if nothing had happened"


@pytest.mark.thorough
def test_one_run_over_a_range_is_the_same_as_one_a_day(lake: Lakehouse, tmp_path: Path) -> None:
    daily = Lakehouse(copy_roots(lake.settings, tmp_path / "daily"), lake.spark, NEW)
    lake.replay("2026-01-31", "2026-02-01")
    for day in ("2026-02-01", "2026-01-31"):
        daily.replay(day, day)
    for name in ("sale", "week"):
        assert by_day(lake, name) == by_day(daily, name)
    what = ("_delivery", "reasons", "record")
    assert lake.rows("sale_quarantine", *what) == daily.rows("sale_quarantine", *what)


def test_a_corrected_file_of_an_old_day_is_taken_by_a_backfill_of_that_day_and_nothing_else_is(lake: Lakehouse) -> None:
    was = by_day(lake, "sale")
    day, new = date(2026, 1, 10), FIRST + timedelta(days=DAYS)
    land_day(lake, day, extra=100)
    land_day(lake, new)
    reports = lake.replay(str(day), str(day))
    assert reports["sales"].deliveries == 1
    sale = by_day(lake, "sale")
    assert {k: v for k, v in sale.items() if k[1] == day} == with_new_code(lake, [day], extra=100)
    assert {k: v for k, v in sale.items() if k[1] != day} == {k: v for k, v in was.items() if k[1] != day}
    assert by_day(lake, "week") == recomputed(lake)
    reports = lake.run(*LAYERS)
    assert (reports["sales"].deliveries, reports["sale"].inserted) == (1, len(with_new_code(lake, [new])))
    assert by_day(lake, "sale") == {**sale, **with_new_code(lake, [new])}
    assert len(lake.rows("sales")) == (DAYS + 2) * len(SHOPS)


@pytest.mark.slow
def test_a_delivery_that_was_refused_as_a_whole_is_taken_when_its_source_is_declared_as_it_is(lake: Lakehouse) -> None:
    day = date(2026, 1, 12)
    lake.land(f"sales/late-{day:%Y%m%d}.csv", f"shop;day;amount\neast;{day};50\n")
    lake.run(*LAYERS)
    assert lake.outcomes()[-1]["state"] == "quarantined"
    lake.replay(str(day), str(day))
    states = len(lake.outcomes())
    assert lake.outcomes()[-1]["state"] == "quarantined" and len(lake.rows("sales_quarantine")) == 1
    lake.graph = declared(2, 20, replace(sales, delimiter=";"))
    lake.replay(str(day), str(day))
    assert lake.outcomes()[-1]["state"] == "ingested" and len(lake.outcomes()) == states
    assert by_day(lake, "sale")["east", day] == 100
    assert lake.rows("sales_quarantine") == []


@pytest.mark.thorough
def test_a_replay_takes_no_more_bytes_at_a_time_than_an_increment(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.ingest.deliveries import discovery

    for number in range(3):
        lake.land(f"sales/late{number}-20260112.csv", f"shop;day;amount\neast{number};2026-01-12;50\n")
    lake.run("bronze")
    assert [one["state"] for one in lake.outcomes()[-3:]] == ["quarantined"] * 3
    lake.graph = declared(2, 20, replace(sales, delimiter=";"))
    monkeypatch.setattr(discovery, "MOST_BYTES", 1)
    assert lake.run("bronze", mode="replay", interval=Interval.of("2026-01-12", "2026-01-12"))["sales"].batches == 3
    assert len({row[0] for row in lake.rows("sales", "_delivery", "shop") if row[1].startswith("east") and len(row[1]) == 5}) == 3


@pytest.mark.thorough
def test_what_else_a_record_has_in_quarantine_stays_when_one_of_its_rows_is_folded_again(
    settings: Settings, spark: SparkSession
) -> None:
    notes = Source(name="notes", schema="id BIGINT, text STRING")

    @table(reads="notes", keys="word", sequence_by="id")
    @expect_or_quarantine("short", "length(word) < 6")
    def word(notes: DataFrame) -> DataFrame:
        """The words of notes."""
        return notes.select("id", F.explode(F.split("text", " ")).alias("word"))

    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [notes, word]))
    lake.land("notes/1.jsonl", '{"id": 1, "text": "blue violet"}\n{"id": 2, "text": "blue orange"}\n')
    lake.run(*LAYERS)
    workspace = lake.workspace()
    before = set(lake.rows("word_quarantine", "made"))
    assert len(before) == 2
    there = [row[1:] for row in lake.rows("notes", "id", *PROVENANCE) if row[0] == 2]
    second = spark.createDataFrame(there, "_delivery BIGINT, _row BIGINT")
    with report_table_change("word", "silver", workspace.path("word")) as report:
        refold.refold_rows(workspace, word, second, report)
    assert set(lake.rows("word_quarantine", "made")) == before, "of both records"
    # Of the record itself nothing stays that its rows do not say any more.
    open_delta_table(workspace.path("notes")).delete("id = 2")
    with report_table_change("word", "silver", workspace.path("word")) as report:
        refold.refold_rows(workspace, word, second, report, gone=True)
    assert {"violet" in made for (made,) in lake.rows("word_quarantine", "made")} == {True}
