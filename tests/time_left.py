"""On a slow machine a check ends in time all the same: tests that it has no time left to begin are left out, counted and named.

Another check begins with other files, so that none is left out each time.
"""

from __future__ import annotations

import time
import zlib
from typing import Any

import pytest
from tests.slow_rotation import ROOT, commit_number

ROTATED = ("tests/integration/", "tests/system/")
"""Folders whose files come last, beginning with another one at each commit."""
SYSTEM_EARLIER = 10 * 60.0
"""How many seconds before the others tests marked system begin at the latest: some take nine minutes."""
LEFT_OUT = "left out: the time of this check is over"
SUMMARY, LAST_FAILED = "sluice/tests_in_time", "cache/lastfailed"
"""Where pytest's cache has what `.ci/run` reads: how many tests were left out of how many, and how pytest ended; and what failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of a check that must end."""
    parser.addoption(
        "--begin-until",
        metavar="TIME",
        type=float,
        help="tests that have not begun by then, in seconds since 1970, are left out; files of some folders come last, in turns",
    )


def pytest_configure(config: pytest.Config) -> None:
    until = config.getoption("begin_until")
    if until is not None:
        config.pluginmanager.register(TestsInTime(config, until))


def rotate_files(files: list[str], number: int) -> list[str]:
    """The files in the order in which the check with this number takes them. Which one is the first looks like chance."""
    first = zlib.crc32(str(number).encode()) % len(files) if files else 0
    return files[first:] + files[:first]


class TestsInTime:
    """Leaves out what has no time left to begin."""

    __test__ = False

    def __init__(self, config: pytest.Config, until: float) -> None:
        self.config, self.until = config, until
        self.left_out: list[str] = []
        self.failed: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = sorted({one for item in items if (one := item.nodeid.partition("::")[0]).startswith(ROTATED)})
        # Each process of a session finds the same order: where git does not know, by the session's own time.
        number = commit_number(ROOT, otherwise_at=self.until)
        position = {file: at for at, file in enumerate(rotate_files(files, number), 1)}
        items.sort(key=lambda item: position.get(item.nodeid.partition("::")[0], 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.time() >= self.until - (SYSTEM_EARLIER if item.get_closest_marker("system") else 0):
            pytest.skip(LEFT_OUT)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        if report.skipped and LEFT_OUT in str(report.longrepr):
            self.left_out.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.left_out:
            terminalreporter.section(f"left out, since the time of this check was over: {len(self.left_out)}")
            for name in self.left_out:
                terminalreporter.line(name)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        cache = self.config.cache
        if cache is None or hasattr(self.config, "workerinput"):
            return
        # A test whose process died comes once more, at the end; left out there, it would no longer count as failed.
        if hidden := self.failed & {*self.left_out}:
            cache.set(LAST_FAILED, {**cache.get(LAST_FAILED, {}), **dict.fromkeys(sorted(hidden), True)})
        cache.set(SUMMARY, f"{len({*self.left_out})} of {session.testscollected}, exit {int(exitstatus)}")
