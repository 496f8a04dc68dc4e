"""Progress of long work: none for short work, not too often, separately for each flow, and no thread is left behind."""

from __future__ import annotations

import io
import itertools
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from typing import Any

import pytest

from sluice import work_progress
from sluice.step_times import StepTimes, collect_step_times, measure_step
from sluice.work_progress import (
    CountedWork,
    FollowedSubject,
    Pace,
    TaskCount,
    count_work,
    follow_subject,
    show_progress,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`show_progress` with a thread that never looks by itself: the test says when."""
    monkeypatch.setattr(work_progress, "_LOOK_EVERY", 3600.0)
    return show_progress


def test_the_first_line_comes_after_ten_seconds_and_the_next_ones_ever_more_calmly(
    clock: list[float], boards: Callable[..., Any]
) -> None:
    out = io.StringIO()
    told: list[float] = []
    with boards("gym", FollowedSubject("bronze"), out=out) as board, count_work("tables", 9):
        for second in range(700):
            clock[0] = 100.0 + second
            before = out.tell()
            board.say_what_is_due(clock[0])
            told += [second] if out.tell() > before else []
    assert told[:3] == [10, 40, 79]
    gaps = [later - earlier for earlier, later in itertools.pairwise(told[1:])]
    assert gaps == sorted(gaps) and max(gaps) <= 301 and len(told) < 9
    assert out.getvalue().splitlines()[0] == "sluice: gym, bronze: 0 of 9 tables (0%); 10 s so far"


def test_of_short_work_nothing_is_said_and_a_function_that_counts_is_not_called(
    clock: list[float], boards: Callable[..., Any]
) -> None:
    out, asked = io.StringIO(), []

    def total() -> int:
        asked.append(1)
        return 40

    with boards("gym", FollowedSubject("bronze"), out=out) as board, count_work("deliveries", total) as work:
        clock[0] += 9
        board.say_what_is_due(clock[0])
        assert (out.getvalue(), asked) == ("", [])
        work.advance(10)
        clock[0] += 1
        board.say_what_is_due(clock[0])
        board.say_what_is_due(clock[0] + 100)
    assert "10 of 40 deliveries (25%), 1 a second, about 30 s left; 10 s so far" in out.getvalue() and asked == [1]


def test_what_is_measured_by_bytes_says_bytes_rate_and_rest(clock: list[float]) -> None:
    work = CountedWork("files examined", 1_000, 4_000_000_000)
    work.advance(100, 1_000_000_000)
    clock[0] += 20
    said = work.describe(clock[0], None)
    assert said == "100 of 1,000 files examined (25%), 1.0 GB of 4.0 GB, 5 a second, about 1 min left"
    assert CountedWork("files found").describe(clock[0], None) == ""
    slow = CountedWork("tables compared", 4, done=1)
    assert slow.describe(slow.began + 120, None) == "1 of 4 tables compared (25%), 0.5 a minute, about 6 min left"


def test_of_a_single_table_its_name_is_said_and_no_count(clock: list[float], boards: Callable[..., Any]) -> None:
    out = io.StringIO()
    with boards("gym", FollowedSubject("verify"), out=out) as board:
        for tables in (["visits"], ["visits", "visitors"]):
            with count_work("tables compared", tables):
                clock[0] += 100
                board.say_what_is_due(clock[0])
    assert out.getvalue().splitlines() == [
        "sluice: gym, verify: visits; 1 min 40 s so far",
        "sluice: gym, verify: 0 of 2 tables compared (0%); 3 min 20 s so far",
    ]


def test_what_spark_does_is_reckoned_by_its_tasks(clock: list[float]) -> None:
    work = CountedWork("files read", 400, 2_000_000_000, by_tasks=True)
    clock[0] += 60
    assert work.describe(clock[0], None) == "0 of 400 files read, 0 B of 2.0 GB"
    said = work.describe(clock[0], TaskCount(3, 8))
    assert said.startswith("about 150 of 400 files read (38%), 750 MB of 2.0 GB") and "about 1 min 40 s left" in said


def test_flows_side_by_side_are_said_each_with_its_own_step_works_and_tasks(
    clock: list[float], boards: Callable[..., Any]
) -> None:
    out, ready, done = io.StringIO(), threading.Barrier(3), threading.Event()
    seen: list[Mapping[str, Sequence[str]]] = []

    def count_tasks(tags: Mapping[str, Sequence[str]]) -> dict[str, TaskCount]:
        seen.append(tags)
        return {name: TaskCount(1, 2) for name, ours in tags.items() if "tag-a" in ours}

    def flow(name: str) -> None:
        times = StepTimes(job_tags=[f"tag-{name}"])
        with ExitStack() as held:
            held.enter_context(collect_step_times(times))
            held.enter_context(follow_subject(FollowedSubject(name, times)))
            held.enter_context(measure_step("computing"))
            held.enter_context(count_work("batches")).advance(3)
            held.enter_context(count_work("files read", 7)).advance(2)
            ready.wait(300)
            done.wait(300)

    with boards("gym", FollowedSubject("bronze"), count_tasks, out=out) as board:
        threads = [threading.Thread(target=copy_context().run, args=(flow, name)) for name in "ab"]
        for thread in threads:
            thread.start()
        ready.wait(300)
        clock[0] += 10
        board.say_what_is_due(clock[0])
        done.set()
        for thread in threads:
            thread.join()
        board.say_what_is_due(clock[0] + 200)
    lines = out.getvalue().splitlines()
    first = sorted(lines[1:3])
    works = "3 batches, 18.0 a minute; 2 of 7 files read (29%), 12.0 a minute, about 25 s left"
    assert lines[0] == "sluice: gym, bronze: 10 s so far"
    assert first[0] == f"sluice: gym, a: computing; {works}; 1 of 2 Spark tasks; 10 s so far"
    assert first[1] == f"sluice: gym, b: computing; {works}; 10 s so far"
    assert lines[3].startswith("sluice: gym, bronze: ") and len(lines) == 4, "what has ended is not said again"


def test_on_a_terminal_one_line_is_written_again_and_taken_away(
    clock: list[float], boards: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = Terminal()
    with boards("gym", FollowedSubject("bronze"), out=out) as board, count_work("tables", 9) as work:
        for _ in range(20):
            clock[0] += 1
            work.done = 4
            board.say_what_is_due(clock[0])
    shown = out.getvalue()
    assert "\n" not in shown and shown.endswith("\r\x1b[K")
    parts = shown.removesuffix("\r\x1b[K").split("\r")[1:]
    assert len(parts) == 6, "each two seconds from the tenth on"
    assert all(part.startswith("gym: bronze: 4 of 9 tables") and len(part.removesuffix("\x1b[K")) <= 60 for part in parts)


def test_the_thread_says_it_by_itself_and_ends_with_the_work_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_progress, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(work_progress, "_PATIENCE", 60.0)
    monkeypatch.setattr(work_progress, "IN_LOG", Pace(first=0.02, every=0.02, growth=1.0))
    out, calls = io.StringIO(), []

    def fail(tags: Mapping[str, Sequence[str]]) -> dict[str, TaskCount]:
        calls.append(tags)
        if len(calls) == 1:
            raise RuntimeError("Spark is gone")
        return {}

    with pytest.raises(ValueError), show_progress("gym", FollowedSubject("bronze"), fail, out=out):
        until = time.monotonic() + 120
        while not out.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        raise ValueError
    assert re.match(r"sluice: gym, bronze: \d+ s so far\n", out.getvalue()) and len(calls) > 1
    assert "sluice progress" not in {thread.name for thread in threading.enumerate()}


def test_within_another_it_is_one_more_subject_and_without_any_it_is_only_counted(
    clock: list[float], boards: Callable[..., Any]
) -> None:
    out = io.StringIO()
    with boards("gym", FollowedSubject("erasure"), out=out) as outer:
        with boards("gym", FollowedSubject("scan"), out=io.StringIO()) as inner, count_work("files scanned", 2):
            clock[0] += 11
            inner.say_what_is_due(clock[0])
        assert inner is outer
    assert out.getvalue().splitlines() == [
        "sluice: gym, erasure: 11 s so far",
        "sluice: gym, scan: 0 of 2 files scanned (0%); 11 s so far",
    ]
    with count_work("files", 3) as work, follow_subject(FollowedSubject("nobody")):
        work.advance()
    assert work.done == 1


def test_a_name_cannot_forge_a_line(clock: list[float], boards: Callable[..., Any]) -> None:
    out = io.StringIO()
    with boards("g\nym", FollowedSubject("bro\nnze"), out=out) as board, count_work("files of a\x1bb listed") as work:
        work.advance()
        clock[0] += 10
        board.say_what_is_due(clock[0])
    assert out.getvalue().count("\n") == 1 and "\x1b" not in out.getvalue()


def test_a_step_that_goes_on_is_the_innermost() -> None:
    times = StepTimes()
    assert times.step_in_progress is None
    with times.measure("streaming"):
        with times.measure("computing"):
            assert times.step_in_progress == "computing"
        assert times.step_in_progress == "streaming"
    assert times.step_in_progress is None
