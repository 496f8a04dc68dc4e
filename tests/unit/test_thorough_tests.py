"""What `make test` leaves out, the check takes; and in each file of which something is left out, something stays."""

from __future__ import annotations

import ast
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


def _tests(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]


THOROUGH = sorted(path for path in TESTS.rglob("test_*.py") if "mark.thorough" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", THOROUGH, ids=lambda path: str(path.relative_to(TESTS)))
def test_of_each_file_with_a_thorough_test_others_are_run_by_make_test(path: Path) -> None:
    found = {one.name: _marks(one) for one in _tests(path)}
    assert "thorough" not in path.read_text(encoding="utf-8").partition("pytestmark =")[2].partition("\n")[0]
    assert any("thorough" in marks for marks in found.values()), "the mark is where this test sees it"
    assert any(not marks & LEFT_OUT for marks in found.values()), "something of what the file protects is run each time"


def test_the_check_runs_thorough_tests() -> None:
    assert "test WITHOUT_STORE=yes THOROUGH=yes" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    told = subprocess.run(
        ["make", "--dry-run", "test", "THOROUGH=yes", "WITHOUT_STORE=yes"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert '-m "not slow and not system"' in told
