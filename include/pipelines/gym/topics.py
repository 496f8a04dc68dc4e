"""The topics of `events`: what their values hold, and which of them become tables of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.gym.instants import instant
from sluice.declare import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic of `events`. value: what its values hold, as DDL; instants: which of it are epoch seconds.

    Epoch seconds are DOUBLE: a FLOAT has steps of 128 s there, and a start and stop 59 s apart would be one row.
    """

    name: str
    value: str
    instants: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Fanned(Topic):
    """A topic that has its own table. rules: the tags of the rules in rules.csv that its rows must meet."""

    table: str
    comment: str
    keys: tuple[str, ...]
    personal: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


TOPICS = (
    Fanned(
        name="workout",
        table="workouts",
        comment="Starts and stops of workouts, one row each.",
        value="workout_id BIGINT, session_id BIGINT, action STRING, time DOUBLE",
        instants=("time",),
        keys=("user_id", "workout_id", "time"),
    ),
    Fanned(
        name="bpm",
        table="bpm",
        comment="Heart rates in beats per minute during workouts, one row per device and instant (UTC).",
        value="device_id BIGINT, time DOUBLE, heartrate DOUBLE",
        instants=("time",),
        keys=("device_id", "time"),
        personal=("device_id",),
        rules=("heart_rates",),
    ),
)
USER_INFO = Topic(
    name="user_info",
    value=(
        "change STRING, updated_at DOUBLE, first_name STRING, last_name STRING, birth_date DATE, gender STRING, city STRING, state STRING"
    ),
    instants=("updated_at",),
)


def values(topic: Topic, events: DataFrame) -> DataFrame:
    """A topic's events: whose they are, and the fields of their values; NULL where a value cannot be read."""
    mine = events.where(F.col("topic") == topic.name)
    read = mine.select(F.col("key").try_cast("bigint").alias("user_id"), F.from_json("value", topic.value).alias("value"))
    return read.select("user_id", "value.*").withColumns({name: instant(name) for name in topic.instants})
