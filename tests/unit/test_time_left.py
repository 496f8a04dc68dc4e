"""A check that must end leaves out the tests that it has no time to begin, says which, and another check takes those first."""

from __future__ import annotations

import json
import time

import pytest
from tests.time_left import CACHED, LEFT_OUT, rotate_files

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest("from tests.time_left import pytest_addoption, pytest_configure")
    for name in ("tests/integration/test_b", "tests/integration/test_a", "tests/unit/test_c"):
        path = pytester.path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_one(): pass\n\n\ndef test_two(): pass\n")
    return pytester


def test_all_run_in_time_those_of_integration_last(project: pytest.Pytester) -> None:
    done = project.runpytest_inprocess(f"--begin-until={time.time() + 600}", "-v", "-p", "no:randomly")
    done.assert_outcomes(passed=6)
    files = [line.partition("::")[0] for line in done.outlines if "::" in line]
    assert files[:2] == ["tests/unit/test_c.py"] * 2 and {*files[2:4]} & {*files[4:]} == set(), "files stay together"
    assert json.loads((project.path / ".pytest_cache/v" / CACHED).read_text()) == []


def test_what_has_not_begun_in_time_is_left_out_and_named(project: pytest.Pytester) -> None:
    done = project.runpytest_inprocess(f"--begin-until={time.time() - 1}", "-rs")
    done.assert_outcomes(skipped=6)
    assert done.ret == pytest.ExitCode.OK
    done.stdout.fnmatch_lines([
        "*left out, since the time of this check was over: 6*",
        "tests/unit/test_c.py::test_two",
        f"*{LEFT_OUT}*",
    ])
    assert len(json.loads((project.path / ".pytest_cache/v" / CACHED).read_text())) == 6


def test_without_the_option_nothing_is_left_out(project: pytest.Pytester) -> None:
    project.runpytest_inprocess().assert_outcomes(passed=6)


@pytest.mark.parametrize("count", [1, 2, 37, 74, 80])
def test_each_file_comes_and_what_came_last_comes_early_after_the_next_commit(count: int) -> None:
    files = [f"{number:03}" for number in range(count)]
    orders = [rotate_files(files, commit) for commit in range(count)]
    assert all(sorted(order) == files for order in orders)
    assert len({order[-1] for order in orders}) > count // 2, "none is the last one each time"
