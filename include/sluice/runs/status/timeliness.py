"""Measures whether a pipeline is on time: the age of its published tables' data, and the gaps in its schedule. Needs no JVM.

A gap is a scheduled interval whose run never came or failed, by the run ledger. Time in which the pipeline was kept running is no gap,
although the schedule has no runs for it: this module records it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from croniter import croniter  # type: ignore[import-untyped]  # it ships no types

from sluice.declare.assembly.graph import Graph
from sluice.declare.interval import Interval, merge_intervals
from sluice.declare.pipeline import parse_duration
from sluice.declare.schedule_intervals import data_intervals_overlapping, whole_days_replayed
from sluice.durable_files import write_json_durably
from sluice.lake import commit_history
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import Location, locate
from sluice.own_records import KEPT_RUNNING
from sluice.pipeline_records import PipelineRecords
from sluice.record_states import DONE, FAILED
from sluice.run_modes import INCREMENT
from sluice.runs import run_ledger
from sluice.runs.run_ledger import Row
from sluice.runs.status.books import PipelineBooks

_WRITE_AFTER = timedelta(minutes=1)


@dataclass(frozen=True)
class Freshness:
    """A published table. data_at: when its rows last changed (UTC); None if no commit shows that. age: the time since then. target: the allowed age.

    The age of a table that never had rows is its own, as `LatestData.since` says; None if there is no table yet.

    checked_at: when a run last brought it up to date, whether or not there was anything new.
    """

    table: str
    data_at: datetime | None
    age: timedelta | None
    target: timedelta | None
    checked_at: datetime | None

    @property
    def late(self) -> bool:
        """Whether its data is older than it may be."""
        return self.target is not None and self.age is not None and self.age > self.target


def measure_freshness(lake: PipelineLake, now: datetime | None = None) -> list[Freshness]:
    """The freshness of each published table."""
    books = PipelineBooks(lake.settings, lake.graph)
    now = now or datetime.now(UTC)
    target = parse_duration(lake.graph.pipeline.freshness) if lake.graph.pipeline.freshness else None
    found = []
    for name in lake.graph.pipeline.publishes:
        data = commit_history.find_latest_data(books.path(name))
        layer = lake.graph.layer(lake.graph[name])
        runs = [row["ended_at"] for row in books.runs if row["flow"] == name and row["stage"] == layer and row["state"] == DONE]
        age = now - data.since if data and data.since else None
        found.append(Freshness(name, data.at if data else None, age, target, runs[-1] if runs else None))
    return found


@dataclass(frozen=True)
class Gap:
    """A range of scheduled intervals without a successful run. failed: for all or part of it a run failed.

    by_days: whether a backfill takes whole days for each of them, as `whole_days_replayed` says.
    """

    interval: Interval
    failed: bool
    missing: bool
    by_days: bool = False

    @property
    def why(self) -> str:
        """Why there was no successful run."""
        return " or ".join([*(["never ran"] if self.missing else []), *(["failed"] if self.failed else [])])

    def command(self, pipeline: str) -> str:
        """The backfill that closes it, by whole days."""
        days = whole_days_replayed(self.interval) if self.by_days else self.interval
        last = days.end - timedelta(microseconds=1)
        return f"sluice backfill {pipeline} --from {days.start:%Y-%m-%d} --to {last:%Y-%m-%d}"


def find_schedule_gaps(lake: PipelineLake, now: datetime | None = None) -> list[Gap]:
    """The gaps since the first scheduled interval in the run ledger, in order.

    The latest interval that has ended counts once a run for it has failed: until the next one its run may still come or be retried.
    """
    now = now or datetime.now(UTC)
    rows = [row for row in run_ledger.read_run_ledger(lake.records) if row["interval_start"] is not None]
    scheduled = [_row_interval(row) for row in rows if row["mode"] == INCREMENT.name]
    if not scheduled:
        return []
    outcomes = list(_classify_run_outcomes(rows, lake.graph))
    done = merge_intervals(interval for interval, state in outcomes if state == DONE)
    failed = merge_intervals(interval for interval, state in outcomes if state == FAILED)
    before, last = _find_last_interval_ends(lake.graph, now)
    end = last if any(one.end >= last for one in failed) else before
    first = min(interval.start for interval in scheduled)
    if first >= end:
        return []
    open_ones = Interval(first, end).without(merge_intervals([*done, *read_kept_running_intervals(lake)]))
    by_days = any(whole_days_replayed(one) != one for one in _list_first_intervals(lake.graph.pipeline.schedule, open_ones))
    if by_days:  # one interval a day at most
        open_ones = [part for one in open_ones for part in _remove_replayed_days(lake.graph.pipeline.schedule, one, done)]
    return [
        Gap(one, failed=one.without(failed) != [one], missing=bool(one.without(failed)), by_days=by_days)
        for one in merge_intervals(open_ones)
    ]


def _list_first_intervals(schedule: str, spans: list[Interval]) -> list[Interval]:
    """The scheduled interval in which each span begins."""
    return [data_intervals_overlapping(schedule, Interval(one.start, one.start + timedelta(seconds=1)))[0] for one in spans]


def _remove_replayed_days(schedule: str, span: Interval, done: list[Interval]) -> list[Interval]:
    """What is left of a span without the scheduled intervals for whose whole days a replay is done, at whatever hour they begin."""
    near = [one for one in done if one.end > span.start - timedelta(days=1) and one.start < span.end]
    return span.without(one for one in data_intervals_overlapping(schedule, span) if not whole_days_replayed(one).without(near))


def _classify_run_outcomes(rows: list[Row], graph: Graph) -> Iterator[tuple[Interval, str]]:
    """Each run's interval and outcome: done (every flow of every layer), failed, or begun."""
    flows = {declared.name: graph.layer(declared) for declared in graph}
    runs: dict[str, list[tuple[int, Row]]] = {}
    first: dict[str, int] = {}
    stages: dict[tuple[Any, ...], int] = {}
    layers: dict[str, set[str]] = {}
    for row in rows:
        # The stage of a table that has another name today, or is gone, ran all the same.
        layers.setdefault(row["run"], set()).update({row["stage"]} if row["state"] == DONE else ())
        if flows.get(row["flow"]) == row["stage"]:
            # The flows of a stage begin together.
            position = stages.setdefault((row["run"], row["stage"], row["started_at"]), len(stages))
            runs.setdefault(row["run"], []).append((position, row))
            first.setdefault(row["flow"], position)
    for run, mine in runs.items():
        # A retried task has a row for each attempt; the last one counts.
        states = {row["flow"]: row["state"] for _, row in mine}
        # Tables that were declared later do not make the earlier runs incomplete.
        began = min(position for position, _ in mine)
        expected = {flow for flow, position in first.items() if position <= began} | {mine[0][1]["flow"]}
        complete = expected <= set(states) and set(flows.values()) <= {*layers[run], *(flows[flow] for flow in states)}
        yield _row_interval(mine[-1][1]), FAILED if FAILED in states.values() else DONE if complete else "begun"


