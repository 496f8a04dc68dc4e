"""Which data intervals a schedule has for some days, and what a backfill of them replays."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from orchestration.backfill.through_airflow import BackfillRequest
from sluice.cli.running.backfill import _describe_time_beyond_days
from sluice.declare.interval import Interval
from sluice.declare.schedule_intervals import data_intervals_replaying, data_intervals_starting_within, whole_days_replayed
from sluice.errors import UsageError

WEEKEND = Interval.of("2026-11-06", "2026-11-09")
"""Friday to Monday."""


@pytest.mark.parametrize(
    "schedule",
    [
        "0 8-18 * * 1-5",
        "0 2,14 * * *",
        "0 2 * * 1",
        "0 2 * * *",
        "0 0 * * *",
        "30 * * * *",
        "0 0,12 * * 1",
        "15 6 1 * *",
        "@weekly",
    ],
)
@pytest.mark.parametrize("days", [WEEKEND, Interval.of("2026-11-07", "2026-11-09"), Interval.of("2026-11-08", "2026-11-08")])
def test_the_runs_per_interval_leave_no_part_of_the_days_out(schedule: str, days: Interval) -> None:
    intervals = data_intervals_replaying(schedule, days)
    assert [one.end for one in intervals[:-1]] == [one.start for one in intervals[1:]]
    assert days.without(whole_days_replayed(one) for one in intervals) == []
    for one in intervals:
        assert days.without([whole_days_replayed(one)]) != [days], "a run that replays none of the days"


@pytest.mark.parametrize("schedule", ["0 8-18 * * 1-5", "0 2,14 * * *", "0 2 * * 1", "0 2 * * *", "*/20 6,18 * * 0,3"])
def test_what_the_intervals_that_airflow_chooses_replay_has_no_gap(schedule: str) -> None:
    replayed = [
        whole_days_replayed(one) for one in data_intervals_starting_within(schedule, Interval.of("2026-10-01", "2026-11-30"))
    ]
    assert [one.end for one, _ in pairwise(replayed)] == [one.start for _, one in pairwise(replayed)]


@pytest.mark.parametrize("schedule", ["0 2 * * *", "30 17 * * *", "0 0 * * *"])
def test_a_daily_schedule_replays_exactly_the_days_whatever_its_hour(schedule: str) -> None:
    assert [whole_days_replayed(one) for one in data_intervals_replaying(schedule, WEEKEND)] == WEEKEND.days()


def test_a_weekly_run_replays_the_days_from_that_of_its_start() -> None:
    found = [whole_days_replayed(one) for one in data_intervals_replaying("0 2 * * 1", Interval.of("2026-11-07", "2026-11-09"))]
    assert found == [Interval.of("2026-11-02", "2026-11-08"), Interval.of("2026-11-09", "2026-11-15")]


def test_the_interval_over_a_weekend_is_replayed_to_its_end() -> None:
    friday_evening, monday_morning = datetime(2026, 11, 6, 18, tzinfo=UTC), datetime(2026, 11, 9, 8, tzinfo=UTC)
    over_weekend = Interval(friday_evening, monday_morning)
    assert over_weekend in data_intervals_replaying("0 8-18 * * 1-5", WEEKEND)
    assert whole_days_replayed(over_weekend) == over_weekend


@pytest.mark.parametrize(
    ("schedule", "said"), [("0 2 * * *", ""), ("0 2 * * 1", "together the runs replay 2026-11-02 to 2026-11-15.")]
)
def test_the_command_says_what_is_replayed_beyond_the_days(schedule: str, said: str) -> None:
    days = Interval.of("2026-11-07", "2026-11-09")
    asked = BackfillRequest("gym", days, (), tuple(data_intervals_replaying(schedule, days)))
    found = _describe_time_beyond_days(asked)
    assert found.endswith(said) and bool(found) == bool(said)


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(UsageError, match="'every day' is no cron expression"):
        data_intervals_replaying("every day", WEEKEND)
