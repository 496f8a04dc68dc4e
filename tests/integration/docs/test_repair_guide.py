"""The walk-through of docs/repair.md: what it declares, lands and runs, and what it says is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sluice.cli import main

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "repair.md"
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def perform(root: Path, command: str, below: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)
    if words[0] == "land":
        path = root / "landing" / "shop" / words[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(below)
    elif words[0] == "export":
        name, _, value = words[1].partition("=")
        monkeypatch.setenv(name, value)
    else:
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        printed = capsys.readouterr()
        assert ended.value.code == (1 if "different" in below else 0), f"{command}: {printed.err}"
        lines = iter(printed.out.splitlines())
        for wanted in below.splitlines():
            parts = re.split(r"\s{3,}", wanted.strip())
            assert any(all(part in line for part in parts) for line in lines), f"{command}: no line '{wanted}' in\n{printed.out}"


@pytest.mark.slow
def test_what_the_guide_says_is_what_happens(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []
    for kind, text in BLOCKS:
        if kind == "python":
            path = root / re.match(r"# (\S+)\n", text).group(1)  # type: ignore[union-attr]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, below = part.partition("\n")
            perform(root, command, below, monkeypatch, capsys)
            done.append(command.split()[1])
    assert {"diff", "restore", "clone", "status", "run"} <= set(done)
