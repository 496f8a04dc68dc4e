"""A check that must end leaves out the tests that it has no time to begin, says which, and another check takes those first."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.time_left import LAST_FAILED, LEFT_OUT, SUMMARY, SYSTEM_EARLIER, rotate_files

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest("from tests.time_left import pytest_addoption, pytest_configure")
    for name in ("tests/integration/test_b", "tests/integration/test_a", "tests/unit/test_c"):
        path = pytester.path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_one(): pass\n\n\ndef test_two(): pass\n")
    return pytester


def _read_cached(project: pytest.Pytester, name: str) -> Any:
    return json.loads((project.path / ".pytest_cache/v" / name).read_text())


def test_all_run_in_time_those_of_integration_last(project: pytest.Pytester) -> None:
    done = project.runpytest_inprocess(f"--begin-until={time.time() + 600}", "-v", "-p", "no:randomly")
    done.assert_outcomes(passed=6)
    files = [line.partition("::")[0] for line in done.outlines if "::" in line]
    assert files[:2] == ["tests/unit/test_c.py"] * 2 and {*files[2:4]} & {*files[4:]} == set(), "files stay together"
    assert _read_cached(project, SUMMARY) == "0 of 6, exit 0"


def test_what_has_not_begun_in_time_is_left_out_and_named(project: pytest.Pytester) -> None:
    done = project.runpytest_inprocess(f"--begin-until={time.time() - 1}", "-rs")
    done.assert_outcomes(skipped=6)
    assert done.ret == pytest.ExitCode.OK
    done.stdout.fnmatch_lines([
        "*left out, since the time of this check was over: 6*",
        "tests/unit/test_c.py::test_two",
        f"*{LEFT_OUT}*",
    ])
    assert _read_cached(project, SUMMARY) == "6 of 6, exit 0"


def test_tests_of_the_system_begin_earlier(project: pytest.Pytester) -> None:
    (project.path / "tests/unit/test_c.py").write_text("import pytest\n\n\n@pytest.mark.system\ndef test_long(): pass\n")
    project.makeini("[pytest]\nmarkers = system")
    done = project.runpytest_inprocess(f"--begin-until={time.time() + SYSTEM_EARLIER / 2}")
    done.assert_outcomes(passed=4, skipped=1)


def test_what_failed_before_it_was_left_out_is_still_tried_again(project: pytest.Pytester) -> None:
    """As a test whose process died, which pytest-xdist begins once more at the end."""
    project.makeconftest("""
import pytest
from tests.time_left import TestsInTime, pytest_addoption, pytest_configure

def pytest_runtest_logreport(report):
    if report.when == "setup" and report.nodeid.endswith("test_c.py::test_two"):
        for plugin in config_plugins:
            plugin.failed.add(report.nodeid)

config_plugins = []

def pytest_collection_finish(session):
    config_plugins.extend(one for one in session.config.pluginmanager.get_plugins() if isinstance(one, TestsInTime))
""")
    project.runpytest_inprocess(f"--begin-until={time.time() - 1}")
    assert _read_cached(project, LAST_FAILED) == {"tests/unit/test_c.py::test_two": True}


def test_without_the_option_nothing_is_left_out(project: pytest.Pytester) -> None:
    project.runpytest_inprocess().assert_outcomes(passed=6)


@pytest.mark.parametrize("count", [1, 2, 13, 80])
@pytest.mark.parametrize("stride", [1, 13, 34, 55])
def test_each_file_comes_and_none_is_the_last_each_time(count: int, stride: int) -> None:
    files = [f"{number:03}" for number in range(count)]
    orders = [rotate_files(files, 2_000 + check * stride) for check in range(60)]
    assert all(sorted(order) == files for order in orders)
    run = [{*order[: max(1, count * 6 // 10)]} for order in orders]  # of each check, where two in five are left out
    assert all(set[str]().union(*run[first : first + 15]) == {*files} for first in range(45))
