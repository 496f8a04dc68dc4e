"""What `sluice status` says of a pipeline of which nothing is there yet can be done."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.cli.monitoring.status import describe_first_steps
from sluice.settings import Settings

PIPELINE = "from sluice.declare import Pipeline\nPIPELINE = Pipeline(name='bare', description='d', owner='o', layers=('a',){})\n"


@pytest.mark.parametrize(
    ("further", "said"), [("", "put files into {}/landing/bare; "), (", maker='pipelines.bare.maker'", "sluice land bare; ")]
)
def test_only_a_pipeline_with_a_maker_can_land(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, further: str, said: str
) -> None:
    import pipelines

    folder = tmp_path / "include" / "pipelines" / "bare"
    folder.mkdir(parents=True)
    (folder / "pipeline.py").write_text(PIPELINE.format(further))
    monkeypatch.setattr(pipelines, "__path__", [str(folder.parent)])
    for name in ("pipelines.bare", "pipelines.bare.pipeline"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    steps = describe_first_steps(replace(settings, root=tmp_path), "bare")
    assert steps == f"Nothing here yet. Deliveries: {said.format(tmp_path)}then: sluice run bare"
