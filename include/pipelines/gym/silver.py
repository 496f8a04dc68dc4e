"""Readings without duplicates, corrected, and without sensor faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.declare import F, expect, expect_or_quarantine, table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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


def _instant(seconds: str) -> Column:
    """The instant of a DOUBLE of epoch seconds, to the microsecond; NULL outside the years 1 to 9999.

    A cast truncates, and is a microsecond early for 1101664201.833407. Rounding gives the instant that was
    written: until 2106 the error of a DOUBLE, and of its multiplication, is below half a microsecond.
    """
    value = F.col(seconds)
    microseconds = F.round(value * 1e6).cast("bigint")
    return F.when((value >= YEAR_1) & (value < YEAR_10000), F.timestamp_micros(microseconds))
