"""Options of pytest by which a check takes its turn of the slow tests within a time, and by which their durations are measured.

`make test-slow` takes this commit's turn; `make test-slow TURN=174` another one. `--record-durations` beside any choice of tests writes
what the slow ones among them took into the file that the turns are planned by.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from tests import slow_turns

ROOT = Path(__file__).resolve().parents[1]
DURATIONS = Path(__file__).with_name("slow_durations.json")
RINGS_AGAIN = 1.0
"""Seconds after which an alarm rings again: Python swallows what is raised in a weakref's callback, and py4j has one for each Java object."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that choose slow tests."""
    group = parser.getgroup("slow tests in turns")
    group.addoption("--slow-turn", metavar="COMMIT", help="take the slow tests that are a commit's turn: its number, or HEAD")
    group.addoption(
        "--slow-seconds", metavar="SECONDS", type=float, default=slow_turns.TURN_SECONDS, help="how long that may take"
    )
    group.addoption("--slow-durations", metavar="FILE", type=Path, default=DURATIONS, help="the file of durations")
    group.addoption("--record-durations", action="store_true", help="write what slow tests took into that file")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RecordedDurations(config))
    if config.getoption("slow_turn"):
        turn = TurnOfSlowTests(config)
        config.pluginmanager.register(turn)
        config.pluginmanager.register(TimeLeft(turn))


