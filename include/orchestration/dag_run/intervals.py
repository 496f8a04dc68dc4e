"""Which runs a schedule makes for which days: the data intervals of a cron expression, in UTC. Imports no Airflow."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from itertools import pairwise

from croniter import CroniterError, croniter  # type: ignore[import-untyped]  # it ships no types

from sluice.declare.interval import Interval
from sluice.errors import UsageError

_DAY = timedelta(days=1)


def data_intervals_starting_within(schedule: str, days: Interval) -> list[Interval]:
    """The data intervals that start within these days, oldest first: those that Airflow's backfill makes runs for.

    Raises UsageError where the schedule is no cron expression.
    """
    try:
        ticks = croniter(schedule, days.start - timedelta(seconds=1), ret_type=datetime)
        borders = [ticks.get_next()]
        while borders[-1] < days.end:
            borders.append(ticks.get_next())
    except CroniterError:
        raise UsageError(f"The schedule '{schedule}' is no cron expression, so it has no intervals.") from None
    return [Interval(a, b) for a, b in pairwise(borders)]


def whole_days_replayed(interval: Interval) -> Interval:
    """What a backfill run of this data interval replays: whole days, where the schedule leaves a day or more between its runs.

    The run of a schedule "0 2 * * *" for [the 3rd 02:00, the 4th 02:00) is that of the 3rd. So a backfill of some days takes these
    days, whatever the hour of the schedule, and takes no more and no less than one replay of all of them.
    """
    if interval.end - interval.start < _DAY:
        return interval
    return Interval(*(datetime.combine(border.date(), time(), UTC) for border in (interval.start, interval.end)))
