"""Says what a run would do, before anything moves, by the landing folders, the ledgers, the checkpoints and the declarations. Needs no JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluice import delta_log
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.delta_log import DamagedLog
from sluice.lake import deletion_vectors, log, log_files, versions
from sluice.lake.inventory import VacuumDecision
from sluice.lake.layout import LayoutDecision, decide_layout
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.versions import RestorationMark
from sluice.printable import count_noun, match_number
from sluice.run_modes import INCREMENT, REFRESH
from sluice.runs.execution import stages
from sluice.runs.planning import steps
from sluice.runs.planning.steps import (
    FOLD_ANEW,
    READ_AGAIN,
    RECOMPUTE,
    START_OVER,
    PlannedStep,
)
from sluice.runs.status import lag, stale
from sluice.runs.status.books import PipelineBooks
from sluice.runs.status.removals import decide_table_vacuums


@dataclass(frozen=True)
class Staleness:
    """The dates for which a silver table has rows made by earlier code: now, and after the run."""

    table: str
    now: list[Interval]
    afterwards: list[Interval]


@dataclass(frozen=True)
class RunPlan:
    """The steps of a run, inputs before readers; what is stale; and notes."""

    mode: str
    interval: Interval | None
    steps: list[PlannedStep]
    stale: list[Staleness]
    notes: list[str]
    layouts: Mapping[str, LayoutDecision]
    """By existing table, whether its files would be rewritten as they are now, before the run adds to them."""
    vacuums: Mapping[str, VacuumDecision]
    """By existing table, whether files that nothing needs would be removed."""

    @property
    def recomputed(self) -> list[PlannedStep]:
        """The tables whose rows would all be made again."""
        return [step for step in self.steps if step.does in (READ_AGAIN, FOLD_ANEW, RECOMPUTE, START_OVER)]


def plan_run(
    lake: PipelineLake, mode: str = INCREMENT.name, interval: Interval | None = None, tables: Sequence[str] = ()
) -> RunPlan:
    """Plans what a run in this mode would do now. Raises UsageError for tables that the run itself would refuse.

    The caller has checked the mode, in the words of its own options.
    """
    stages.check_tables_of_mode(lake.graph, mode, tables)
    books = PipelineBooks(lake.settings, lake.graph)
    chosen = stages.find_concerned_tables(lake.graph, mode, tables)
    found: list[PlannedStep] = []
    for flow in lag.measure_pipeline_lag(books):
        declared = lake.graph[flow.table]
        plan_replay = declared.kind.plan_replay
        if interval is None or plan_replay is None:
            found.append(steps.plan_flow_step(books, flow, found, refreshed=mode == REFRESH.name and flow.table in chosen))
        elif flow.table in chosen:
            found.append(plan_replay(books, declared, flow, interval, found))
    vacuums = decide_table_vacuums(lake, datetime.now(UTC))
    notes = [
        *_list_replay_notes(lake.graph, interval, chosen),
        *(describe_restored_table(books, *one) for one in find_restored_tables(books).items()),
        *_list_layout_changes(books),
        *(f"No file of '{name}' would be removed: {one.held}" for name, one in vacuums.items() if one.held),
    ]
    return RunPlan(
        mode, interval, found, _find_staleness(books, found, interval, chosen), notes, decide_table_layouts(books), vacuums
    )


def decide_table_layouts(books: PipelineBooks) -> dict[str, LayoutDecision]:
    """Decides, by existing table, whether its files are worth rewriting. Leaves out tables with a damaged log, which their readers report."""
    found = {}
    for declared in books.graph:
        path = books.path(declared.name)
        if books.graph.table_of(declared.name) == declared.name and delta_log.is_delta_table(path):
            with contextlib.suppress(DamagedLog):
                found[declared.name] = decide_layout(path, declared.zorder_by)
    return found


def _list_layout_changes(books: PipelineBooks) -> Iterator[str]:
    """Lists declared layouts that need a rewrite of all of a table's files, which happens only on request, or that cannot be applied."""
    for name, declared in books.graph.stored.items():
        path = books.path(name)
        if books.graph.table_of(name) == name and delta_log.is_delta_table(path):
            with contextlib.suppress(DamagedLog):
                yield from _describe_layout_changes(books.records.pipeline, declared, path)


