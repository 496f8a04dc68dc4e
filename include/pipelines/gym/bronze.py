"""What is delivered: several JSON-lines files of readings a day, and one file a day of everything else.

`readings` holds one topic; `events` holds many topics in one table, which silver fans out. The visits come from two sources in two
formats and go into one table.
"""

from __future__ import annotations

from sluice.declare import Source

readings = Source(
    name="readings",
    format="json",
    path="readings",
    pattern="*.jsonl",
    date_in_path="%Y-%m-%d",
    schema="device_id BIGINT, time DOUBLE, heartrate DOUBLE, received_at DOUBLE",
    subject="device_id",
    subject_at="timestamp_micros(try_cast(time * 1e6 AS BIGINT))",
    comment="Heart rate readings in beats per minute; time and received_at in seconds since 1970-01-01 UTC.",
)

events = Source(
    name="events",
    pattern="*.jsonl",
    date_in_path="%Y-%m-%d",
    schema="key STRING, value STRING, topic STRING, partition INT, offset BIGINT, timestamp BIGINT",
    subject="key",
    domain="user_id",
    personal=("value",),
    comment="Exports of the topics bpm, workout and user_info; key: the member's number; timestamp in milliseconds since 1970-01-01 UTC.",
)

registrations = Source(
    name="registrations",
    format="csv",
    pattern="*.csv",
    date_in_path="%Y-%m-%d",
    schema="device_id BIGINT, mac_address STRING, user_id BIGINT, registered_at BIGINT",
    subject="user_id",
    personal=("device_id", "mac_address"),
    comment="Which device and which phone belong to which member; registered_at is in seconds since 1970-01-01 UTC.",
)

SEEN = "timestamp_micros(try_cast(try_cast(first_timestamp AS DOUBLE) * 1e6 AS BIGINT))"
"""When the phone was first seen. Before and after a visit, the phone may belong to somebody else."""

gym_visits = Source(
    name="gym_visits",
    pattern="*.jsonl",
    date_in_path="%Y-%m-%d",
    subject="mac_address",
    subject_at=SEEN,
    comment="Which phones the gyms saw, as each gym reports it; times are in seconds since 1970-01-01 UTC.",
)

gym_visits_north = Source(
    name="gym_visits_north",
    format="csv",
    pattern="*.csv",
    date_in_path="%Y-%m-%d",
    subject="mac_address",
    subject_at=SEEN,
    into="gym_visits",
    comment="The same from the gym in the north, which uses another system.",
)
