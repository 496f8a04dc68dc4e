"""Runs a stage of a pipeline: loads the function that its record names, and calls it."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import Stage, find_stage_of_pipeline
from sluice.runs.stage_options import PLAIN, StageOptions

StageFunction = Callable[[Workspace, str, StageOptions], list[FlowReport]]
"""The function that carries out a stage, named by its record. It also gets the stage's name. Raises FlowsFailed and other errors."""


def run_pipeline_stage(workspace: Workspace, stage: str, options: StageOptions = PLAIN) -> list[FlowReport]:
    """Runs a stage under the lease. Raises FlowsFailed if a flow failed; the others finish."""
    return _load_stage_function(find_stage_of_pipeline(workspace.graph.pipeline, stage))(workspace, stage, options)


def _load_stage_function(stage: Stage) -> StageFunction:
    module, _, name = stage.function.partition(":")
    found: StageFunction = getattr(importlib.import_module(module), name)
    return found
