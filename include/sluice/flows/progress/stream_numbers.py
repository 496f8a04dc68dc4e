"""Condenses what Spark counts of a flow's streams (StreamingQueryProgress) for the run ledger, `sluice why` and `sluice metrics`.

No number is a cell's value: they are rows, seconds, bytes, and how far the watermark lags behind the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

STREAM_SECONDS = {
    "addBatch": "computing_seconds",
    "queryPlanning": "planning_seconds",
    "latestOffset": "listing_seconds",
    "getBatch": "preparing_seconds",
    "walCommit": "begin_seconds",
    "commitOffsets": "end_seconds",
}
"""Spark's name of each part of a batch, and ours. listing: finding what is new. begin, end: writing the batch's checkpoint files."""
_LATEST = ("state_rows", "state_bytes", "watermark_lag_seconds")
"""Numbers that hold after the last batch; all others are summed."""
_LARGEST = ("longest_batch_seconds",)


def summarize_stream_progress(progress: Sequence[Mapping[str, Any]], batches: int) -> dict[str, float]:
    """Returns the numbers of a query that has ended.

    progress: its batches as Spark's JSON; Spark keeps the last 100. batches: how many it ran.

    The numbers are batches, told_batches (those that Spark reported, if fewer), input_rows, seconds, longest_batch_seconds and those of
    STREAM_SECONDS. A stream with state also has state_rows, state_bytes (in memory), dropped_rows (too late), and watermark_lag_seconds: from
    the watermark to the start of the last batch.
    """
    ran = [one for one in progress if "addBatch" in one["durationMs"]]
    if not ran:
        return {}
    took = [float(one["durationMs"].get("triggerExecution", 0)) / 1000 for one in ran]
    found: dict[str, float] = {
        "batches": batches,
        "told_batches": len(ran) if len(ran) < batches else 0,
        "input_rows": sum(int(one.get("numInputRows") or 0) for one in ran),
        "seconds": sum(took),
        "longest_batch_seconds": max(took),
    }
    for name, ours in STREAM_SECONDS.items():
        found[ours] = sum(float(one["durationMs"].get(name, 0)) for one in ran) / 1000
    return _round_numbers({**found, **_count_state(ran)})


def join_stream_numbers(queries: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Joins the numbers of a flow that ran several queries, given in their order."""
    found: dict[str, float] = {}
    for query in queries:
        for name, number in query.items():
            before = found.get(name, 0)
            found[name] = number if name in _LATEST else max(before, number) if name in _LARGEST else before + number
    return _round_numbers(found)


def _count_state(ran: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    operators = [one.get("stateOperators") or [] for one in ran]
    if not any(operators):
        return {}
    found = {
        "state_rows": float(sum(int(one["numRowsTotal"]) for one in operators[-1])),
        "state_bytes": float(sum(int(one["memoryUsedBytes"]) for one in operators[-1])),
        "dropped_rows": float(sum(int(one.get("numRowsDroppedByWatermark", 0)) for batch in operators for one in batch)),
    }
    watermark = (ran[-1].get("eventTime") or {}).get("watermark")
    if watermark and not watermark.startswith("1970-01-01"):  # there was no watermark yet
        lag = datetime.fromisoformat(ran[-1]["timestamp"]) - datetime.fromisoformat(watermark)
        found["watermark_lag_seconds"] = round(lag.total_seconds())
    return found


def _round_numbers(numbers: Mapping[str, float]) -> dict[str, float]:
    """Rounds to hundredths and leaves out zeros."""
    return {name: found for name, number in numbers.items() if (found := round(number, 2))}
