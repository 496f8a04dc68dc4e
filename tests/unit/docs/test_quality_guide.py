"""The examples of docs/quality.md on expectations and rule sets: they are declared, fit each other, and say what is written there."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.assembly.loading import collect_declarations
from sluice.declare.declaration import Declaration

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "quality.md"
SECTIONS = ("Expectations on rows", "Rule sets: rules kept as data", "Expectations on whole tables")


def blocks() -> list[str]:
    sections = {part.partition("\n")[0]: part for part in GUIDE.read_text().split("\n## ")[1:]}
    return [
        text
        for name in SECTIONS
        for text in re.findall(r"^```(?:python|csv)\n(.*?)^```$", sections[name], re.MULTILINE | re.DOTALL)
    ]


PIPELINE = """
from sluice.declare import Pipeline

LAYERS = tuple(f"pipelines.gym.{name}" for name in ("bronze", "silver", "more", "sessions"))
PIPELINE = Pipeline(name="gym", description="d", owner="o", layers=LAYERS)
"""
BRONZE = """
from sluice.declare import Source

SOURCES = [Source(name=name) for name in ("readings", "registered", "workouts")]
"""


@pytest.fixture
def include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is imported from, in which gym is what the guide says."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("pipelines")}
    monkeypatch.syspath_prepend(str(tmp_path / "include"))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("pipelines")]:
        del sys.modules[name]
    sys.modules.update(before)
    importlib.invalidate_caches()


@pytest.mark.spark
def test_the_examples_of_the_guide_run_and_fit_each_other(spark: SparkSession, include: Path) -> None:
    examples = []
    for text in blocks():
        file, _, code = text.partition("\n")
        if file.startswith("# include/"):
            (path := include / file[2:]).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
        else:
            examples.append(text)
    (include / "include" / "pipelines" / "__init__.py").write_text("")
    (include / "include" / "pipelines" / "gym" / "pipeline.py").write_text(PIPELINE)
    (include / "include" / "pipelines" / "gym" / "bronze.py").write_text(BRONZE)
    importlib.invalidate_caches()
    for text in examples:
        exec(compile(text, str(GUIDE), "exec"), {})
    assert len(examples) == 1
    pipeline = importlib.import_module("pipelines.gym.pipeline").PIPELINE
    declared = collect_declarations([importlib.import_module(layer) for layer in pipeline.layers], Declaration)
    found = build_declaration_graph(pipeline, declared).tables
    assert {name: [one.name for one in table.expectations] for name, table in found.items()} == {
        "heart_rate": ["positive", "no_test_device", "plausible"],
        "devices": ["known_member", "known_device"],
        "people": ["known_member", "plausible_age"],
        "sessions": [],
    }
    assert [one.name for one in found["sessions"].table_expectations] == ["one_session", "usual", "of_a_device"]
