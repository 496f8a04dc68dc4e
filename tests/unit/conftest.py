"""A process that is told nothing, and a checkout whose environments may be changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def nothing_said() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("SLUICE_")]:
            patch.delenv(name)
        yield patch


@pytest.fixture
def root(tmp_path: Path, nothing_said: pytest.MonkeyPatch) -> Path:
    """A checkout whose environments may be changed."""
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    (tmp_path / "spark_jobs").symlink_to(ROOT / "spark_jobs")
    (tmp_path / "include").symlink_to(ROOT / "include")
    nothing_said.setenv("SLUICE_ROOT", str(tmp_path))
    return tmp_path
