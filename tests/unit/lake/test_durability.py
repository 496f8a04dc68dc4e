"""What was written is on the disk: the call reaches the system, and its failure is one of the stage."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluice.lake import durability
from sluice.settings import Settings


def test_each_file_system_is_flushed_once_and_folders_that_are_not_there_are_passed_over(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(
        ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syncfs=lambda descriptor: flushed.append(descriptor) or 0)
    )
    durability.flush_run_output(settings)
    assert flushed == []
    for folder in (Path(settings.lake), settings.landing, settings.restricted):
        folder.mkdir()
    durability.flush_run_output(settings)
    assert len(flushed) == 1


def test_what_cannot_be_written_out_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durability.flush_file_systems([tmp_path])  # the real call
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syncfs=lambda descriptor: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EIO)
    with pytest.raises(OSError, match=r"Input/output error: '/"):
        durability.flush_file_systems([tmp_path])
