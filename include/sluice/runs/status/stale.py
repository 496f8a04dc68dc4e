"""Finds stale intervals: the dates for which a silver table has rows that earlier code made.

A view is recomputed when its code changes. A silver table uses the new code for new rows; its older rows stay until their dates are replayed
or the table is refreshed. The run ledger records which code made which rows; a property of the table records it for all rows at once. Needs
no JVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sluice import delta_log, entries
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.tables import Table
from sluice.declare.interval import ALL_DATES, Interval, merge_intervals
from sluice.delivery_rows import RECORDED
from sluice.entries import OrderKey
from sluice.ingest.files import paths
from sluice.lake import commit_history, log
from sluice.lake.flow_report import has_made_all_rows
from sluice.lake.pipeline_lake import PipelineLake
from sluice.record_states import DONE, INGESTED
from sluice.run_modes import REPLAY
from sluice.runs import run_ledger
from sluice.runs.run_ledger import Row
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks
from sluice.table_properties import FINGERPRINT


@dataclass(frozen=True)
class _CodeEvent:
    """An event that made rows of the table. code: a fingerprint. anew: it made all rows; interval: those of a replay."""

    at: OrderKey
    code: str
    done: bool = True
    anew: bool = False
    interval: Interval | None = None


def find_stale_intervals(lake: PipelineLake, table: Table[Any], extent: Interval | None = None) -> list[Interval]:
    """The dates whose rows are by earlier code, in the fewest possible ranges of days.

    extent: for a source with `dated_by`, the dates of its records, if known; otherwise all dates count.
    """
    return _compute_stale_intervals(lake, table, None, extent)


def forecast_stale_intervals(
    lake: PipelineLake, table: Table[Any], interval: Interval, extent: Interval | None = None
) -> list[Interval]:
    """The stale intervals that would remain after a replay of this interval with today's code."""
    return _compute_stale_intervals(lake, table, interval, extent)


def describe_stale_interval(interval: Interval) -> str:
    """An interval in words, also one without an end."""
    if interval == ALL_DATES:
        return "all dates"
    if interval.start == ALL_DATES.start:
        return f"before {interval.end:%Y-%m-%d}"
    return f"from {interval.start:%Y-%m-%d} on" if interval.end == ALL_DATES.end else str(interval)


def _compute_stale_intervals(
    lake: PipelineLake, table: Table[Any], replayed: Interval | None, extent: Interval | None
) -> list[Interval]:
    books = PipelineBooks(lake.settings, lake.graph)
    path = books.path(table.name)
    if not delta_log.is_delta_table(path):
        return []
    today = compute_declaration_fingerprint(table)
    whole = log.read_table_properties(path).get(FINGERPRINT) or ""
    events = _list_code_events(books, table, whole)
    if replayed is not None:
        events.append(_CodeEvent(entries.LAST, today, interval=replayed))
    waiting = lag.find_pending_deliveries(books, table)
    taken = [row for row in books.feeding(table.reads[0], INGESTED) if row["rows"] and row["delivery"] not in waiting]
    if lake.graph.sources[table.reads[0]].dated_by is not None:
        return _find_stale_record_dates(taken, events, whole, today, extent or ALL_DATES)
    days: dict[date, bool] = {}
    for row in taken:
        at = paths.find_delivery_date(lake.graph.sources[row["source"]], row["file"], row["modified_at"])
        earlier = _find_possible_code(entries.entry_order_key(row, RECORDED), at, events, whole) != {today}
        days[at.date()] = days.get(at.date(), False) or earlier
    return _join_stale_days(days)


def _list_code_events(books: PipelineBooks, table: Table[Any], whole: str) -> list[_CodeEvent]:
    """The events that made rows of the table, oldest first. For runs from before the ledger had fingerprints, the table's property counts."""
    layer = books.graph.layer(table)
    found = []
    for row in books.runs:
        if row["flow"] == table.name and (row["stage"] == layer or row["fingerprint"]):
            replay = row["mode"] == REPLAY.name and row["stage"] == layer and row["interval_start"] is not None
            found.append(
                _CodeEvent(
                    at=entries.entry_order_key(row, run_ledger.STARTED),
                    code=row["fingerprint"] or whole,
                    done=row["state"] == DONE,
                    anew=has_made_all_rows(row["note"]),
                    interval=Interval(row["interval_start"], row["interval_end"]) if replay else None,
                )
            )
    set_at = _find_property_commit(books, table.name, whole)
    if set_at is not None:
        found.append(_CodeEvent(set_at, whole, interval=ALL_DATES))
    return sorted(found, key=lambda event: event.at)


def _find_property_commit(books: PipelineBooks, name: str, whole: str) -> OrderKey | None:
    """When the property got its current value, as far back as the table's log goes, and by which run."""
    for commit in commit_history.read_commit_history(books.path(name)):
        if whole and whole in str(commit["parameters"].get("properties", "")):
            same = [row for row in books.runs if row["run"] == commit["note"].get("run")]
            # A killed run left no record: it came after those that had begun before.
            before = same or [row for row in books.runs if commit["at"] and row[run_ledger.STARTED] <= commit["at"]]
            return entries.entry_order_key(before[-1], run_ledger.STARTED) if before else (0, commit["at"])
    return None


def _find_possible_code(folded_from: OrderKey, at: datetime, events: Iterable[_CodeEvent], whole: str) -> set[str]:
    """The code that may have made the rows of a delivery for that date that could be folded from then on.

    A failed run may have folded it or not. If there was no run, one without a record folded it.
    """
    codes: set[str] = set()
    settled = False
    for event in events:
        if event.at < folded_from:
            continue
        if event.interval is not None and not event.anew:
            if at in event.interval:
                codes = {event.code} if event.done else codes | {event.code}
        elif event.anew and event.done:
            codes, settled = {event.code}, True
        elif event.anew or not settled:
            codes.add(event.code)
            settled = settled or event.done
    return codes or {whole}


def _find_stale_record_dates(
    rows: list[Row], events: list[_CodeEvent], whole: str, today: str, extent: Interval
) -> list[Interval]:
    """The stale intervals if each record has its own date: any delivery may have records of any date, so replays count from its folding on."""
    stale: list[Interval] = []
    plain = [event for event in events if event.interval is None or event.interval == ALL_DATES]
    earlier = [
        row for row in rows if _find_possible_code(entries.entry_order_key(row, RECORDED), extent.start, plain, whole) != {today}
    ]
    since = entries.FIRST
    if earlier:
        stale = [extent]
        since = max(
            [entries.entry_order_key(row, RECORDED) for row in earlier] + [event.at for event in plain if event.code != today]
        )
    for event in events:
        if event in plain or event.interval is None or event.at < since:
            continue
        if event.code == today and event.done:
            stale = [part for one in stale for part in one.without([event.interval])]
        elif event.code != today:
            stale = merge_intervals([*stale, event.interval])
    return stale


def _join_stale_days(days: dict[date, bool]) -> list[Interval]:
    """The stale days as ranges. A range includes days without deliveries."""
    ranges: list[tuple[date, date]] = []
    before = False
    for day, stale in sorted(days.items()):
        if stale:
            ranges.append((ranges.pop()[0], day) if before else (day, day))
        before = stale
    return [Interval.of_days(first, last) for first, last in ranges]
