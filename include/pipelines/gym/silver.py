"""Readings, corrected and without duplicates or sensor faults; workouts; who the members are and were; visits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.gym.instants import age, instant
from pipelines.gym.topics import TOPICS, USER_INFO, Fanned, values
from sluice.declare import (
    F,
    Link,
    Rules,
    auto_cdc,
    expect_or_quarantine,
    expect_references,
    mask,
    materialized_view,
    role_view,
    table,
    temporary_view,
    treat,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.declare.datasets.tables import Table

RULES = Rules.read("rules.csv")
BANDS = (18, 25, 35, 45, 55, 65)
"""The ages at which the age bands begin."""


@table(
    reads="readings",
    keys=("device_id", "time"),
    sequence_by="received_at",
    zorder_by=("time",),
    subject="device_id",
    subject_at="time",
)
@expect_or_quarantine("known_device_and_time", "device_id IS NOT NULL AND time IS NOT NULL AND received_at IS NOT NULL")
@RULES.tagged("heart_rates")
def heart_rate(readings: DataFrame) -> DataFrame:
    """Heart rates in beats per minute, one row per device and instant (UTC): the one received last. 230 and above is not plausible."""
    heartrate = F.col("heartrate")
    return readings.select(
        "device_id",
        instant("time").alias("time"),
        F.when(~F.isnan(heartrate), heartrate).alias("heartrate"),  # NaN > 0 is true in Spark
        instant("received_at").alias("received_at"),
        (heartrate < 230).alias("plausible"),
    )


def _fanned_out(topic: Fanned) -> Table[[DataFrame]]:
    def of_topic(events: DataFrame) -> DataFrame:
        return values(topic, events)

    of_topic.__doc__ = topic.comment
    needed = dict.fromkeys((*topic.keys, *topic.instants))
    readable = expect_or_quarantine("readable", " AND ".join(f"{name} IS NOT NULL" for name in needed))
    declared = table(
        name=topic.table,
        reads="events",
        keys=topic.keys,
        subject="user_id",
        personal=topic.personal,
        expectations=(RULES.tagged(*topic.rules),) if topic.rules else (),
    )
    return declared(readable(of_topic))


fanned_out = [_fanned_out(topic) for topic in TOPICS]

completed_workouts = materialized_view(
    name="completed_workouts",
    reads="workouts",
    keys=("user_id", "session_id"),
    subject="user_id",
    comment="When each workout began and stopped (UTC), and how many seconds it took; in progress while its stop is not known.",
    expectations=(
        expect_references("of_a_member", "user_id", of="members"),
    ),  # a member who left may train to the end of the month
    sql="""
        SELECT user_id, session_id, min(workout_id) AS workout_id,
               min(time) FILTER (WHERE action = 'start') AS started_at,
               max(time) FILTER (WHERE action = 'stop') AS stopped_at,
               (unix_micros(stopped_at) - unix_micros(started_at)) / 1e6 AS seconds,
               stopped_at IS NULL AS in_progress
        FROM workouts GROUP BY user_id, session_id
    """,
)


@temporary_view(reads="events")
def member_changes(events: DataFrame) -> DataFrame:
    """What was reported about members, in any order: that they joined, what changed, that they left."""
    return values(USER_INFO, events)


PERSONAL = ("first_name", "last_name", "birth_date", "gender", "city", "state")

members = auto_cdc(
    "members",
    reads="member_changes",
    keys="user_id",
    sequence_by="updated_at",
    apply_as_deletes="change = 'delete'",
    except_column_list="change",
    subject="user_id",
    personal=PERSONAL,
    expectations=(RULES.tagged("member_changes"),),
    comment="What is known of each member: the latest report, whenever it arrived. Members who left are not in it.",
)

members_for_coaches = role_view(
    "members_for_coaches",
    reads="members",
    role="coach",
    columns=("user_id", "first_name", "last_name", "birth_date", "city"),
    masks={
        "user_id": None,
        "first_name": None,
        "last_name": mask.first(1),
        "birth_date": mask.sql("make_date(year(birth_date), 1, 1)"),
        "city": None,
    },
)

members_history = auto_cdc(
    "members_history",
    reads="member_changes",
    keys="user_id",
    sequence_by="updated_at",
    apply_as_deletes="change = 'delete'",
    except_column_list=("change", "updated_at"),
    stored_as_scd_type=2,
    subject="user_id",
    personal=PERSONAL,
    expectations=(RULES.tagged("member_changes"),),
    comment="What was known of each member, and when (UTC). A late report stands where it belongs.",
)


@table(
    reads="registrations",
    keys=("device_id", "mac_address"),
    sequence_by="registered_at",
    subject="user_id",
    personal={"device_id": None, "mac_address": None, "pseudonym": treat.hmac("member")},
    restricted=True,
)
@expect_or_quarantine("known_device_and_member", "device_id IS NOT NULL AND mac_address IS NOT NULL AND user_id IS NOT NULL")
def member_keys(registrations: DataFrame) -> DataFrame:
    """The member behind each pseudonym, with the devices and phones that the member has or had. Not for everybody."""
    return registrations.select(
        "user_id",
        F.col("user_id").alias("pseudonym"),
        "device_id",
        "mac_address",
        instant("registered_at").alias("registered_at"),
    )


# Gold reads this table and not `member_keys`: it needs the full history of who wore which device, and no pseudonyms.
# So people who run, copy or look at gold need no access to the restricted tables.
@table(
    reads="registrations",
    keys=("device_id", "registered_at"),
    subject="user_id",
    personal=("device_id", "mac_address"),
)
@expect_or_quarantine("known_device_and_member", "device_id IS NOT NULL AND user_id IS NOT NULL AND registered_at IS NOT NULL")
def memberships(registrations: DataFrame) -> DataFrame:
    """Since when (UTC) a device and a phone belong to a member. It ends with the next registration of the device or the phone."""
    return registrations.select("device_id", instant("registered_at").alias("registered_at"), "user_id", "mac_address")


# Devices and phones change hands. An erasure goes from any of them to the member, and takes only what each reported while it was theirs.
links = [
    Link("memberships", person=("user_id", "user_id"), identifier=(kind, kind), since="registered_at")
    for kind in ("device_id", "mac_address")
]


@materialized_view(
    reads="members",
    keys="pseudonym",
    subject="pseudonym",
    personal={"pseudonym": treat.hmac("member"), "age_band": treat.bin(*BANDS)},
)
def member_bins(members: DataFrame) -> DataFrame:
    """Members without their names. The age is that at the member's last change: with today's age the table would differ from day to day."""
    return members.select(
        F.col("user_id").alias("pseudonym"), age("birth_date", "updated_at").alias("age_band"), "gender", "city", "state"
    )


@table(
    reads="gym_visits",
    keys=("mac_address", "gym", "first_seen"),
    sequence_by="last_seen",
    zorder_by="first_seen",
    subject="mac_address",
    subject_at="first_seen",
    schema="""
        mac_address STRING NOT NULL COMMENT 'the address of the phone that was seen',
        gym BIGINT COMMENT 'the number of the gym that saw it',
        first_seen TIMESTAMP NOT NULL COMMENT 'the beginning of the visit',
        last_seen TIMESTAMP NOT NULL COMMENT 'the end of the visit, as far as it is known',
        CONSTRAINT seen_in_order CHECK (first_seen <= last_seen)
    """,
)
def visits(gym_visits: DataFrame) -> DataFrame:
    """When a gym first and last saw a phone (UTC), one row per visit. Fields that were added later stay in bronze."""
    times = {name: F.col(name).try_cast("double") for name in ("first_timestamp", "last_timestamp")}
    return gym_visits.withColumns(times).select(
        "mac_address",
        F.col("gym").try_cast("bigint").alias("gym"),
        instant("first_timestamp").alias("first_seen"),
        instant("last_timestamp").alias("last_seen"),
    )
