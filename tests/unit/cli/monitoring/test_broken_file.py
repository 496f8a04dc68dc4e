"""A pipeline whose file has a mistake of Python stops neither the metrics nor the status of the others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.cli.monitoring.metrics import compose_metrics
from sluice.cli.monitoring.status import compute_status
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

PIPELINE = "from sluice.declare import Pipeline\nPIPELINE = Pipeline(name={0!r}, description='d', owner='o', layers=('pipelines.{0}.bronze',))\n"


@pytest.fixture
def two_pipelines(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A sound pipeline and one whose bronze.py uses a name that it does not import."""
    import pipelines

    folder = tmp_path / "include" / "pipelines"
    for name, bronze in (("sound", ""), ("broken", "expect('a', 'b')\n")):
        (folder / name).mkdir(parents=True)
        (folder / name / "pipeline.py").write_text(PIPELINE.format(name))
        (folder / name / "bronze.py").write_text(bronze)
    monkeypatch.setattr(pipelines, "__path__", [str(folder)])
    yield replace(settings, root=tmp_path)
    for name in [name for name in sys.modules if name.startswith(("pipelines.sound", "pipelines.broken"))]:
        del sys.modules[name]


def test_the_metrics_of_all_pipelines_are_there(two_pipelines: Settings) -> None:
    lines = compose_metrics(two_pipelines, None).splitlines()
    assert [line for line in lines if line.startswith("sluice_pipeline_readable")] == [
        'sluice_pipeline_readable{pipeline="broken"} 1',
        'sluice_pipeline_readable{pipeline="sound"} 1',
    ]
    assert 'sluice_status_problems{pipeline="broken"} 1' in lines


def test_the_status_has_the_mistake_among_its_problems(two_pipelines: Settings) -> None:
    problem = str(compute_status(PipelineRecords(two_pipelines, "broken"))["problems"])
    assert "bronze.py, line 1: NameError: name 'expect' is not defined. Import it: from sluice.declare import expect" in problem
