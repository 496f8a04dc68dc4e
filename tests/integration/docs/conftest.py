"""What walk-throughs of the docs begin with."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.commands import use_roots_of


@pytest.fixture
def root(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root with no pipeline yet, which the command line works in."""
    use_roots_of(monkeypatch, tmp_path)
    monkeypatch.setenv("SLUICE_ROOT", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "include"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("pipelines.shop")]:
        del sys.modules[name]
    importlib.invalidate_caches()
