"""Views over the made-up ward: one of each kind that is bounded in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.declare import F, TimeReach, Window, materialized_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@materialized_view(reads="reading", keys="day", recompute="keys")
def by_day(reading: DataFrame) -> DataFrame:
    """A group-by."""
    return reading.groupBy("day").agg(F.sum("bpm").alias("beats"), F.count(F.lit(1)).alias("readings"))


@materialized_view(reads=("reading", "worn_by"), keys=("monitor", "day"))
def with_patient(reading: DataFrame, worn_by: DataFrame) -> DataFrame:
    """A left join with the dimension."""
    return reading.join(worn_by.select("monitor", "patient"), "monitor", "left").select("monitor", "day", "bpm", "patient")


@materialized_view(reads=("reading", "worn_by"), keys=("patient", "day"), recompute="keys")
def by_patient(reading: DataFrame, worn_by: DataFrame) -> DataFrame:
    """An inner join with an aggregate: rows move between groups when a monitor is given to somebody else."""
    joined = reading.join(worn_by.select("monitor", "patient"), "monitor")
    return joined.groupBy("patient", "day").agg(F.sum("bpm").alias("beats"), F.max("bpm").alias("highest"))


@materialized_view(reads="reading", keys=("day", "monitor"), recompute="keys")
def top_two(reading: DataFrame) -> DataFrame:
    """Top N per key."""
    rank = F.row_number().over(Window.partitionBy("day").orderBy(F.desc("bpm"), "monitor"))
    return reading.select("day", "monitor", "bpm", rank.alias("rank")).where("rank <= 2")


@materialized_view(
    reads="reading", keys=("monitor", "day"), recompute="keys", reach={"reading": TimeReach("day", after="2 days")}
)
def moving_sum(reading: DataFrame) -> DataFrame:
    """The sum of three days, with its declared reach."""
    ordinal = F.datediff("day", F.lit("2026-01-01"))
    three_days = Window.partitionBy("monitor").orderBy(ordinal).rangeBetween(-2, 0)
    return reading.select("monitor", "day", F.sum("bpm").over(three_days).alias("beats"))


@materialized_view(reads=("reading", "worn_by"), keys=("monitor", "day"), recompute="keys")
def unworn(reading: DataFrame, worn_by: DataFrame) -> DataFrame:
    """An anti join: readings of monitors while they are assigned to nobody."""
    return reading.join(worn_by, "monitor", "left_anti").select("monitor", "day", "bpm")


@materialized_view(reads="with_patient", keys="patient")
def monitors_of(with_patient: DataFrame) -> DataFrame:
    """A view of a view, with distinct counts."""
    return with_patient.groupBy("patient").agg(
        F.count_distinct("monitor").alias("monitors"), F.count_distinct("day").alias("days")
    )


@materialized_view(reads="reading", keys="monitor", recompute="full")
def highest(reading: DataFrame) -> DataFrame:
    """Pinned to full recomputes."""
    return reading.groupBy("monitor").agg(F.max("bpm").alias("highest"), F.max("day").alias("last"))
