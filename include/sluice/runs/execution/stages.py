"""Runs a stage of a pipeline by the function that its record names."""

from __future__ import annotations

from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import find_stage_of_pipeline
from sluice.runs.stage_options import SCHEDULED, StageOptions


def run_pipeline_stage(workspace: Workspace, stage: str, options: StageOptions = SCHEDULED) -> list[FlowReport]:
    """Runs a stage under the lease. Raises FlowsFailed if a flow failed; the others finish."""
    carry_out = find_stage_of_pipeline(workspace.graph.pipeline, stage).function
    assert carry_out is not None  # only work that is no stage of a pipeline names none
    return carry_out(workspace, stage, options)
