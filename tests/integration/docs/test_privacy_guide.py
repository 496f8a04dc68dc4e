"""The walk-through of docs/privacy.md, "For analysts, step by step": what it declares, lands and runs, and what it says is printed."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

from sluice.cli import main

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "privacy.md"
HEADING = "## For analysts, step by step\n"


def declare(root: Path, text: str) -> None:
    path = root / re.match(r"# (\S+)\n", text).group(1)  # type: ignore[union-attr]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    importlib.invalidate_caches()


def perform(root: Path, command: str, below: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)
    if words[0] == "land":
        path = root / "landing" / "shop" / words[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(below)
        return
    if words[0] == "echo":
        (root / words[3]).write_text(f"{words[1]}\n")
        return
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    printed = capsys.readouterr()
    assert ended.value.code == 0, f"{command}: {printed.err}"
    lines = iter(printed.out.splitlines())
    for wanted in below.splitlines():
        parts = re.split(r"\s{3,}", wanted.strip())
        assert any(all(part in line for part in parts) for line in lines), f"{command}: no line '{wanted}' in\n{printed.out}"


@pytest.mark.slow
def test_what_the_guide_says_is_what_happens(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = GUIDE.read_text().split(HEADING)[1].split("\n### ")[0]
    done = []
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        done.append(kind)
        if kind == "python":
            declare(root, text)
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, below = part.partition("\n")
            perform(root, command, below, capsys)
    assert (done.count("python"), done.count("console")) == (4, 3)