def commit_number(root: Path, otherwise_at: float | None = None) -> int:
    """How many commits led to the one checked out. If git does not know, the hours since 1970: every turn comes, though not in order.

    otherwise_at: the time that counts then, in seconds since 1970; now, if not given.
    """

    def answer(*words: str) -> str:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False).stdout.strip()

    if answer("rev-parse", "--is-shallow-repository") == "false":
        return int(answer("rev-list", "--count", "HEAD"))
    return int((time.time() if otherwise_at is None else otherwise_at) // 3600)


def measured_durations(file: Path) -> dict[str, float]:
    """What slow tests took, by their names."""
    found: dict[str, float] = json.loads(file.read_text())
    return found


def together(nodeid: str, keywords: Collection[str]) -> str:
    """What takes its turn as a unit: a single test, by its name, or a file of tests of one Airflow in which each continues from the one before."""
    return nodeid.partition("::")[0] if "system" in keywords else nodeid


class RecordedDurations:
    """Adds up the time of each slow test, including its preparation, and writes it beside the times of the others.

    Of a test that does not wait for Airflow it is the CPU time of its processes where that is less than the clock's: the machine may
    have had other work. It is written after each test, so that a measuring that is stopped keeps what it has.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.file: Path = config.getoption("slow_durations")
        self.root = config.rootpath
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        clock, work = time.monotonic(), cpu_seconds_of_tree()
        answer = yield
        if item.get_closest_marker("slow"):
            name = together(item.nodeid, item.keywords)
            took = time.monotonic() - clock
            if not item.get_closest_marker("system"):
                took = min(took, cpu_seconds_of_tree() - work)
            self.seconds[name] = self.seconds.get(name, 0.0) + took
            self._write_durations()
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(together(report.nodeid, report.keywords))

    def _write_durations(self) -> None:
        known = measured_durations(self.file) if self.file.exists() else {}
        here = {name: seconds for name, seconds in known.items() if (self.root / name.partition("::")[0]).exists()}
        new = {name: max(1, round(seconds)) for name, seconds in self.seconds.items() if name not in self.failed}
        self.file.write_text(json.dumps(dict(sorted((here | new).items())), indent=1) + "\n")


def cpu_seconds_of_tree() -> float:
    """The CPU time of this process and of all that it has started."""
    me = psutil.Process()
    found = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            found += sum(process.cpu_times()[:4])  # its own, and that of its children that have ended
        except psutil.NoSuchProcess:
            continue
    return found


class TurnOfSlowTests:
    """Chooses a commit's turn among what was collected, and ends it in time whatever a test does."""

    def __init__(self, config: pytest.Config) -> None:
        asked = config.getoption("slow_turn")
        self.commit = commit_number(ROOT) if asked == "HEAD" else int(asked)
        self.room = config.getoption("slow_seconds") - slow_turns.BEFORE_THE_FIRST
        # Half of what is kept for before and after is left for the end.
        self.ends = time.monotonic() + config.getoption("slow_seconds") - slow_turns.BEFORE_THE_FIRST / 2
        self.measured = measured_durations(config.getoption("slow_durations"))
        self.plan: list[str] = []
        self.turn: frozenset[str] = frozenset()
        self.begun: set[str] = set()
        self.took: dict[str, float] = {}
        self.ended_within = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        slow: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item.get_closest_marker("slow"):
                slow.setdefault(together(item.nodeid, item.keywords), []).append(item)
        seconds = {name: self._expected(name) for name in slow}
        turn = slow_turns.choose_turn(seconds, self.commit, self.room)
        self.plan = [
            f"slow tests of commit {self.commit}: turn {turn.number + 1} of {turn.turns}, {len(turn.taken)} taken, "
            f"{len(turn.left_over) + len(turn.later)} wait{'' if len(turn.left_over) + len(turn.later) != 1 else 's'}",
            *(f"takes  {self._with_duration(name)}" for name in turn.taken),
            *(f"no time is left for  {self._with_duration(name)}" for name in turn.left_over),
            *self._waiting(seconds, turn),
        ]
        self.turn = frozenset(turn.taken)
        config.hook.pytest_deselected(items=[item for item in items if not item.get_closest_marker("slow")])
        items[:] = [item for name in (*turn.taken, *turn.later) for item in slow[name]]

    def pytest_report_collectionfinish(self) -> list[str]:
        return self.plan

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        expected = self._expected(together(item.nodeid, item.keywords))
        limit = slow_turns.time_limit(expected)
        left = self.ends - time.monotonic()

        def end_it(_: int, frame: FrameType | None) -> None:
            # What the test left half done, a JVM's answer under way, is nothing for another one to begin with.
            self.ended_within = item.nodeid
            if left < limit:
                pytest.skip(f"the turn's time was over within this test, after {left:.0f} s: it waits")
            pytest.fail(f"{item.nodeid} took longer than {limit:.0f} s, where {expected:.0f} s are its duration: it hangs")

        swallowed = sys.unraisablehook

        def pass_over_alarms(unheard: sys.UnraisableHookArgs) -> None:
            if not isinstance(unheard.exc_value, pytest.skip.Exception | pytest.fail.Exception):
                swallowed(unheard)

        sys.unraisablehook = pass_over_alarms
        before = signal.signal(signal.SIGALRM, end_it)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, min(limit, left)), RINGS_AGAIN)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = swallowed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        if self.ended_within and call.excinfo:
            signal.setitimer(signal.ITIMER_REAL, 0)  # it was heard

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self.ended_within:
            pytest.skip(f"the turn ended within {self.ended_within}: it waits")
        if not self.has_time(item):
            pytest.skip("the tests before it took longer than they should: it waits for its next turn")
        self.begun.add(together(item.nodeid, item.keywords))

    def has_time(self, item: pytest.Item) -> bool:
        """Whether it is under way, or can be before the turn ends."""
        name = together(item.nodeid, item.keywords)
        return name in self.begun or self._expected(name) <= self.ends - time.monotonic()

    def is_of_turn(self, item: pytest.Item) -> bool:
        """Whether the test was planned for this turn; those of other turns run if time is left."""
        return together(item.nodeid, item.keywords) in self.turn

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = together(report.nodeid, report.keywords)
        if name in self.begun:
            self.took[name] = self.took.get(name, 0.0) + report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("slow tests that ran")
        for name, seconds in self.took.items():
            terminalreporter.line(f"{seconds:5.0f} s  {name}")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # no time was left, which the plan says

    def _expected(self, name: str) -> float:
        return slow_turns.expected_seconds(name, self.measured)

    def _with_duration(self, name: str) -> str:
        return f"{name} ({self._expected(name):.0f} s{'' if name in self.measured else ', not measured yet'})"

    def _waiting(self, seconds: dict[str, float], turn: slow_turns.Turn) -> list[str]:
        """After how many commits each of the others has its turn."""
        lines = []
        waiting = set(turn.later)
        for commits in range(1, turn.turns):
            comes = slow_turns.choose_turn(seconds, self.commit + commits).taken
            lines += [
                f"in {commits} commit{'s' if commits > 1 else ''}  {self._with_duration(name)}"
                for name in comes
                if name in waiting
            ]
            waiting -= set(comes)
        return lines + [f"never, since no turn is that long: part it  {self._with_duration(name)}" for name in sorted(waiting)]


class TimeLeft:
    """Continues with the tests of the next turns while time is left, and leaves out all from the first for which there is none."""

    def __init__(self, turn: TurnOfSlowTests) -> None:
        self.turn = turn
        self.over = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if not self.turn.is_of_turn(item):
            self.over = self.over or bool(self.turn.ended_within) or not self.turn.has_time(item)
        return True if self.over else None
