"""Spark's numbers about a flow's batches: sums, the longest, and the state after the last one."""

from __future__ import annotations

from typing import Any

from sluice.flows.progress.stream_numbers import join_stream_numbers, summarize_stream_progress


def batch(rows: int, took: int, state: int | None = None, **event_time: str) -> dict[str, Any]:
    """took: milliseconds."""
    took_by = {"triggerExecution": took, "addBatch": took - 300, "queryPlanning": 100, "walCommit": 50, "commitOffsets": 40}
    found: dict[str, Any] = {
        "numInputRows": rows,
        "durationMs": took_by,
        "timestamp": "2026-11-25T03:00:00.500Z",
        "eventTime": event_time,
    }
    operators = (
        [{"numRowsTotal": state, "memoryUsedBytes": 10 * state, "numRowsDroppedByWatermark": 2}] if state is not None else []
    )
    return found | {"stateOperators": operators}


NOTHING_NEW = {"numInputRows": 0, "durationMs": {"triggerExecution": 9, "latestOffset": 5}, "stateOperators": []}


def test_batches_are_summed_and_the_longest_is_kept() -> None:
    found = summarize_stream_progress([batch(100, 2_000), batch(20, 3_000), NOTHING_NEW], 2)
    assert found == {
        "batches": 2,
        "input_rows": 120,
        "seconds": 5.0,
        "longest_batch_seconds": 3.0,
        "computing_seconds": 4.4,
        "planning_seconds": 0.2,
        "begin_seconds": 0.1,
        "end_seconds": 0.08,
    }
    assert summarize_stream_progress([NOTHING_NEW], 0) == {} and summarize_stream_progress([], 0) == {}


def test_of_many_batches_it_is_said_how_many_are_told_of() -> None:
    found = summarize_stream_progress([batch(1, 1_000)] * 100, 240)
    assert (found["batches"], found["told_batches"], found["input_rows"]) == (240, 100, 100)


def test_state_is_that_after_the_last_batch_and_the_watermark_a_number() -> None:
    last = batch(5, 1_000, 30, watermark="2026-11-25T02:59:00.500Z", max="2026-11-25T03:00:00.000Z")
    found = summarize_stream_progress([batch(5, 1_000, 70), last], 2)
    assert {name: found[name] for name in ("state_rows", "state_bytes", "dropped_rows", "watermark_lag_seconds")} == {
        "state_rows": 30,
        "state_bytes": 300,
        "dropped_rows": 4,
        "watermark_lag_seconds": 60,
    }
    assert "2026" not in str(found)
    assert "watermark_lag_seconds" not in summarize_stream_progress([batch(1, 1_000, 1, watermark="1970-01-01T00:00:00.000Z")], 1)


def test_several_queries_of_a_flow_are_one() -> None:
    first, second = {"batches": 1, "seconds": 2.0, "longest_batch_seconds": 2.0, "state_rows": 9}, {"batches": 2, "seconds": 1.5}
    joined = join_stream_numbers([first, second | {"longest_batch_seconds": 1.0, "state_rows": 4}])
    assert joined == {"batches": 3, "seconds": 3.5, "longest_batch_seconds": 2.0, "state_rows": 4}
    assert join_stream_numbers([]) == {}
