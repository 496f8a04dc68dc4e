"""What people want to know: the country by day, the regions by week, and both over the seven days up to each day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.italy.silver import COUNTS
from sluice.declare import F, TimeReach, Window, materialized_view

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

# A day's sum is used until the end of the week after the one that begins with it.
TWO_WEEKS = TimeReach("report_date", after="13 days")


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

    new_cases: of the week. peak_intensive_care: on its highest day. deaths, total_cases: since the beginning,
    as of its last reported day.
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


@materialized_view(
    reads="region_day", keys=("report_date", "region_name"), zorder_by="report_date", reach={"region_day": TWO_WEEKS}
)
def region_7_days(region_day: DataFrame) -> DataFrame:
    """Each region's seven days up to each day on which it reported. See `_seven_days`."""
    # As in region_week: a region is known by its name, and should it have a day twice, the higher code decides.
    days = region_day.groupBy("report_date", "region_name").agg(
        F.sum("new_cases").alias("new_cases"), F.max_by("deaths", "region_code").alias("deaths")
    )
    return days.select("report_date", "region_name", *_seven_days(Window.partitionBy("region_name")))


@materialized_view(reads="national_day", keys="report_date", zorder_by="report_date", reach={"national_day": TWO_WEEKS})
def national_7_days(national_day: DataFrame) -> DataFrame:
    """The country's seven days up to each reported day. See `_seven_days`."""
    return national_day.select("report_date", *_seven_days(Window.partitionBy()))


def _seven_days(of: WindowSpec) -> list[Column]:
    """The seven days up to each day, by the calendar: days that were not reported are counted, too.

    days: how many of the seven were reported. new_cases: of these seven. week_before: new cases of the seven days before them.
    change: new_cases less week_before, NULL where either is not known. new_deaths: deaths since the day seven days before, NULL
    where that day was not reported.
    """
    by_day = of.orderBy(F.unix_date("report_date"))
    week, before, day_before = by_day.rangeBetween(-6, 0), by_day.rangeBetween(-13, -7), by_day.rangeBetween(-7, -7)
    new_cases, week_before = F.sum("new_cases").over(week), F.sum("new_cases").over(before)
    return [
        F.count(F.lit(1)).over(week).alias("days"),
        new_cases.alias("new_cases"),
        week_before.alias("week_before"),
        (new_cases - week_before).alias("change"),
        (F.col("deaths") - F.max("deaths").over(day_before)).alias("new_deaths"),
    ]
