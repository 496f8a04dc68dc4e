"""A stage as a run asks for it: its options, the tables that it may be asked for, and the function that carries it out.

Loads neither Spark nor Delta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.errors import UsageError
from sluice.pipeline_stages import VerifyChoice, find_stage_of_pipeline
from sluice.run_modes import REFRESH, REPLAY

if TYPE_CHECKING:
    from sluice.declare.assembly.graph import Graph
    from sluice.declare.datasets.dataset import Dataset
    from sluice.declare.ingest.source import Source
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace


def is_always_due(item: Source | Dataset[Any]) -> bool:
    """Says of each flow that it is to run, which is so unless a process is kept running."""
    return True


@dataclass(frozen=True)
class StageOptions:
    """The options of a stage, for the stages that use them.

    tables: what a replay or a refresh is for; empty means all. verify: what the stage `verify` compares: the next table in turn, all, or the
    tables of these names. optimize_now: the tables whose files the stage `optimize` rewrites whether or not they need it. requests: the
    erasure requests to carry out; empty means all. due: says for each flow of a layer whether to run it, after those that it reads have run.
    """

    tables: Sequence[str] = ()
    verify: VerifyChoice | tuple[str, ...] = "next"
    optimize_now: Sequence[str] = ()
    requests: Sequence[str] = ()
    due: Callable[[Source | Dataset[Any]], bool] = is_always_due


SCHEDULED = StageOptions()
"""What a scheduled run asks of its stages."""


def run_pipeline_stage(workspace: Workspace, stage: str, options: StageOptions = SCHEDULED) -> list[FlowReport]:
    """Runs a stage under the lease. Raises FlowsFailed if a flow failed; the others finish."""
    carry_out = find_stage_of_pipeline(workspace.graph.pipeline, stage).function
    assert carry_out is not None  # only work that is no stage of a pipeline names none
    return carry_out(workspace, stage, options)


def check_tables_of_mode(graph: Graph, mode: str, names: Sequence[str]) -> None:
    """Raises UsageError for a table that does not exist, or that a refresh must not make from scratch."""
    for name in names:
        declared = graph[name]
        if mode == REFRESH.name and not declared.may_refresh:
            raise UsageError(
                f"'{name}' is bronze, which holds records that the landing folder may have lost, so it is not made from scratch. Its source may "
                f"allow it: may_refresh=True."
            )


def check_tables_to_optimize(graph: Graph, names: Sequence[str]) -> None:
    """Raises UsageError for a table that does not exist, or whose rows lie in another, so that it has no files to lay out."""
    for name in names:
        if graph.table_of(graph[name].name) != name:
            raise UsageError(f"'{name}' has no table of its own: its rows are in '{graph.table_of(name)}'. Name that one.")


def find_concerned_tables(graph: Graph, mode: str, names: Sequence[str]) -> set[str]:
    """Returns the tables that a run concerns: in a refresh the named ones and all that read them, in a replay those and their inputs, else all."""
    if mode == REFRESH.name:
        anew = {*names, *(log for name in names for log in graph.kept_for(name))}
        return anew | {below for name in anew for below in graph.below(name)}
    if mode == REPLAY.name and names:
        made_from = {item.name for item in graph for name in names if name in graph.below(item.name)}
        return set(names) | made_from
    return {item.name for item in graph}
