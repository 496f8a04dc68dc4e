"""The data intervals of a cron expression, in UTC: which runs a schedule makes for which days, and what each of them replays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise

from croniter import CroniterError, croniter  # type: ignore[import-untyped]  # it ships no types

from sluice.declare.interval import Interval
from sluice.errors import UsageError


def data_intervals_starting_within(schedule: str, days: Interval) -> list[Interval]:
    """The data intervals that start within these days, oldest first: those for which Airflow's backfill makes runs.

    Raises UsageError if the schedule is not a cron expression.
    """
    with _refuse_other_schedules(schedule):
        ticks = croniter(schedule, days.start - timedelta(seconds=1), ret_type=datetime)
        borders = [ticks.get_next()]
        while borders[-1] < days.end:
            borders.append(ticks.get_next())
        return [Interval(a, b) for a, b in pairwise(borders)]


def data_intervals_overlapping(schedule: str, time_span: Interval) -> list[Interval]:
    """The data intervals that have some time in common with this one, oldest first. Raises UsageError if the schedule is not a cron expression."""
    with _refuse_other_schedules(schedule):
        start = croniter(schedule, time_span.start + timedelta(seconds=1), ret_type=datetime).get_prev()
    return data_intervals_starting_within(schedule, Interval(start, time_span.end))


def data_intervals_replaying(schedule: str, days: Interval) -> list[Interval]:
    """The data intervals whose runs replay any part of these days, oldest first. What the first and the last replay may reach beyond the days.

    Raises UsageError if the schedule is not a cron expression.
    """
    return [one for one in data_intervals_overlapping(schedule, days) if whole_days_replayed(one).end > days.start]


@contextmanager
def _refuse_other_schedules(schedule: str) -> Iterator[None]:
    try:
        yield
    except CroniterError:
        raise UsageError(f"The schedule '{schedule}' is no cron expression, so it has no intervals.") from None


def whole_days_replayed(interval: Interval) -> Interval:
    """The interval that a backfill run replays: whole days, if the schedule's runs are a day or more apart.

    The run of a schedule "0 2 * * *" for [the 3rd 02:00, the 4th 02:00) is that of the 3rd. So a backfill of some days
    replays exactly these days, at whatever hour the schedule runs, just as one replay of all of them does.

    All runs of a schedule are a day or more apart if it has one time of day; then each interval ends at the time at which it starts. With more
    of them no interval does, not even one over a weekend, and each is replayed as it is: then no time lies between two intervals.
    """
    if interval.start.time() != interval.end.time():
        return interval
    return Interval(*(datetime.combine(border.date(), time(), UTC) for border in (interval.start, interval.end)))
