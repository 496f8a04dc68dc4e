"""What is asked of the reports: the country by day, the regions by week."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.italy.silver import COUNTS
from sluice.declare import F, materialized_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@materialized_view(reads="region_day", keys="report_date", zorder_by="report_date")
def national_day(region_day: DataFrame) -> DataFrame:
    """The regions' counts added up, one row per day.

    regions: how many reported. A count that none of them reported is NULL.
    """
    return region_day.groupBy("report_date").agg(
        F.count(F.lit(1)).alias("regions"),
        *(F.sum(count).alias(count) for count in COUNTS),
    )


@materialized_view(reads="region_day", keys=("iso_year", "iso_week", "region_name"))
def region_week(region_day: DataFrame) -> DataFrame:
    """One row per region and ISO week (Monday to Sunday).

    new_cases: of the week. peak_intensive_care: of its highest day. deaths, total_cases: since the beginning,
    on its last reported day.
    """
    # Two regions changed their code. Should one day have both, the higher code decides, never the order of
    # the rows.
    reported = F.struct("report_date", "region_code")
    return region_day.groupBy(
        F.year(F.date_add(F.date_trunc("week", "report_date").cast("date"), 3)).alias("iso_year"),  # that of its Thursday
        F.weekofyear("report_date").alias("iso_week"),
        "region_name",
    ).agg(
        F.sum("new_cases").alias("new_cases"),
        F.max("intensive_care").alias("peak_intensive_care"),
        F.max_by("deaths", reported).alias("deaths"),
        F.max_by("total_cases", reported).alias("total_cases"),
    )
