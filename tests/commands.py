"""Commands in this process, as `sluice` runs them, with the root folders of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.cli import main
from sluice.root_folders import build_root_variables
from sluice.settings import Settings

Call = Callable[..., tuple[int, str, str]]
"""Calls a command: exit code, standard output, standard error."""


def use_roots_of(monkeypatch: pytest.MonkeyPatch, owner: Settings | Path) -> None:
    """Let commands work in the root folders of these settings, or in those below a folder."""
    for name, value in (build_root_variables(owner) if isinstance(owner, Path) else owner.root_variables).items():
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
def root_folders(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    use_roots_of(monkeypatch, settings)


@pytest.fixture
def call(root_folders: None, capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls commands in the root folders of the test."""
    return lambda *arguments: call_command(capsys, *arguments)
