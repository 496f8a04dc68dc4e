"""The tables of `italy` from a few rows as they were delivered."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.italy.bronze import regional_reports
from pipelines.italy.gold import national_7_days, national_day, region_7_days, region_week
from pipelines.italy.silver import COUNTS, region_day
from sluice.declare.quality.expectations import Action

pytestmark = pytest.mark.spark

Report = dict[str, str | None]

FIRST: Report = {
    "data": "2020-02-24 18:00:00",
    "stato": "ITA",
    "codice_regione": "13",
    "denominazione_regione": "Abruzzo",
    "lat": "42.35122196",
    "long": "13.39843823",
    "ricoverati_con_sintomi": "3",
    "terapia_intensiva": "1",
    "totale_ospedalizzati": "4",
    "isolamento_domiciliare": "2",
    "totale_attualmente_positivi": "6",
    "nuovi_attualmente_positivi": "-1",
    "dimessi_guariti": "5",
    "deceduti": "7",
    "totale_casi": "18",
    "tamponi": "96",
}
"""A report as in the first days."""

RENAMED = {
    "lat": "latitudine",
    "long": "longitudine",
    "totale_attualmente_positivi": "totale_positivi",
    "nuovi_attualmente_positivi": "variazione_totale_positivi",
}
NEW: Report = {"nuovi_positivi": "12", "casi_testati": "80", "note": "a, b"}


def reports(spark: SparkSession, *rows: Report) -> DataFrame:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    schema = ", ".join(f"`{column}` STRING" for column in columns)
    return spark.createDataFrame([tuple(row.get(column) for column in columns) for row in rows], schema)


def only(frame: DataFrame) -> dict[str, Any]:
    (row,) = frame.collect()
    return row.asDict()


def region(day: date, code: int, name: str, **counts: int | None) -> dict[str, Any]:
    return {"report_date": day, "region_code": code, "region_name": name} | dict.fromkeys(COUNTS) | counts


def region_days(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    counts = ", ".join(f"{count} BIGINT" for count in COUNTS)
    schema = f"report_date DATE, region_code INT, region_name STRING, {counts}"
    return spark.createDataFrame([tuple(row.values()) for row in rows], schema)


def met(spark: SparkSession, row: Report, action: Action) -> dict[str, bool]:
    """Which expectations of that action the row meets, as the engine judges: NULL is not met unless null_ok."""
    conditions = [
        f"coalesce({one.condition}, {str(one.null_ok).lower()}) AS {one.name}"
        for one in region_day.expectations
        if one.action is action
    ]
    return only(region_day(reports(spark, row)).selectExpr(*conditions))


def test_a_report_of_the_first_days_gets_its_names_and_types(spark: SparkSession) -> None:
    assert only(region_day(reports(spark, FIRST))) == {
        "report_date": date(2020, 2, 24),
        "region_code": 13,
        "region_name": "Abruzzo",
        "latitude": 42.35122196,
        "longitude": 13.39843823,
        "hospitalized_with_symptoms": 3,
        "intensive_care": 1,
        "total_hospitalized": 4,
        "home_isolation": 2,
        "active_cases": 6,
        "active_cases_change": -1,
        "new_cases": None,
        "recovered": 5,
        "deaths": 7,
        "total_cases": 18,
        "tests": 96,
        "people_tested": None,
        "note": None,
    }


def test_types_are_the_same_whatever_columns_have_come(spark: SparkSession) -> None:
    late = {RENAMED.get(name, name): value for name, value in FIRST.items()} | NEW
    expected = [("report_date", "date"), ("region_code", "int"), ("region_name", "string")]
    expected += [("latitude", "double"), ("longitude", "double"), *((count, "bigint") for count in COUNTS), ("note", "string")]
    assert region_day(reports(spark, FIRST)).dtypes == expected
    assert region_day(reports(spark, late)).dtypes == expected


def test_a_report_under_the_later_names_says_the_same(spark: SparkSession) -> None:
    late = {RENAMED.get(name, name): value for name, value in FIRST.items()} | NEW
    early = only(region_day(reports(spark, FIRST)))
    assert only(region_day(reports(spark, late))) == early | {"new_cases": 12, "people_tested": 80, "note": "a, b"}


def test_old_and_new_names_side_by_side_give_each_row_its_own(spark: SparkSession) -> None:
    late = {RENAMED.get(name, name): value for name, value in FIRST.items()} | {"totale_positivi": "60"}
    both = region_day(reports(spark, FIRST | {"note_it": "old"}, late | {"note": "new", "note_it": None}))
    assert [(row["active_cases"], row["latitude"], row["note"]) for row in both.collect()] == [
        (6, 42.35122196, "old"),
        (60, 42.35122196, "new"),
    ]


def test_three_date_forms_are_understood_and_others_are_none(spark: SparkSession) -> None:
    written: dict[str | None, date | None] = {
        "2020-02-24 18:00:00": date(2020, 2, 24),
        "2020-02-24T18:00:00": date(2020, 2, 24),
        "6/3/2020 17:00": date(2020, 3, 6),
        "16/11/2020 9:05": date(2020, 11, 16),
        "30/2/2020 17:00": None,
        "2020-02-30T18:00:00": None,
        "ieri": None,
        "": None,
        None: None,
    }
    found = region_day(reports(spark, *(FIRST | {"data": text} for text in written))).select("report_date").collect()
    assert dict(zip(written, (row[0] for row in found), strict=True)) == written


def test_coordinates_without_their_point_are_none_and_the_row_stays(spark: SparkSession) -> None:
    row = FIRST | {"lat": "4235122196", "long": "1339843823"}
    day = only(region_day(reports(spark, row)))
    assert (day["latitude"], day["longitude"]) == (None, None)
    assert all(met(spark, row, Action.QUARANTINE).values())
    assert met(spark, row, Action.WARN)["known_place"] is False


@pytest.mark.parametrize(
    ("wrong", "broken"),
    [
        ({"data": "ieri"}, "known_date"),
        ({"codice_regione": "XIII"}, "known_region"),
        ({"denominazione_regione": " "}, "known_region"),
        ({"deceduti": "sette"}, "known_counts"),
        ({"tamponi": ""}, "known_counts"),
        ({"totale_casi": "99999999999999999999"}, "known_counts"),
    ],
)
def test_a_row_whose_key_or_count_cannot_be_understood_is_quarantined(spark: SparkSession, wrong: Report, broken: str) -> None:
    assert [name for name, good in met(spark, FIRST | wrong, Action.QUARANTINE).items() if not good] == [broken]


@pytest.mark.parametrize(
    ("wrong", "broken"),
    [
        ({}, []),
        ({"totale_ospedalizzati": "5"}, ["hospitalized_adds_up", "active_adds_up"]),
        ({"totale_attualmente_positivi": "7"}, ["active_adds_up", "total_adds_up"]),
        ({"totale_casi": "19"}, ["total_adds_up"]),
        ({"nuovi_positivi": "-1"}, ["new_cases_not_negative"]),
        ({"nuovi_positivi": "0"}, []),
        ({"lat": None}, ["known_place"]),
    ],
)
def test_sums_and_signs_are_warnings(spark: SparkSession, wrong: Report, broken: list[str]) -> None:
    assert sorted(name for name, good in met(spark, FIRST | wrong, Action.WARN).items() if not good) == sorted(broken)
    assert all(met(spark, FIRST | wrong, Action.QUARANTINE).values())


def test_the_nation_is_the_sum_of_its_regions(spark: SparkSession) -> None:
    day, other = date(2020, 3, 1), date(2020, 3, 2)
    rows = region_days(
        spark,
        region(day, 1, "Piemonte", deaths=2, new_cases=None, tests=10),
        region(day, 2, "Valle d'Aosta", deaths=3, new_cases=4, tests=None),
        region(other, 1, "Piemonte", deaths=5, new_cases=None, tests=11),
    )
    found = [row.asDict() for row in national_day(rows).orderBy("report_date").collect()]
    nothing = dict.fromkeys(COUNTS)
    assert found == [
        {"report_date": day, "regions": 2} | nothing | {"deaths": 5, "new_cases": 4, "tests": 10},
        {"report_date": other, "regions": 1} | nothing | {"deaths": 5, "tests": 11},
    ]


def test_a_week_ends_on_its_last_reported_day(spark: SparkSession) -> None:
    rows = region_days(
        spark,
        # 2021-01-03 is a Sunday of the ISO year 2020; 2021-01-04 begins week 1.
        region(date(2021, 1, 3), 1, "Piemonte", new_cases=-3, intensive_care=9, deaths=21, total_cases=200),
        region(date(2020, 12, 28), 1, "Piemonte", new_cases=5, intensive_care=11, deaths=22, total_cases=190),
        region(date(2021, 1, 4), 1, "Piemonte", new_cases=7, intensive_care=1, deaths=23, total_cases=207),
        region(date(2021, 1, 4), 2, "Valle d'Aosta", new_cases=None, intensive_care=0, deaths=1, total_cases=2),
    )
    found = region_week(rows).orderBy("iso_year", "iso_week", "region_name")
    assert [tuple(row) for row in found.collect()] == [
        (2020, 53, "Piemonte", 2, 11, 21, 200),
        (2021, 1, "Piemonte", 7, 1, 23, 207),
        (2021, 1, "Valle d'Aosta", None, 0, 1, 2),
    ]
    assert found.columns == [
        *("iso_year", "iso_week", "region_name", "new_cases", "peak_intensive_care", "deaths", "total_cases"),
    ]


MONDAY = date(2020, 3, 2)


def later(days: int) -> date:
    return MONDAY + timedelta(days=days)


def test_seven_days_are_counted_by_the_calendar_and_not_by_reports(spark: SparkSession) -> None:
    told = {0: (10, 1), 1: (None, 2), 6: (5, 3), 7: (7, 6), 13: (1, 9), 14: (2, 9)}
    rows = [region(later(day), 1, "Piemonte", new_cases=cases, deaths=deaths) for day, (cases, deaths) in told.items()]
    rows.append(region(later(7), 2, "Valle d'Aosta", new_cases=100, deaths=50))
    frame = region_days(spark, *rows)
    found = [tuple(row) for row in region_7_days(frame).orderBy("region_name", "report_date").collect()]
    assert found == [
        (later(0), "Piemonte", 1, 10, None, None, None),
        (later(1), "Piemonte", 2, 10, None, None, None),
        (later(6), "Piemonte", 3, 15, None, None, None),
        (later(7), "Piemonte", 3, 12, 10, 2, 5),  # not of the seventh row before, which there is none of
        (later(13), "Piemonte", 2, 8, 15, -7, 6),
        (later(14), "Piemonte", 2, 3, 12, -9, 3),
        (later(7), "Valle d'Aosta", 1, 100, None, None, None),
    ]
    nation = {row.report_date: row for row in national_7_days(national_day(frame)).collect()}
    assert tuple(nation[later(7)]) == (later(7), 3, 112, 10, 102, 55)
    assert tuple(nation[later(13)]) == (later(13), 2, 108, 15, 93, 6)


def test_a_region_with_two_codes_on_a_day_has_one_row(spark: SparkSession) -> None:
    twice = region_days(
        spark,
        region(MONDAY, 4, "P.A. Bolzano", new_cases=3, deaths=8),
        region(MONDAY, 21, "P.A. Bolzano", new_cases=4, deaths=7),
        region(later(7), 21, "P.A. Bolzano", new_cases=1, deaths=9),
    )
    found = {row.report_date: (row.new_cases, row.week_before, row.new_deaths) for row in region_7_days(twice).collect()}
    assert found == {MONDAY: (7, None, None), later(7): (1, 7, 2)}


@pytest.mark.parametrize("view", [region_7_days, national_7_days])
def test_a_change_reaches_as_far_as_declared_and_no_further(spark: SparkSession, view: Any) -> None:
    """One report more: every row that differs is within the reach, and its first and last day differ indeed."""
    days = [region(later(day), 1, "Piemonte", new_cases=day, deaths=day) for day in range(30) if day != 10]
    more = [*days, region(later(10), 1, "Piemonte", new_cases=1000, deaths=1000)]
    before, after = (
        {tuple(row) for row in view(frame if view is region_7_days else national_day(frame)).collect()}
        for frame in (region_days(spark, *days), region_days(spark, *more))
    )
    touched = {row[0] for row in before ^ after}
    (reach,) = view.reach.values()
    assert (reach.column, reach.before, reach.after) == ("report_date", "0 days", "13 days")
    assert (min(touched), max(touched)) == (later(10), later(10 + 13))


def test_what_is_declared() -> None:
    assert (regional_reports.redelivery, regional_reports.schema, regional_reports.format) == ("replace", None, "csv")
    assert region_day.keys == ("report_date", "region_code", "region_name")
    assert region_day.key_in_one_file
    assert (national_day.keys, region_week.keys) == (("report_date",), ("iso_year", "iso_week", "region_name"))
