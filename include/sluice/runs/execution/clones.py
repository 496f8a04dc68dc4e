"""What a clone of a pipeline's tables says of itself, and what runs in it: views alone. Read without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import MaterializedView
from sluice.declare.datasets.windowed import Windowed
from sluice.durable_files import load_kept_object
from sluice.errors import UsageError
from sluice.pipeline_stages import Stage, all_stages_of_pipeline
from sluice.settings import Settings

COPY, SHALLOW = "copy", "shallow"
_REMEDY = "Put a copy of it back, or make the clone again: remove its lake, then sluice clone"


def read_clone_description(settings: Settings, pipeline: str) -> dict[str, Any] | None:
    """What the lake of the settings was cloned from. None where it is no clone."""
    try:
        return load_kept_object(clone_description_path(settings, pipeline), "what this clone was made from", _REMEDY)
    except FileNotFoundError:
        return None


def clone_description_path(settings: Settings, pipeline: str) -> Path:
    """Where a clone says what it is."""
    return Path(settings.bookkeeping(pipeline)) / "clone.json"


def check_stage_in_clone(settings: Settings, graph: Graph, stage: str) -> None:
    """Raises UsageError for a stage that a clone has nothing for: it has no deliveries, and bronze and silver stay as they were cloned."""
    pipeline = graph.pipeline.name
    clone = read_clone_description(settings, pipeline)
    if clone is None:
        return
    able = [one.name for one in all_stages_of_pipeline(graph.pipeline) if _is_run_in_clones(graph, one)]
    if stage not in able:
        raise UsageError(
            f"The lake {settings.lake} is a clone of {clone['from']}: what was delivered is not in it, and its tables stay as they were "
            f"cloned; only views are brought up to date. Run: sluice run {pipeline} --stage {able[0]}"
        )
    hidden = [view.name for view in graph.views.values() if view.restricted and graph.layer(view) == stage]
    if hidden and str(settings.restricted) == clone["restricted"]:
        raise UsageError(
            f"'{hidden[0]}' is restricted, and would be written where {clone['from']} has it. "
            f"Set SLUICE_RESTRICTED to a folder of the clone's own."
        )


def find_left_out_columns(settings: Settings, pipeline: str) -> frozenset[str]:
    """The names of columns that a clone leaves out of some table. None in a lake that is no clone."""
    clone = read_clone_description(settings, pipeline) or {"tables": {}}
    return frozenset(name for table in clone["tables"].values() for name in table["left_out"])


def _is_run_in_clones(graph: Graph, stage: Stage) -> bool:
    if stage.in_clone != "views":
        return stage.in_clone == "always"
    declared = [one for one in graph if graph.layer(one) == stage.name]
    return bool(declared) and all(isinstance(one, MaterializedView | Windowed) for one in declared)
