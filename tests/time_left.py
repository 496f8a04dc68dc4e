"""On a slow machine a check ends in time all the same: tests that it has no time left to begin are left out, counted and named.

Another check begins with other files of tests/integration, so that none is left out each time.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.slow_rotation import ROOT, commit_number

ROTATED = "tests/integration/"
GOLDEN = 0.6180339887
"""By what part of the files the next commit begins further on: so the beginnings of any few commits lie far apart."""
LEFT_OUT = "left out: the time of this check is over"
CACHED = "sluice/left_out"
"""Where pytest's cache has their names, for `.ci/run`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of a check that must end."""
    parser.addoption(
        "--begin-until",
        metavar="TIME",
        type=float,
        help="tests that have not begun by then, in seconds since 1970, are left out; files of tests/integration come last, in turns",
    )


def pytest_configure(config: pytest.Config) -> None:
    until = config.getoption("begin_until")
    if until is not None:
        config.pluginmanager.register(TestsInTime(config, until))


def rotate_files(files: list[str], commit: int) -> list[str]:
    """The files in the order in which the check of a commit takes them."""
    first = int(commit * GOLDEN % 1 * len(files))
    return files[first:] + files[:first]


class TestsInTime:
    """Leaves out what has no time left to begin."""

    __test__ = False

    def __init__(self, config: pytest.Config, until: float) -> None:
        self.config, self.until = config, until
        self.left_out: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = sorted({one for item in items if (one := item.nodeid.partition("::")[0]).startswith(ROTATED)})
        place = {file: number for number, file in enumerate(rotate_files(files, commit_number(ROOT)), 1)}
        items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.time() >= self.until:
            pytest.skip(LEFT_OUT)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and LEFT_OUT in str(report.longrepr):
            self.left_out.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.left_out:
            terminalreporter.section(f"left out, since the time of this check was over: {len(self.left_out)}")
            for name in self.left_out:
                terminalreporter.line(name)

    def pytest_sessionfinish(self) -> None:
        if self.config.cache is not None and not hasattr(self.config, "workerinput"):
            self.config.cache.set(CACHED, self.left_out)
