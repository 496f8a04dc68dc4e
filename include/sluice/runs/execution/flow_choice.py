"""Chooses what a run does to each kind of table: take what is new, make it from scratch (refresh), or replay an interval.

`FlowKind.choose_flow` names these functions. chosen: whether the run names the table as one to refresh or to replay.
"""

from __future__ import annotations

from typing import Any

from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.flows import stateful
from sluice.flows.bronze import append
from sluice.flows.gold import view as gold_view
from sluice.flows.progress import stream_starts
from sluice.flows.silver import fold, refold
from sluice.lake.workspace import Workspace
from sluice.run_modes import REFRESH
from sluice.runs.execution import clones
from sluice.runs.execution.parallel_flows import Flow
from sluice.runs.status import stale


def choose_bronze_flow(workspace: Workspace, source: Source, chosen: bool) -> Flow | None:
    """Returns the flow of a source's table, or None in a replay that does not concern it."""
    interval = workspace.interval
    if interval is None:
        anew = _reason_to_refresh(workspace, chosen)
        return lambda workspace, report: append.run_bronze_flow(workspace, source, report, anew)
    if not chosen:
        return None
    return lambda workspace, report: append.ingest_missed_deliveries(workspace, source, interval, report)


def choose_silver_flow(workspace: Workspace, table: Table[Any], chosen: bool) -> Flow | None:
    """Returns the flow of a table, or None in a replay that does not concern it."""
    interval = workspace.interval
    if interval is None:
        anew = _reason_to_refresh(workspace, chosen)
        return lambda workspace, report: fold.run_silver_flow(workspace, table, report, anew)
    if not chosen:
        return None

    def completes(extent: Interval | None) -> bool:
        return stale.forecast_stale_intervals(workspace.lake, table, interval, extent) == []

    return lambda workspace, report: refold.refold_interval(workspace, table, interval, report, completes)


def choose_stream_flow(workspace: Workspace, stream: Windowed[Any], chosen: bool) -> Flow | None:
    """Returns the flow of a stream with state, which itself reports that a replay does not reach it."""
    anew = _reason_to_refresh(workspace, chosen)
    return clones.adapt_stream_flow_to_clone(
        workspace, lambda workspace, report: stateful.run_stateful_flow(workspace, stream, report, anew)
    )


def choose_gold_flow(workspace: Workspace, view: MaterializedView[Any], chosen: bool) -> Flow | None:
    """Returns the flow of a view, which also follows its inputs in a replay."""
    anew = _reason_to_refresh(workspace, chosen)
    return clones.adapt_view_flow_to_clone(
        workspace, lambda workspace, report: gold_view.run_gold_flow(workspace, view, report, anew)
    )


def _reason_to_refresh(workspace: Workspace, chosen: bool) -> str | None:
    return stream_starts.REFRESH_REQUESTED if workspace.mode == REFRESH.name and chosen else None
