"""What `make test` leaves out, the check takes; and in each file of which something is left out, something stays."""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path

import pytest
from tests.conftest import ROOT, TESTS

LEFT_OUT = {"thorough", "slow", "system"}
"""The marks of tests that `make test` does not run."""


def _marks(function: ast.FunctionDef) -> set[str]:
    """The names of the marks that a test itself has."""
    decorators = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return {one.attr for one in decorators if isinstance(one, ast.Attribute) and ast.unparse(one).startswith("pytest.mark.")}


def _files_beside(function: ast.FunctionDef) -> set[str]:
    """The files that a test's mark names, of which `make test` runs tests of the same promise."""
    calls = (
        one for one in function.decorator_list if isinstance(one, ast.Call) and ast.unparse(one.func) == "pytest.mark.thorough"
    )
    return {ast.literal_eval(keyword.value) for call in calls for keyword in call.keywords if keyword.arg == "beside"}


@functools.cache
def _tests(path: Path) -> list[ast.FunctionDef]:
    text = path.read_text(encoding="utf-8")
    return [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]


THOROUGH = sorted(
    path
    for path in TESTS.rglob("test_*.py")
    if "mark.thorough" in path.read_text(encoding="utf-8") and any("thorough" in _marks(one) for one in _tests(path))
)


@pytest.mark.parametrize("path", THOROUGH, ids=lambda path: str(path.relative_to(TESTS)))
def test_of_each_file_with_a_thorough_test_or_of_the_one_it_names_others_are_run_by_make_test(path: Path) -> None:
    for one in (one for one in _tests(path) if "thorough" in _marks(one)):
        for beside in _files_beside(one) or {str(path.relative_to(TESTS))}:
            assert any(not _marks(other) & LEFT_OUT for other in _tests(TESTS / beside)), f"{one.name}: nothing of {beside}"


def test_the_check_runs_thorough_tests() -> None:
    assert "test WITHOUT_STORE=yes THOROUGH=yes" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    told = subprocess.run(
        ["make", "--dry-run", "test", "THOROUGH=yes", "WITHOUT_STORE=yes"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert '-m "not slow and not system"' in told