def _find_last_interval_ends(graph: Graph, now: datetime) -> tuple[datetime, datetime]:
    """When the last two scheduled intervals ended, the latest last."""
    ticks = croniter(graph.pipeline.schedule, now + timedelta(microseconds=1))
    last: datetime = ticks.get_prev(datetime)
    before: datetime = ticks.get_prev(datetime)
    return before, last


def _row_interval(row: Row) -> Interval:
    return Interval(row["interval_start"], row["interval_end"])


class KeptRunningSpan:
    """The time for which one process has kept a pipeline running. Use it under the pipeline's lease."""

    def __init__(self, records: PipelineRecords) -> None:
        self._file = _kept_running_file(records)
        self._before = _read_kept_running_spans(self._file)
        self._start = datetime.now(UTC)
        self._last = self._written = self._start

    def looked(self) -> None:
        """Record that a look took everything that had come. It is written once a minute."""
        self._last = datetime.now(UTC)
        if self._written == self._start or self._last - self._written >= _WRITE_AFTER:
            self.write()

    def write(self) -> None:
        """Write the time of the last look, if there was one."""
        if self._last > self._start:
            self._written = self._last
            _write_kept_running_spans(self._file, [*self._before, (self._start, self._last)])


def read_kept_running_intervals(lake: PipelineLake) -> list[Interval]:
    """The scheduled time that looks have covered: from the start of the interval with the first look to the last look."""
    return [
        Interval(croniter(lake.graph.pipeline.schedule, start + timedelta(microseconds=1)).get_prev(datetime), end)
        for start, end in _read_kept_running_spans(_kept_running_file(lake.records))
    ]


def _kept_running_file(records: PipelineRecords) -> Location:
    return locate(records.bookkeeping(KEPT_RUNNING.name))


def _read_kept_running_spans(file: Location) -> list[tuple[datetime, datetime]]:
    try:
        spans = json.loads(file.read_text())
        return [(datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in spans]
    except (OSError, ValueError, TypeError):
        return []


def _write_kept_running_spans(file: Location, spans: list[tuple[datetime, datetime]]) -> None:
    write_json_durably(file, [(start.isoformat(), end.isoformat()) for start, end in spans])
