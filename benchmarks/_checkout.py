"""A checkout with one pipeline of a benchmark, and separate folders for each round."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sluice.root_folders import build_root_variables
from sluice.settings import Settings

HERE = Path(__file__).resolve().parent


def make_checkout(root: Path, pipeline: str, folder: Path) -> None:
    """A checkout whose only pipeline is that of a folder. Copies: a pipeline whose code is behind links is never found quiet."""
    real = Settings.current()
    shutil.copytree(folder, root / "include" / "pipelines" / pipeline)
    for name in ("spark_jobs", "environments"):
        shutil.copytree(real.root / name, root / name)
    (root / ".sluice").mkdir()
    for jars in ("jars", "log-store", "store-jars"):
        (root / ".sluice" / jars).symlink_to(real.state / jars)
    modules = [root / "include", real.root / "include", HERE]
    os.environ |= {"SLUICE_ROOT": str(root), "PYTHONPATH": os.pathsep.join(map(str, modules))}


def use_roots_below(folder: Path) -> None:
    """Make the root folders below a folder those of this process and of the ones that it starts."""
    os.environ |= build_root_variables(folder)
