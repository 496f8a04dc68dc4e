"""A field appears within a column of bronze, and the tables and histories that keep the column get it in the same run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

from sluice.declare import Pipeline, Source, auto_cdc, expect_or_quarantine, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import SluiceError
from sluice.lake import small_writes
from sluice.verification.verify import verify_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("shop.bronze", __name__))

LAYER = __name__.rsplit(".", 1)[-1]

EVENTS = Source(name="events")
FLAT = Source(name="events", schema="id BIGINT, at BIGINT, a BIGINT, b BIGINT")
kept = table(
    name="kept",
    reads="events",
    keys="id",
    sequence_by="at",
    sql="SELECT id, at, s FROM events",
    expectations=(expect_or_quarantine("known", "s.a > 0"),),
)
within = table(
    name="within",
    reads="events",
    keys="id",
    sequence_by="at",
    sql="SELECT id, at, array(s, NULL) AS parts, struct(s) AS o FROM events",
)
state = auto_cdc("state", reads="events", keys="id", sequence_by="at")
history = auto_cdc("history", reads="events", keys="id", sequence_by="at", stored_as_scd_type=2)
above = materialized_view(name="above", reads="kept", keys="id", sql="SELECT id, max_by(s, at) AS s FROM kept GROUP BY id")
MADE = (kept, within, state, history, above)


def shop(settings: Settings, spark: SparkSession, *made: Any) -> Lakehouse:
    return Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [EVENTS, *(made or MADE)]))


def land(lake: Lakehouse, *records: dict[str, Any]) -> None:
    lake.land(f"events/{lake.landed}.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def differing(lake: Lakehouse) -> list[str]:
    return [one.table for one in verify_tables(lake.settings, lake.spark, lake.graph) if not one.equal]


def test_a_field_within_a_column_is_added(settings: Settings, spark: SparkSession) -> None:
    lake = shop(settings, spark)
    land(lake, {"id": 1, "at": 1, "s": {"a": 1}}, {"id": 3, "at": 1, "s": {"a": 3}})
    lake.run()
    # The second row of 3 is as the first, so it begins no interval.
    land(
        lake,
        {"id": 1, "at": 2, "s": {"a": 1, "b": 5, "deep": {"c": [{"d": 1}]}}},
        {"id": 2, "at": 1, "s": {"a": 1, "b": 2}},
        {"id": 3, "at": 2, "s": {"a": 3}},
        {"id": 4, "at": 1, "s": {"a": 0}},
    )
    lake.run()
    one, two, three, four = (1, 5, ([(1,)],)), (1, 2, None), (3, None, None), (0, None, None)
    assert lake.rows("kept", "id", "s") == [(1, one), (2, two), (3, three)]
    assert lake.rows("above") == [(1, one), (2, two), (3, three)]
    assert lake.rows("within", "id", "parts", "o") == [
        (number, [s, None], (s,)) for number, s in enumerate((one, two, three, four), 1)
    ]
    assert lake.rows("state", "id", "s") == [(1, one), (2, two), (3, three), (4, four)]
    assert lake.rows("history", "id", "s", "__START_AT", "__END_AT") == [
        (1, one, 2, None),
        (1, (1, None, None), 1, 2),
        (2, two, 1, None),
        (3, three, 1, None),
        (4, four, 1, None),
    ]
    land(lake, {"id": 1, "at": 1, "s": {"a": 9}}, {"id": 2, "at": 2, "s": {"a": 1, "b": 2, "deep": {"c": [{"e": 1}]}}})
    reports = lake.run()
    assert not any("anew" in note for report in reports.values() for note in report.notes)
    assert lake.rows("kept", "id", "s") == [
        (1, (1, 5, ([(1, None)],))),
        (2, (1, 2, ([(None, 1)],))),
        (3, (3, None, None)),
    ]
    assert sorted((row[0], row[2]) for row in lake.rows("history", "id", "s", "__START_AT")) == [
        *((1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 1))
    ]
    assert differing(lake) == []
    versions = lake.versions()
    lake.run()
    assert lake.versions() == versions  # nothing differs from what is there


@pytest.mark.thorough
def test_spark_adds_a_field_within_a_column_where_rows_are_many(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_writes, "MOST_ROWS", 0)
    lake = shop(settings, spark, kept, state)
    land(lake, {"id": 1, "at": 1, "s": {"a": 1}})
    lake.run()
    land(lake, {"id": 2, "at": 1, "s": {"a": 1, "b": 2}}, {"id": 1, "at": 2, "s": {"a": 3}})
    lake.run()
    for name in ("kept", "state"):
        assert lake.rows(name, "id", "at", "s") == [(1, 2, (3, None)), (2, 1, (1, 2))]


@pytest.mark.thorough
def test_fields_in_another_order_are_put_where_the_table_has_them(settings: Settings, spark: SparkSession) -> None:
    before, after = (
        table(name="kept", reads="events", keys="id", sequence_by="at", sql=f"SELECT id, at, {made} AS s FROM events")
        for made in ("named_struct('a', a)", "named_struct('b-c', struct(b AS `d-e`), 'a', a)")
    )
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [FLAT, before]))
    append_delivery(lake.workspace(), FLAT, 1, [(1, 1, 1, 7)])
    lake.run(LAYER)
    lake.graph = build_declaration_graph(PIPELINE, [FLAT, after])
    append_delivery(lake.workspace(), FLAT, 2, [(2, 1, 1, 2)])
    lake.run(LAYER)
    assert lake.rows("kept", "id", "at", "s") == [(1, 1, (1, None)), (2, 1, (1, (2,)))]
    lake.run(LAYER, mode="refresh", tables=("kept",))
    assert lake.rows("kept", "id", "at", "s") == [(1, 1, (1, (7,))), (2, 1, (1, (2,)))]


def test_a_field_that_the_transform_no_longer_gives_is_refused_until_a_refresh(settings: Settings, spark: SparkSession) -> None:
    before, after = (
        table(name="kept", reads="events", keys="id", sequence_by="at", sql=f"SELECT id, at, {made} AS s FROM events")
        for made in ("named_struct('b', b, 'a', a)", "named_struct('a', a)")
    )
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [FLAT, before]))
    append_delivery(lake.workspace(), FLAT, 1, [(1, 1, 1, 7)])
    lake.run(LAYER)
    lake.graph = build_declaration_graph(PIPELINE, [FLAT, after])
    append_delivery(lake.workspace(), FLAT, 2, [(2, 1, 1, 2)])
    with pytest.raises(
        SluiceError, match="its column 's' is struct<b:bigint,a:bigint>, its transform now gives struct<a:bigint>"
    ):
        lake.run(LAYER)
    lake.run(LAYER, mode="refresh", tables=("kept",))
    assert lake.rows("kept", "id", "s") == [(1, (1,)), (2, (1,))]


@pytest.mark.thorough
def test_ties_go_by_the_order_of_fields_in_the_transform_in_whatever_order_they_came(
    settings: Settings, spark: SparkSession
) -> None:
    tied = table(name="tied", reads="events", keys="id", sql="SELECT id, struct(s.*, at AS z) AS s FROM events")
    lake = shop(settings, spark, tied)
    land(lake, {"id": 0, "at": 1, "s": {"a": 1}})
    lake.run()
    for at in (1, 2):  # the table has a, z and then b, the transform a, b, z
        land(lake, *({"id": number, "at": at, "s": {"a": 3 * number + at, "b": number - at}} for number in range(1, 9)))
        lake.run()
    assert differing(lake) == []
    lake.run(mode="refresh", tables=("tied",))
    assert differing(lake) == []


@pytest.mark.thorough
def test_a_key_that_is_a_struct_is_found_though_its_fields_came_in_another_order(settings: Settings, spark: SparkSession) -> None:
    replaced = Source(name="events", redelivery="replace")
    keyed = table(name="keyed", reads="events", keys="k", sql="SELECT struct(s.*, at AS z) AS k, at FROM events")
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [replaced, keyed]))
    lake.land("events/0.jsonl", json.dumps({"at": 1, "s": {"a": 1}}))
    lake.run()
    lake.land("events/1.jsonl", json.dumps({"at": 2, "s": {"a": 2, "b": 1}}))
    lake.run()
    lake.land("events/0.jsonl", json.dumps({"at": 3, "s": {"a": 3}}))
    lake.run()
    assert lake.rows("keyed", "k.a", "k.b", "k.z", "at") == [(2, 1, 2, 2), (3, None, 3, 3)]
