"""Brings the tables of a layer up to date in a run, and those of all layers above bronze after a deletion."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sluice.erasure import request_record
from sluice.errors import SluiceError
from sluice.lake.flow_report import FlowReport, TableTurns
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import DELETIONS
from sluice.run_modes import REFRESH
from sluice.runs.execution.layer_update import LayerUpdate, choose_flow
from sluice.runs.execution.lowest_layer import update_lowest_layer
from sluice.runs.execution.parallel_flows import group_independent_flows, run_flows_in_parallel
from sluice.runs.named_tables import find_concerned_tables
from sluice.runs.stage_options import StageOptions


def run_layer_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Brings the tables of a layer up to date. The lowest layer looks for deliveries first. Raises FlowsFailed.

    Raises SluiceError if erased people may be back in a table since its log was repaired: flows would bring them into others. A refresh goes
    on: a stream that lost what it read needs one, and the erasure waits for the stream.
    """
    if workspace.mode != REFRESH.name:
        _refuse_until_erased_again(workspace)
    chosen = find_concerned_tables(workspace.graph, workspace.mode, options.tables)
    update = LayerUpdate(workspace, stage, chosen, options.due)
    if stage == workspace.graph.pipeline.layer_names[0]:
        return update_lowest_layer(update)
    for level in group_independent_flows(workspace.graph, stage):
        update.run_flows_of_level(level)
    return update.judge_and_report()


def _refuse_until_erased_again(workspace: Workspace) -> None:
    waiting = request_record.list_repeated_requests(workspace.records)
    if waiting:
        raise SluiceError(
            f"People of the erasure requests {', '.join(waiting)} may be back: a commit that removed their rows was lost. "
            f"Before anything is read, erase them again: sluice run {workspace.pipeline} --stage {DELETIONS.name}"
        )


def run_layers_above_bronze(workspace: Workspace) -> list[FlowReport]:
    """Runs the layers after a deletion. Rules that a table is too small, or lacks what others refer to, must not stop it half way.

    A failing flow must not stop it either: flows that read its table read it as it is. Raises FlowsFailed at the end, with all failures.
    """
    turns = TableTurns()
    workspace = replace(workspace, follows_deletion=True)
    for layer in workspace.graph.pipeline.layer_names[1:]:
        for level in group_independent_flows(workspace.graph, layer):
            flows = [(item, flow) for item in level if (flow := choose_flow(workspace, item, set()))]
            turns.take_flows(partial(run_flows_in_parallel, workspace, layer, flows, judged=False))
    return turns.end_turns()
