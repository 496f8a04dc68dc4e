"""Readings without duplicates, corrected, and without sensor faults; a table for each topic of the events; visits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.declare import F, expect, expect_or_quarantine, table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sluice.declare.tables import Table

YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800
"""In seconds since 1970: between them lies every instant that all readers of a table can hold."""


@table(
    reads="readings",
    keys=("device_id", "time"),
    sequence_by="received_at",
    zorder_by=("time",),
    subject="device_id",
)
@expect_or_quarantine("known_device_and_time", "device_id IS NOT NULL AND time IS NOT NULL AND received_at IS NOT NULL")
@expect_or_quarantine("positive_heart_rate", "heartrate > 0")
@expect("plausible_heart_rate", "heartrate < 230")
def heart_rate(readings: DataFrame) -> DataFrame:
    """Heart rates in beats per minute, one row per device and instant (UTC): the one received last."""
    heartrate = F.col("heartrate")
    return readings.select(
        "device_id",
        _instant("time").alias("time"),
        F.when(~F.isnan(heartrate), heartrate).alias("heartrate"),  # NaN > 0 is true in Spark
        _instant("received_at").alias("received_at"),
    )


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic of `events` and the table that it becomes. value: what its values hold, as DDL; instants: which of it are epoch seconds.

    Epoch seconds are DOUBLE: a FLOAT has steps of 128 s there, and a start and stop 59 s apart would be one row.
    """

    name: str
    table: str
    comment: str
    value: str
    instants: tuple[str, ...]
    keys: tuple[str, ...]
    sequence_by: str | None = None
    personal: tuple[str, ...] = ()


TOPICS = (
    Topic(
        name="workout",
        table="workouts",
        comment="Starts and stops of workouts, one row each.",
        value="workout_id BIGINT, session_id BIGINT, action STRING, time DOUBLE",
        instants=("time",),
        keys=("user_id", "workout_id", "time"),
    ),
    Topic(
        name="user_info",
        table="users",
        comment="What is known of each member: what was said last.",
        value="change STRING, updated_at DOUBLE, first_name STRING, last_name STRING, birth_date DATE, city STRING",
        instants=("updated_at",),
        keys=("user_id",),
        sequence_by="updated_at",
        personal=("first_name", "last_name", "birth_date", "city"),
    ),
    Topic(
        name="bpm",
        table="bpm",
        comment="Heart rates in beats per minute during workouts, one row per device and instant (UTC).",
        value="device_id BIGINT, time DOUBLE, heartrate DOUBLE",
        instants=("time",),
        keys=("device_id", "time"),
        personal=("device_id",),
    ),
)


def _fanned_out(topic: Topic) -> Table[[DataFrame]]:
    def of_topic(events: DataFrame) -> DataFrame:
        value = F.from_json("value", topic.value).alias("value")
        mine = events.where(F.col("topic") == topic.name).select(F.col("key").try_cast("bigint").alias("user_id"), value)
        return mine.select("user_id", "value.*").withColumns({name: _instant(name) for name in topic.instants})

    of_topic.__doc__ = topic.comment
    needed = dict.fromkeys((*topic.keys, *topic.instants))
    readable = expect_or_quarantine("readable", " AND ".join(f"{name} IS NOT NULL" for name in needed))
    return table(
        name=topic.table,
        reads="events",
        keys=topic.keys,
        sequence_by=topic.sequence_by,
        subject="user_id",
        personal=topic.personal,
    )(readable(of_topic))


fanned_out = [_fanned_out(topic) for topic in TOPICS]


@table(
    reads="gym_visits",
    keys=("mac_address", "gym", "first_seen"),
    sequence_by="last_seen",
    zorder_by="first_seen",
    subject="mac_address",
)
@expect_or_quarantine("known_phone_and_time", "mac_address IS NOT NULL AND first_seen IS NOT NULL AND last_seen IS NOT NULL")
def visits(gym_visits: DataFrame) -> DataFrame:
    """When a gym saw a phone first and last (UTC), one row a visit. The fields that came later stay in bronze."""
    times = {name: F.col(name).try_cast("double") for name in ("first_timestamp", "last_timestamp")}
    return gym_visits.withColumns(times).select(
        "mac_address",
        F.col("gym").try_cast("bigint").alias("gym"),
        _instant("first_timestamp").alias("first_seen"),
        _instant("last_timestamp").alias("last_seen"),
    )


def _instant(seconds: str) -> Column:
    """The instant of a DOUBLE of epoch seconds, to the microsecond; NULL outside the years 1 to 9999.

    A cast truncates, and is a microsecond early for 1101664201.833407. Rounding gives the instant that was
    written: until 2106 the error of a DOUBLE, and of its multiplication, is below half a microsecond.
    """
    value = F.col(seconds)
    microseconds = F.round(value * 1e6).cast("bigint")
    return F.when((value >= YEAR_1) & (value < YEAR_10000), F.timestamp_micros(microseconds))
