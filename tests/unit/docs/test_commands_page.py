"""docs/commands.md: each command of the command line is there, or where that page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.cli import COMMANDS, CommandEntry, load_command

DOCS = Path(__file__).resolve().parents[3] / "docs"
BY_MAKE = {"tour": "make run", "demo-erasure": "make demo-erasure", "up": "make up", "down": "make down"}
"""Commands that users call by make."""


def list_command_lines(command: Any, words: str) -> Iterator[str]:
    """The words of a command, or of each command below a group."""
    below = getattr(command, "commands", {})
    if not below:
        yield BY_MAKE.get(command.name, f"sluice {words}")
    for name, one in below.items():
        yield from list_command_lines(one, f"{words} {name}")


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_each_command_is_on_the_page(entry: CommandEntry) -> None:
    # The page says that erasure.md has all of `sluice erase`.
    page = (DOCS / ("erasure.md" if entry.name == "erase" else "commands.md")).read_text(encoding="utf-8")
    lines = list_command_lines(load_command(entry), entry.name)
    assert [line for line in lines if not re.search(rf"{line}(?![\w-])", page)] == []
