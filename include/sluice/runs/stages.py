"""What each stage of a run does: the layers, then deletions, file layout and the removal of old files."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.declare.graph import Graph
from sluice.declare.source import Source
from sluice.declare.tables import Dataset, Table
from sluice.erasure import propagation
from sluice.errors import UsageError, nearest
from sluice.flows import append, fold, view
from sluice.ingest import discovery, ledger
from sluice.lake import log
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.upkeep import optimize, vacuum

Flow = Callable[[Workspace, FlowReport], None]
_SIDE_BY_SIDE = 3
AFTER_LAYERS = ("propagate_deletions", "optimize", "vacuum")
MODES = ("increment", "replay", "refresh")


@dataclass(frozen=True)
class Failed(Exception):
    """Flows of a stage that failed, with the reports of all. errors: by flow."""

    reports: list[FlowReport]
    errors: dict[str, BaseException]


def names(graph: Graph) -> list[str]:
    """The stages of a pipeline in order: its layers, then what follows them."""
    return [layer.rsplit(".", 1)[-1] for layer in graph.pipeline.layers] + list(AFTER_LAYERS)


def check(graph: Graph, stage: str, mode: str, tables: Sequence[str]) -> None:
    """Raises UsageError for a stage, a mode or a table that is not there, or that this mode does not allow."""
    if stage not in names(graph):
        raise UsageError(f"Pipeline '{graph.pipeline.name}' has no stage '{stage}'.{nearest(stage, names(graph))}")
    if mode not in MODES:
        raise UsageError(f"There is no mode '{mode}'.{nearest(mode, MODES)}")
    if mode == "replay":
        raise UsageError("Mode 'replay' is not there yet. Use 'increment', or 'refresh' with --tables.")
    if mode == "refresh" and not tables:
        raise UsageError(
            "Mode 'refresh' needs --tables (sluice run: --table): which tables to make anew, with everything that reads them."
        )
    for name in tables:
        if isinstance(graph[name], Source):
            raise UsageError(
                f"'{name}' is bronze, which is never made anew: it holds what the landing folder may not hold any more."
            )


def run(workspace: Workspace, stage: str, tables: Sequence[str] = ()) -> list[FlowReport]:
    """Run a stage under the lease. tables: what to refresh, in that mode. Raises Failed when a flow failed; the others finish."""
    again = (
        set(tables) | {below for name in tables for below in workspace.graph.below(name)}
        if workspace.mode == "refresh"
        else set()
    )
    if stage == "propagate_deletions":
        return propagation.propagate(workspace, lambda: _layers_above_bronze(workspace))
    if stage == "optimize":
        return [optimize.table(workspace, declared) for declared in workspace.graph if log.exists(workspace.path(declared.name))]
    if stage == "vacuum":
        return [vacuum.table(workspace, name, path) for name, path in workspace.tables().items() if log.exists(path)]
    if stage == names(workspace.graph)[0]:
        _discover(workspace)
    reports: list[FlowReport] = []
    for level in _levels(workspace.graph, stage):
        reports += _side_by_side(workspace, stage, [(item, "refresh" if item.name in again else None) for item in level])
    return reports


def _layers_above_bronze(workspace: Workspace) -> list[FlowReport]:
    layers = names(workspace.graph)[1 : len(workspace.graph.pipeline.layers)]
    return [report for layer in layers for report in run(workspace, layer)]


def _discover(workspace: Workspace) -> None:
    landing = Path(workspace.settings.landing) / workspace.pipeline
    discovery.discover(list(workspace.graph.sources.values()), landing, workspace.deliveries, workspace.run)
    ledger.create(workspace.outcomes, ledger.OUTCOMES)


def _levels(graph: Graph, layer: str) -> list[list[Source | Dataset[Any]]]:
    """The layer's declarations in groups that do not read each other."""
    levels: list[list[Source | Dataset[Any]]] = []
    place: dict[str, int] = {}
    for item in graph.in_layer(layer):
        reads = () if isinstance(item, Source) else item.reads
        place[item.name] = max((place[name] + 1 for name in reads if name in place), default=0)
        while len(levels) <= place[item.name]:
            levels.append([])
        levels[place[item.name]].append(item)
    return levels


def _side_by_side(workspace: Workspace, stage: str, items: list[tuple[Source | Dataset[Any], str | None]]) -> list[FlowReport]:
    reports = [FlowReport(flow=item.name, layer=stage) for item, _ in items]
    errors: dict[str, BaseException] = {}

    def work(position: int) -> None:
        item, anew = items[position]
        # A session of its own: what marks a flow's commits is set on the session.
        mine = workspace.within(workspace.session.newSession())
        mine.note(item.name)
        try:
            _flow(item, anew)(mine, reports[position])
        except Exception as error:
            errors[item.name] = error

    with ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE) as pool:
        list(pool.map(lambda position: timed(workspace, reports[position], lambda: work(position)), range(len(items))))
    if errors:
        raise Failed(reports, errors)
    return reports


def timed(workspace: Workspace, report: FlowReport, work: Callable[[], None]) -> None:
    """Do a flow's work and note its seconds and the versions of its table before and after."""
    path = workspace.path(report.flow)
    started = time.monotonic()
    report.version_before = log.version(path)
    work()
    report.version_after = log.version(path)
    report.seconds = round(time.monotonic() - started, 2)


def _flow(item: Source | Dataset[Any], anew: str | None) -> Flow:
    if isinstance(item, Source):
        source = item
        return lambda workspace, report: append.run(workspace, source, report)
    if isinstance(item, Table):
        table = item
        return lambda workspace, report: fold.run(workspace, table, report, anew)
    declared: Any = item
    return lambda workspace, report: view.run(workspace, declared, report, anew)
