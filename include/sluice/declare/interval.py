"""A half-open interval of time, as a backfill names it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from sluice.errors import UsageError

_DAY = timedelta(days=1)


@dataclass(frozen=True, order=True)
class Interval:
    """From `start` up to, but not including, `end`; both in UTC."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, start: str, end: str) -> Interval:
        """The interval between two texts. An end that is a date includes that whole day; an end that is an instant is itself excluded.

        Raises UsageError if a text is neither date nor instant, or if the start does not lie before the end.
        """
        first, last = parse_instant(start, "--from"), parse_instant(end, "--to")
        if parse_date(end) is not None:
            last += _DAY
        if first >= last:
            raise UsageError(f"--from {start} does not lie before the end, --to {end}. Swap them, or name a later end.")
        return cls(first, last)

    @classmethod
    def of_days(cls, first: date, last: date) -> Interval:
        """The interval of whole days from the first to the last, both included."""
        return cls(datetime.combine(first, time(), UTC), datetime.combine(last, time(), UTC) + _DAY)

    def __contains__(self, moment: datetime) -> bool:
        return self.start <= moment < self.end

    def __str__(self) -> str:
        if self.start.time() == self.end.time() == time():
            first, last = self.start.date(), (self.end - _DAY).date()
            return f"{first}" if first == last else f"{first} to {last}"
        return f"{self.start:%Y-%m-%dT%H:%M:%SZ} up to {self.end:%Y-%m-%dT%H:%M:%SZ}"

    def days(self) -> list[Interval]:
        """One interval for each of its days (UTC); the first and the last may be parts of a day."""
        borders = [self.start]
        while borders[-1] < self.end:
            midnight = datetime.combine(borders[-1].date(), time(), UTC) + _DAY
            borders.append(min(midnight, self.end))
        return [Interval(a, b) for a, b in itertools.pairwise(borders)]

    def without(self, others: Iterable[Interval]) -> list[Interval]:
        """What is left of it after the other intervals are taken out."""
        left = [self]
        for other in others:
            left = [part for one in left for part in one._minus(other)]
        return left

    def _minus(self, other: Interval) -> list[Interval]:
        if other.end <= self.start or other.start >= self.end:
            return [self]
        before = [Interval(self.start, other.start)] if self.start < other.start else []
        return before + ([Interval(other.end, self.end)] if other.end < self.end else [])


ALL_DATES = Interval(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
"""All time: for instance the dates of records with dates of their own (`dated_by`), which only Spark can read."""


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time in the fewest possible intervals, in order."""
    found: list[Interval] = []
    for one in sorted(intervals):
        if found and one.start <= found[-1].end:
            found[-1] = Interval(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def parse_date(text: str) -> date | None:
    """The date that a text without a time names, such as 2026-11-21, 20261121 or 2026-W47-6; None for any other text."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        return None


def parse_instant(text: str, option: str) -> datetime:
    """The instant in UTC that a date or an instant stands for; a text without a zone is UTC. Raises UsageError."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{option} '{text[:40]}' is no date. Write it as 2026-11-21 or 2026-11-21T02:00.") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
