"""What is asked of the readings: each device's day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.declare import F, materialized_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@materialized_view(reads="heart_rate", keys=("device_id", "date"), zorder_by="date", subject="device_id")
def device_day(heart_rate: DataFrame) -> DataFrame:
    """How many readings a device took on a day (UTC); their lowest, average and highest in beats a minute."""
    # A sum of DOUBLEs depends on the order of the rows in its last bits, and a view must equal its recompute.
    # A sum of DECIMALs does not: the average is taken of millionths of a beat. (A sensor that reports a
    # thousand billion beats has no such DECIMAL; it shows in `highest` and stays out of the average.)
    exact = F.col("heartrate").try_cast("decimal(18,6)")
    return heart_rate.groupBy("device_id", F.to_date("time").alias("date")).agg(
        F.count(F.lit(1)).alias("readings"),
        F.min("heartrate").alias("lowest"),
        F.avg(exact).cast("double").alias("average"),
        F.max("heartrate").alias("highest"),
    )
