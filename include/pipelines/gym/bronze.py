"""What is delivered: several files of readings a day, as JSON lines."""

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
    comment="Heart rate readings in beats per minute; time and received_at in seconds since 1970-01-01 UTC.",
)
