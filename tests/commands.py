"""Commands in this process, as `sluice` runs them, at the places of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.cli import main
from sluice.root_folders import build_root_variables
from sluice.settings import Settings

Call = Callable[..., tuple[int, str, str]]
"""Calls a command: exit code, standard output, standard error."""


def set_places(monkeypatch: pytest.MonkeyPatch, of: Settings | Path) -> None:
    """Let commands work at these places, or at those below a folder."""
    for name, value in (build_root_variables(of) if isinstance(of, Path) else of.root_variables).items():
        monkeypatch.setenv(name, value)


def call_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def ask_command(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What a command says that ends with this code: on standard output if it is 0, else on standard error."""
    ended, out, err = call_command(capsys, *arguments)
    assert ended == code, err
    return err if code else out


@pytest.fixture
def places(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    set_places(monkeypatch, settings)


@pytest.fixture
def call(places: None, capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls commands at the places of the test."""
    return lambda *arguments: call_command(capsys, *arguments)
