"""Targets of change feeds through bronze and silver: late changes, retractions, replay, feeds that are not there yet, erasure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

from sluice.declare import (
    F,
    Pipeline,
    Source,
    auto_cdc,
    auto_cdc_from_snapshot,
    expect_or_quarantine,
    temporary_view,
)
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import requests
from sluice.lake.pipeline_lake import PipelineLake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from sluice.settings import Settings
from sluice.verification.verify import verify_tables

SCHEMA = "id BIGINT, name STRING, city STRING, at BIGINT, change STRING"
PIPELINE = Pipeline(name="club", description="A club.", owner="tests", layers=("club.bronze", __name__))
SILVER = __name__.rsplit(".", 1)[-1]
LAYERS = ("bronze", SILVER)


def source(name: str, schema: str | None = SCHEMA, **options: Any) -> Source:
    return Source(name=name, format="json", path=name, pattern="*.jsonl", schema=schema, comment="Changes.", **options)


@temporary_view(reads="people")
def member_changes(people: DataFrame) -> DataFrame:
    """Changes of members."""
    return people.select("id", "name", "city", "at", "change")


@temporary_view(reads="people", name="member_changes")
def louder(people: DataFrame) -> DataFrame:
    """The same, as later code has it."""
    return people.select("id", F.upper("name").alias("name"), "city", "at", "change")


OPTIONS: dict[str, Any] = {
    "reads": "member_changes",
    "keys": "id",
    "sequence_by": "at",
    "apply_as_deletes": "change = 'delete'",
    "except_column_list": "change",
    "subject": "id",
}
members = auto_cdc("members", **OPTIONS, expectations=(expect_or_quarantine("named", "name IS NOT NULL"),))
members_history = auto_cdc("members_history", **OPTIONS, stored_as_scd_type=2)
both = auto_cdc("both", reads=("first", "second"), keys="id", sequence_by=("at", "part"), column_list=("id", "name", "city"))
stock = auto_cdc_from_snapshot("stock", reads="extracts", keys="item", snapshot_by="day", stored_as_scd_type=2)

PEOPLE = source("people", redelivery="replace", subject="id", date_in_path="%Y-%m-%d")
BEFORE, AFTER = (build_declaration_graph(PIPELINE, [PEOPLE, view, members, members_history]) for view in (member_changes, louder))
FEEDS = build_declaration_graph(
    PIPELINE,
    [
        source("first", "id BIGINT, name STRING, at BIGINT, part INT"),
        source("second", None, schema_hints="part INT"),
        source("extracts", "item STRING, number INT, day DATE"),
        *(both, stock),
    ],
)


def lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def changes(*rows: tuple[Any, ...]) -> str:
    return lines(dict(zip(("id", "at", "change", "name", "city"), row, strict=False)) for row in rows)


def deliver(lake: Lakehouse, number: int, file: str, *rows: tuple[Any, ...]) -> None:
    """Put a delivery of people into bronze. rows: as those of `changes`."""
    named = (dict(zip(("id", "at", "change", "name", "city"), row, strict=False)) for row in rows)
    told = [tuple(row.get(column) for column in ("id", "name", "city", "at", "change")) for row in named]
    append_delivery(lake.workspace(), PEOPLE, number, told, file=f"{file}.jsonl")


def day(number: int) -> date:
    return date(2026, 1, number)


def history(lake: Lakehouse) -> list[tuple[Any, ...]]:
    return lake.rows("members_history", "id", "name", "city", "__START_AT", "__END_AT")


@pytest.mark.thorough
@pytest.mark.spark
def test_an_empty_text_that_files_are_laid_out_by_is_no_text(settings: Settings, spark: SparkSession) -> None:
    by_city = auto_cdc("by_city", **OPTIONS | {"reads": "people"}, partition_by="city")
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [PEOPLE, by_city]))
    deliver(lake, 1, "2026-01-02", (1, 1, "insert", "Al", ""), (2, 1, "insert", "Bo", "Rome"))
    lake.run(SILVER)
    assert lake.rows("by_city", "id", "city") == [(1, None), (2, "Rome")]
    assert next(verify_tables(settings, spark, lake.graph, ["by_city"])).equal


@pytest.mark.thorough
@pytest.mark.spark
def test_a_change_that_two_files_have_stays_when_one_loses_it_after_the_code_has_changed(
    settings: Settings, spark: SparkSession
) -> None:
    """The key of a log's row has a hash of the row, and today's code makes another one of the same change."""
    before, after = (build_declaration_graph(PIPELINE, [PEOPLE, view, members]) for view in (member_changes, louder))
    lake = Lakehouse(settings, spark, before)
    deliver(lake, 1, "2026-01-02", (1, 3, "update", "Al"), (2, 1, "insert", "Bo"))
    deliver(lake, 2, "2026-01-03", (1, 3, "update", "Al"), (1, 2, "update", "Ali"), (4, 1, "insert", "Di"))
    lake.run(SILVER)
    lake.graph = after
    deliver(lake, 3, "2026-01-02", (2, 1, "insert", "Bo"), (3, 1, "insert", "Cy"))
    lake.run(SILVER)
    assert lake.rows("members", "id", "name") == [(1, "AL"), (2, "BO"), (3, "CY"), (4, "Di")], (
        "of members who lost no row nothing is made again"
    )
    assert [row[:2] for row in lake.rows("members_changes", "id", "name", "at")] == [
        (1, "AL"),
        (1, "ALI"),
        (2, "BO"),
        (3, "CY"),
        (4, "Di"),
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_what_came_late_was_taken_back_replayed_or_erased_leaves_what_the_rest_comes_to(
    settings: Settings, spark: SparkSession
) -> None:
    lake = Lakehouse(settings, spark, BEFORE)
    lake.land(
        "people/2026-01-02.jsonl", changes((1, 5, "delete"), (2, 1, "insert", "Bo", "Rome"), (3, 1, "insert", None, "Rome"))
    )
    lake.run(*LAYERS)
    assert lake.rows("members", "id", "name") == [(2, "Bo")]
    assert history(lake) == [(2, "Bo", "Rome", 1, None), (3, None, "Rome", 1, None)]

    lake.land(
        "people/2026-01-03.jsonl",
        changes(
            (1, 3, "update", "Al", "Oslo"), (1, None, "update", "Al"), (2, 4, "update", None), (2, 6, "update", "Ben", "Rome")
        ),
    )
    lake.run(*LAYERS)
    # An update from before the delete does not bring the member back; its time shows in the history.
    assert lake.rows("members", "id", "name") == [(2, "Ben")]
    assert (1, "Al", "Oslo", 3, 5) in history(lake)
    aside = lake.rows("members_changes_quarantine", "_subject", "reasons")
    assert aside == [("1", ["known_key_and_sequence"]), ("2", ["named"]), ("3", ["named"])]

    # The delete is taken back by a new version of its file; then the late update stands.
    lake.land("people/2026-01-02.jsonl", changes((2, 1, "insert", "Bo", "Rome"), (4, 1, "insert", "Di", "Rome")))
    lake.run(*LAYERS)
    assert lake.rows("members", "id", "name") == [(1, "Al"), (2, "Ben"), (4, "Di")]
    assert set(history(lake)[:4]) == {
        (1, "Al", "Oslo", 3, None),
        (2, "Bo", "Rome", 1, 4),
        (2, None, None, 4, 6),
        (2, "Ben", "Rome", 6, None),
    }

    # One day again, with other code: whoever it tells of is made again, with what other days tell of them, and nobody else.
    lake.graph = AFTER
    lake.replay("2026-01-02", "2026-01-02")
    assert lake.rows("members", "id", "name") == [(1, "Al"), (2, "BEN"), (4, "DI")]
    assert {(1, "Al", "Oslo", 3, None), (2, "BO", "Rome", 1, 4), (2, "BEN", "Rome", 6, None)} <= set(history(lake))

    requests.receive_erasure_request(PipelineLake(settings, lake.graph), ["2"], "id")
    lake.run("propagate_deletions")
    for name, path in lake.workspace().lake.record_tables().items():
        frame = spark.read.format("delta").load(path)
        column = "_subject" if name.endswith("_quarantine") else "id"
        assert frame.where(F.col(column).cast("string") == "2").isEmpty(), name
    assert lake.rows("members", "id", "name") == [(1, "Al"), (4, "DI")]


@pytest.mark.spark
def test_a_feed_that_has_not_come_yet_holds_up_nobody_and_extracts_make_histories(
    settings: Settings, spark: SparkSession
) -> None:
    lake = Lakehouse(settings, spark, FEEDS)
    lake.land("first/1.jsonl", lines([{"id": 1, "at": 1, "part": 1, "name": "a"}, {"id": 1, "at": 1, "part": 2, "name": "b"}]))
    lake.land("extracts/1.jsonl", lines([{"item": "a", "number": 1, "day": "2026-01-01"}, {"item": "b", "day": "2026-01-01"}]))
    lake.run(*LAYERS)
    assert lake.rows("both") == [(1, "b")]
    lake.land("second/1.jsonl", lines([{"id": 1, "at": 2, "part": 0, "city": "Rome"}]))
    lake.land("extracts/2.jsonl", lines([{"item": "a", "number": 1, "day": "2026-01-02"}]))
    lake.run(*LAYERS)
    assert lake.rows("both", "id", "name", "city") == [(1, None, "Rome")]
    assert lake.rows("stock", "item", "__START_AT", "__END_AT") == [("a", day(1), None), ("b", day(1), day(2))]
