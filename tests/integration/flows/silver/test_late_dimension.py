"""A fact and its dimension come in runs of their own, either of them first: the join has both as soon as both are there (F7)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

from sluice.declare import F, Pipeline, Source, Window, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.flows.bronze.append import create_bronze_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="late", description="Late dimensions.", owner="tests", layers=("late.bronze", __name__))
LAYER = __name__.rsplit(".", 1)[-1]
SOURCES = [
    Source(name="readings", pattern="*.jsonl", schema="device INT, at TIMESTAMP, bpm INT", comment="Readings."),
    Source(
        name="handed_out",
        pattern="*.jsonl",
        schema="device INT, since TIMESTAMP, member INT",
        redelivery="replace",
        comment="Who was given which tracker, a file each.",
    ),
]


@table(reads="readings", keys=("device", "at"))
def heart_rate(readings: DataFrame) -> DataFrame:
    """Readings."""
    return readings.select("device", "at", "bpm")


@table(reads="handed_out", keys=("device", "since"))
def trackers(handed_out: DataFrame) -> DataFrame:
    """Who wears a tracker, from when on."""
    return handed_out.select("device", "since", "member")


@materialized_view(reads=("heart_rate", "trackers"), keys=("device", "at"), recompute="keys")
def of_member(heart_rate: DataFrame, trackers: DataFrame) -> DataFrame:
    """Readings with whoever wore the device at their time; those of nobody are left out."""
    since = trackers.select(F.col("device").alias("tracker"), "since", "member")
    worn = (F.col("device") == F.col("tracker")) & (F.col("at") >= F.col("since"))
    last = F.row_number().over(Window.partitionBy("device", "at").orderBy(F.desc("since")))
    return heart_rate.join(since, worn).withColumn("last", last).where("last = 1").select("device", "at", "bpm", "member")


@materialized_view(reads="of_member", keys="member", recompute="keys")
def by_member(of_member: DataFrame) -> DataFrame:
    """How often each member was read, and how fast their heart was at most: a view of the join."""
    return of_member.groupBy("member").agg(F.count(F.lit(1)).alias("readings"), F.max("bpm").alias("highest"))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    return Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [*SOURCES, heart_rate, trackers, of_member, by_member]))


def read(lake: Lakehouse, *readings: tuple[int, int, int]) -> None:
    """Deliver readings of a device at an hour."""
    _land(lake, "readings", [{"device": device, "at": _at(hour), "bpm": bpm} for device, hour, bpm in readings])


def hand_out(lake: Lakehouse, device: int, hour: int, member: int | None) -> None:
    """Deliver who has a device from an hour on; None: nobody has it from then on."""
    rows = [] if member is None else [{"device": device, "since": _at(hour), "member": member}]
    _land(lake, "handed_out", rows, f"{device}_{hour}")


def _land(lake: Lakehouse, source: str, rows: list[dict[str, object]], name: str = "") -> None:
    lake.land(f"{source}/{name or lake.landed}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def _at(hour: int) -> str:
    return datetime(2026, 1, 1, hour, tzinfo=UTC).isoformat()


def held(lake: Lakehouse) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The join as (device, heart rate, member), and its aggregate."""
    lake.run("bronze", LAYER)
    return joined(lake)


def joined(lake: Lakehouse) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    return lake.rows("of_member", "device", "bpm", "member"), lake.rows("by_member")


@pytest.mark.slow
def test_readings_that_came_before_their_tracker_was_known_join_it_later(lake: Lakehouse) -> None:
    read(lake, (1, 9, 60), (1, 12, 90), (2, 9, 70))
    assert held(lake) == ([], [])
    hand_out(lake, 1, 8, 100)
    assert held(lake) == ([(1, 60, 100), (1, 90, 100)], [(100, 2, 90)])
    hand_out(lake, 1, 11, 200)
    assert held(lake) == ([(1, 60, 100), (1, 90, 200)], [(100, 1, 60), (200, 1, 90)])
    hand_out(lake, 1, 11, None)
    assert held(lake) == ([(1, 60, 100), (1, 90, 100)], [(100, 2, 90)])


def test_f7_readings_join_a_tracker_that_becomes_known_later_and_one_that_was_known(lake: Lakehouse) -> None:
    """The rows are put into bronze, and only the layer above it runs: the test above has them come as files."""
    readings, handed_out = SOURCES

    def put(source: Source, *rows: tuple[int, int, int]) -> None:
        lake.landed += 1
        at_hours = [(device, datetime(2026, 1, 1, hour, tzinfo=UTC), value) for device, hour, value in rows]
        append_delivery(lake.workspace(), source, lake.landed, at_hours)

    def held_above_bronze() -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        lake.run(LAYER)
        return joined(lake)

    create_bronze_tables(lake.workspace(), handed_out)
    put(readings, (1, 9, 60))
    assert held_above_bronze() == ([], [])
    put(handed_out, (1, 8, 100))
    put(handed_out, (2, 8, 200))
    assert held_above_bronze() == ([(1, 60, 100)], [(100, 1, 60)])
    put(readings, (2, 12, 80), (1, 7, 50), (1, 8, 70))
    assert held_above_bronze() == ([(1, 60, 100), (1, 70, 100), (2, 80, 200)], [(100, 2, 70), (200, 1, 80)])
