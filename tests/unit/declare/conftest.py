"""A pipeline of files that a test writes, loaded as the engine loads any pipeline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.settings import Settings

LoadShop = Callable[..., Graph]
_PIPELINE = """\
from sluice.declare import Pipeline

PIPELINE = Pipeline(
    name="shop", description="A shop.", owner="me",
    layers=("pipelines.shop.bronze", "pipelines.shop.silver", "pipelines.shop.gold"),
)
"""


@pytest.fixture
def load_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadShop]:
    """Writes the pipeline `shop`, each file but for its import of `sluice.declare`, and returns its graph."""
    import pipelines

    folder = tmp_path / "include" / "pipelines" / "shop"
    folder.mkdir(parents=True)
    monkeypatch.setattr(pipelines, "__path__", [str(folder.parent)])
    _forget_shop()

    def load(**files: str) -> Graph:
        (folder / "pipeline.py").write_text(_PIPELINE)
        for name in ("bronze", "silver", "gold", *files):
            (folder / f"{name}.py").write_text(f"from sluice.declare import *\n{files.get(name, '')}\n")
        return load_declaration_graph(replace(Settings.current(), root=tmp_path), "shop")

    yield load
    _forget_shop()


def _forget_shop() -> None:
    for name in [name for name in sys.modules if name.startswith("pipelines.shop")]:
        del sys.modules[name]