def _describe_layout_changes(pipeline: str, declared: Source | Dataset[Any], path: str) -> Iterator[str]:
    """Describes how one table's files differ from its declaration, and the command that applies it."""
    name, now = declared.name, f"sluice optimize {pipeline}.{declared.name} --now"
    is_, wanted = log.read_partition_columns(path), list(declared.partition_by)
    was_clustered = log_files.has_clustering_feature(path)
    if is_ != wanted and not was_clustered:
        yield (
            f"'{name}' is partitioned by {', '.join(is_) or 'nothing'}, and declared by {', '.join(wanted) or 'nothing'}. "
            f"It stays so until a refresh writes it anew: sluice run {pipeline} --mode refresh --table {name}."
        )
    clustered = log_files.read_cluster_columns(path)
    if declared.cluster_by and not is_ and (clustered != declared.cluster_by or log_files.was_clustered_otherwise(path)):
        before = "" if clustered == declared.cluster_by else f", before by {', '.join(clustered) or 'nothing'}"
        until = "they are all rewritten" if clustered else "OPTIMIZE finds a need and rewrites all of them. To do it at once"
        yield (
            f"'{name}' is declared to be clustered by {', '.join(declared.cluster_by)}{before}. The files that are there stay as they "
            f"are until {until}: {now}."
        )
    if was_clustered and not declared.cluster_by:
        yield (
            f"'{name}' is or was clustered, and is not declared so. Its protocol keeps that: Spark alone writes it, and Delta allows neither "
            "zorder_by nor partition_by. Remove the table's folder and run again, which makes the table from scratch."
        )
    files = deletion_vectors.count_files_with_deleted_rows(path)
    if files and not (declared.layout and declared.layout.deletion_vectors):
        yield (
            f"{count_noun(files, 'file')} of '{name}' {match_number(files, 'holds', 'hold')} "
            f"rows that are only marked as deleted, which is not declared. To rewrite them: {now}."
        )


def find_restored_tables(books: PipelineBooks) -> dict[str, RestorationMark]:
    """Returns the tables that were restored and not made from scratch since."""
    names = books.graph.datasets
    return {name: mark for name in names if (mark := versions.read_restoration_mark(books.path(name))) is not None}


def describe_restored_table(books: PipelineBooks, name: str, mark: RestorationMark) -> str:
    """Describes the version to which a table was restored, what it lacks, and the command that brings that back."""
    at = f" at {mark.at:%Y-%m-%d %H:%M:%S}" if mark.at else ""
    days = ", or a backfill for some days" if name in books.graph.tables else ""
    return (
        f"'{name}' was restored to version {mark.version}{at}; what it took since that version is not in it until a refresh: "
        f"sluice run {books.records.pipeline} --mode refresh --table {name}{days}."
    )


def _find_staleness(
    books: PipelineBooks, found: Sequence[PlannedStep], interval: Interval | None, chosen: set[str]
) -> list[Staleness]:
    anew = {step.table for step in found if step.does == FOLD_ANEW}
    result = []
    for table in books.graph.tables.values():
        now = stale.find_stale_intervals(books, table)
        if interval is not None and table.name in chosen:
            afterwards = stale.forecast_stale_intervals(books, table, interval)
        else:
            afterwards = [] if table.name in anew else now
        if now:
            result.append(Staleness(table.name, now, afterwards))
    return result


def _list_replay_notes(graph: Graph, interval: Interval | None, chosen: set[str]) -> list[str]:
    if interval is None:
        return []
    return [
        f"Records of '{source.name}' have dates of their own ({source.dated_by}), which Spark reads when it runs; "
        "the deliveries above are those that came in the interval."
        for source in graph.sources.values()
        if source.dated_by and source.name in chosen
    ]
