"""Seconds by step: nothing is counted twice, and nothing without somebody who wants to know."""

from __future__ import annotations

import threading
import time

import pytest

from sluice.step_times import StepTimes, collect_step_times, current_step_times, measure_step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_step_within_a_step_has_its_seconds_alone(clock: list[float]) -> None:
    times = StepTimes()
    with collect_step_times(times), measure_step("streaming"):
        clock[0] += 1
        with measure_step("computing"):
            clock[0] += 2
            with measure_step("writing"):
                clock[0] += 4
            with measure_step("writing"):
                clock[0] += 8
        clock[0] += 16
    assert times.rounded_seconds() == {"streaming": 17.0, "computing": 2.0, "writing": 12.0}


def test_a_step_that_fails_is_counted_and_the_next_one_is_not_within_it(clock: list[float]) -> None:
    times = StepTimes()
    with collect_step_times(times):
        with pytest.raises(ValueError), measure_step("planning"):
            clock[0] += 3
            raise ValueError
        with measure_step("writing"):
            clock[0] += 1
    assert times.rounded_seconds() == {"planning": 3.0, "writing": 1.0}


def test_another_thread_that_does_a_part_of_the_work_counts_in_the_same_object(clock: list[float]) -> None:
    """Acts like a batch, which the JVM calls in its own thread while the flow waits."""
    times = StepTimes()

    def batch() -> None:
        assert current_step_times() is None
        with collect_step_times(times), measure_step("computing"):
            clock[0] += 5

    with collect_step_times(times), measure_step("streaming"):
        clock[0] += 1
        thread = threading.Thread(target=batch)
        thread.start()
        thread.join()
    assert times.rounded_seconds() == {"streaming": 1.0, "computing": 5.0}


def test_a_decorated_function_is_measured_each_time_and_only_for_whoever_wants_to_know(clock: list[float]) -> None:
    @measure_step("writing")
    def write() -> str:
        clock[0] += 1
        return "written"

    assert write() == "written"
    times = StepTimes()
    with collect_step_times(times):
        write()
        with collect_step_times(None):
            write()
        write()
    assert times.rounded_seconds() == {"writing": 2.0}
    assert StepTimes({"looking": 0.001}).rounded_seconds() == {}
