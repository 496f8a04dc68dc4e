"""Intervals and dates of deliveries."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from sluice.declare import Source
from sluice.declare.interval import Interval, merge_intervals
from sluice.errors import DeclarationError, UsageError
from sluice.ingest.files import paths


def day(number: int, hour: int = 0) -> datetime:
    return datetime(2026, 1, number, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("2026-01-01", "2026-01-31", Interval(day(1), datetime(2026, 2, 1, tzinfo=UTC))),
        ("2026-01-02", "2026-01-02", Interval(day(2), day(3))),
        ("20260102", "20260103", Interval(day(2), day(4))),
        ("2026-W01-5", " 2026-W01-6", Interval(day(2), day(4))),
        ("20260102T02", "20260103T02", Interval(day(2, 2), day(3, 2))),
        ("2026-01-02T02:00:00+00:00", "2026-01-03T02:00:00+00:00", Interval(day(2, 2), day(3, 2))),
        ("2026-01-02T03:00:00+01:00", "2026-01-03T02:00", Interval(day(2, 2), day(3, 2))),
    ],
)
def test_a_date_as_end_is_included_and_an_instant_is_not(start: str, end: str, expected: Interval) -> None:
    assert Interval.of(start, end) == expected


@pytest.mark.parametrize(("start", "end"), [("2026-01-03", "2026-01-02"), ("2026-01-02T01:00", "2026-01-02T01:00")])
def test_an_interval_without_time_in_it_is_refused(start: str, end: str) -> None:
    with pytest.raises(UsageError, match="does not lie before"):
        Interval.of(start, end)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "'; DROP TABLE x", ""])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no date"):
        Interval.of(text, "2026-01-02")


def test_days_cover_an_interval_without_gaps() -> None:
    found = Interval(day(1, 5), day(4)).days()
    assert found == [Interval(day(1, 5), day(2)), Interval(day(2), day(3)), Interval(day(3), day(4))]


def test_what_is_left_of_an_interval() -> None:
    whole = Interval(day(1), day(10))
    assert whole.without([Interval(day(3), day(5)), Interval(day(9), day(20))]) == [
        Interval(day(1), day(3)),
        Interval(day(5), day(9)),
    ]
    assert whole.without([whole]) == []


def test_adjacent_and_overlapping_intervals_become_one() -> None:
    some = [Interval(day(5), day(6)), Interval(day(1), day(3)), Interval(day(3), day(4)), Interval(day(2), day(3))]
    assert merge_intervals(some) == [Interval(day(1), day(4)), Interval(day(5), day(6))]


def test_an_interval_is_named_by_its_days() -> None:
    assert str(Interval.of_days(date(2026, 1, 1), date(2026, 1, 31))) == "2026-01-01 to 2026-01-31"
    assert str(Interval(day(1, 2), day(2, 2))) == "2026-01-01T02:00:00Z up to 2026-01-02T02:00:00Z"


def source(date_in_path: str) -> Source:
    return Source(name="s", format="csv", path="s", comment="It.", date_in_path=date_in_path)


@pytest.mark.parametrize(
    ("written", "file", "expected"),
    [
        ("%Y%m%d", "dpc-covid19-ita-regioni-20260105.csv", day(5)),
        ("%Y-%m-%d", "2025/readings-2026-01-05-late.jsonl", day(5)),
        ("date=%Y-%m-%d", "date=2026-01-05/part-0.csv", day(5)),
        ("%Y%m%d%H", "x-2026010507.csv", day(5, 7)),
        ("%Y%m%d", "99999999-20260105.csv", day(5)),
        ("%Y%m%d", "20260102/x-20260105.csv", day(5)),
        ("%Y%m%d", "visits-20260105153045.json", day(5)),
        ("%Y%m%d", "visits_20260105123045.json", day(5)),
        ("%Y%m%d", "20260105/part-1732060800.json", day(5)),
        ("%Y%m%d", "20260105/6512011231.json", day(5)),
        ("%Y%m%d", "x6512011231.json", day(9)),
        ("%Y%m%d", "x-0120260105.csv", day(5)),
        ("%Y%m%d", "no-date.csv", day(9)),
    ],
)
def test_the_date_in_a_path(written: str, file: str, expected: datetime) -> None:
    assert paths.find_delivery_date(source(written), file, day(9)) == expected


@pytest.mark.parametrize("written", ["", "%Y", "%Y-%m", "%d.%m.%y", "%Y%m%d%d", "2026"])
def test_what_is_no_date_format_is_refused(written: str) -> None:
    with pytest.raises(DeclarationError, match="no date format"):
        source(written)


def test_one_date_is_enough() -> None:
    with pytest.raises(DeclarationError, match="not both"):
        Source(name="s", format="csv", path="s", comment="It.", date_in_path="%Y%m%d", dated_by="day")
