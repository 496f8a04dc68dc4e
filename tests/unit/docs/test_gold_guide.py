"""The examples of docs/gold.md hold, and what it says a change makes anew is what the optimiser says."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from sluice.cli.running import plan
from sluice.declare import Pipeline
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.assembly.loading import collect_declarations
from sluice.declare.declaration import Declaration
from sluice.lake.pipeline_lake import PipelineLake
from sluice.runs.planning import transforms
from sluice.settings import Settings

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "gold.md"
TEXT = GUIDE.read_text()
EXAMPLES = "\n\n".join(re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
NAMES = re.findall(r"^def (test_\w+)", EXAMPLES, re.MULTILINE)
NAME = "examples_of_gold"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """All blocks of the guide as one module."""
    (path := tmp_path_factory.mktemp("gold") / f"{NAME}.py").write_text(EXAMPLES)
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None and spec.loader is not None
    made = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    yield made
    sys.modules.pop(NAME, None)


@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_an_example_of_the_guide_holds(spark: SparkSession, examples: ModuleType, name: str) -> None:
    getattr(examples, name)()


def test_the_guide_has_its_examples() -> None:
    assert len(NAMES) == 10


@pytest.mark.spark
def test_what_a_change_makes_anew_is_what_the_guide_says(spark: SparkSession, examples: ModuleType, settings: Settings) -> None:
    pipeline = Pipeline(name="guide", description="d", owner="o", layers=("guide.bronze", NAME))
    found = transforms.examine_transforms(
        spark, PipelineLake(settings, build_declaration_graph(pipeline, collect_declarations([examples], Declaration)))
    )
    assert not found.mistakes
    anew = {
        (
            one["view"],
            one["input"],
            ", ".join([*one["columns"], *([plan._describe_time_reach(**one["reach"])] if one["reach"] else [])]),
        )
        for one in found.bounds
    }
    assert set(re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*?) \|$", TEXT, re.MULTILINE)) == anew
