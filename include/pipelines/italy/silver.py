"""One row per region and day, with one name and one type for what was delivered under many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.declare import F, expect, expect_or_quarantine, table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DATE_FORMS = ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss", "d/M/yyyy H:mm")

COUNTS = {
    "hospitalized_with_symptoms": ("ricoverati_con_sintomi",),
    "intensive_care": ("terapia_intensiva",),
    "total_hospitalized": ("totale_ospedalizzati",),
    "home_isolation": ("isolamento_domiciliare",),
    "active_cases": ("totale_positivi", "totale_attualmente_positivi"),
    "active_cases_change": ("variazione_totale_positivi", "nuovi_attualmente_positivi"),
    "new_cases": ("nuovi_positivi",),
    "recovered": ("dimessi_guariti",),
    "deaths": ("deceduti",),
    "total_cases": ("totale_casi",),
    "tests": ("tamponi",),
    "people_tested": ("casi_testati",),
}
"""The counts, each with the column names under which it was delivered, newest first."""

CAME_LATER = ("new_cases", "people_tested")
"""Counts that the first reports did not have. All others are in every report."""

REQUIRED = " AND ".join(f"{count} IS NOT NULL" for count in COUNTS if count not in CAME_LATER)


@table(
    reads="regional_reports",
    keys=("report_date", "region_code", "region_name"),
    zorder_by=("report_date",),
    key_in_one_file=True,
)
@expect_or_quarantine("known_date", "report_date IS NOT NULL")
@expect_or_quarantine("known_region", "region_code IS NOT NULL AND region_name IS NOT NULL")
@expect_or_quarantine("known_counts", REQUIRED)
@expect("known_place", "latitude IS NOT NULL AND longitude IS NOT NULL")
@expect("hospitalized_adds_up", "total_hospitalized = hospitalized_with_symptoms + intensive_care")
@expect("active_adds_up", "active_cases = total_hospitalized + home_isolation")
@expect("total_adds_up", "total_cases = active_cases + recovered + deaths")
@expect("new_cases_not_negative", "new_cases >= 0", null_ok=True)
def region_day(regional_reports: DataFrame) -> DataFrame:
    """Counts of people (and tests) per region and day; coordinates in degrees.

    recovered, deaths, total_cases, tests and people_tested count since the beginning, active_cases_change and
    new_cases since the day before. new_cases and people_tested are NULL in reports from before they were
    counted.
    """
    reports = regional_reports
    return reports.select(
        _parse_day(_first_text(reports, "data")).alias("report_date"),
        _first_text(reports, "codice_regione").try_cast("int").alias("region_code"),
        _first_text(reports, "denominazione_regione").alias("region_name"),
        _parse_degrees(_first_text(reports, "lat", "latitudine"), 90).alias("latitude"),
        _parse_degrees(_first_text(reports, "long", "longitudine"), 180).alias("longitude"),
        *(_first_text(reports, *names).try_cast("bigint").alias(count) for count, names in COUNTS.items()),
        _first_text(reports, "note", "note_it").alias("note"),
    )


def _first_text(reports: DataFrame, *names: str) -> Column:
    """The text delivered under any of these names, trimmed; NULL if it is empty or no such column has come yet."""
    there = [F.nullif(F.trim(F.col(name)), F.lit("")) for name in names if name in reports.columns]
    return F.coalesce(*there) if there else F.lit(None).cast("string")


def _parse_day(text: Column) -> Column:
    """The day of a time in any of the delivered formats, else NULL."""
    return F.coalesce(*(F.try_to_timestamp(text, F.lit(form)) for form in DATE_FORMS)).cast("date")


def _parse_degrees(text: Column, most: int) -> Column:
    """Degrees, or NULL where the value cannot be degrees.

    One delivery has coordinates without their decimal points. The digits do not say where the point belongs
    (7.3 or 73 degrees?), and a row's counts are useful without a place, so it is NULL until the row comes
    again.
    """
    degrees = text.try_cast("double")
    return F.when(F.abs(degrees) <= most, degrees)
