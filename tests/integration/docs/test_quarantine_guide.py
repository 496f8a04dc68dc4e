"""The walk-through of docs/quality.md, "Quarantine, step by step": what it declares, lands and runs, and what it says is printed."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

from sluice.cli import main

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "quality.md"
HEADING = "## Quarantine, step by step\n"


def blocks() -> list[tuple[str, str]]:
    """Language and text of the section's fenced blocks, in order."""
    section = GUIDE.read_text().split(HEADING)[1].split("\n## ")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def _forget() -> None:
    for name in [name for name in sys.modules if name.startswith("pipelines.shop")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _declare(root: Path, text: str) -> None:
    path = root / re.match(r"# (\S+)\n", text).group(1)  # type: ignore[union-attr]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without its compiled form, which of a file of the same size and second would be taken for the new one's.
    path.write_text(text + "\n" * (1 + len(list(path.parent.rglob("*.pyc")))))
    _forget()


def _console(root: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, below = part.partition("\n")
        words = shlex.split(command)
        if words[0] == "land":
            path = root / "landing" / "shop" / words[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(below)
            continue
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        printed = capsys.readouterr()
        assert ended.value.code == 0, f"{command}: {printed.err}"
        _compare(command, below, printed.out)


def _compare(command: str, expected: str, printed: str) -> None:
    """Each line that is expected must be there, in order; of a line its words, since a table may have more columns."""
    lines = iter(printed.splitlines())
    for wanted in expected.splitlines():
        words = re.split(r"\s{3,}", wanted.strip())
        assert any(all(word in line for word in words) for line in lines), f"{command}: no line '{wanted}' in\n{printed}"


@pytest.mark.slow
def test_what_the_guide_says_is_what_happens(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = set()
    for kind, text in blocks():
        kinds.add(kind)
        if kind == "python":
            _declare(root, text)
        else:
            _console(root, text, capsys)
    assert kinds == {"python", "console"}
