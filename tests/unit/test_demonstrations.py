"""The commands that show Sluice are found by name, outside of the engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.checkout import ROOT

from sluice.cli import main


@pytest.mark.parametrize("command", [["tour", "gym"], ["demo-erasure"]])
def test_a_demonstration_is_loaded_and_refuses_a_pipeline_that_is_not_there(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    monkeypatch.setenv("SLUICE_ROOT", str(tmp_path))
    with pytest.raises(SystemExit) as left:
        main(command)
    told = capsys.readouterr().err
    assert (left.value.code, "gym" in told, "demonstrations" in told) == (2, True, False), told
