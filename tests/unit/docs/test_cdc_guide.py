"""The tests that stand in docs/cdc.md hold."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "cdc.md"
BLOCKS = [
    text for text in re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL) if "def test_" in text
]
NAMES = [(position, name) for position, text in enumerate(BLOCKS) for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)]


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Callable[[int], ModuleType]]:
    """What gives a block of the guide as a module, which a declaration needs: it knows where it was made."""
    name = "example_of_the_guide"

    def imported(position: int) -> ModuleType:
        (path := tmp_path / f"{name}.py").write_text(BLOCKS[position])
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        made = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    yield imported
    sys.modules.pop(name, None)


@pytest.mark.spark
@pytest.mark.parametrize(("position", "name"), NAMES)
def test_an_example_of_the_guide_holds(
    spark: SparkSession, module: Callable[[int], ModuleType], position: int, name: str
) -> None:
    getattr(module(position), name)()


def test_the_guide_has_its_examples() -> None:
    assert len(NAMES) == 4
