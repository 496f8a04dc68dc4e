"""Runs a stage of a pipeline by its record, and does what the stages of its layers do."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

from sluice import delta_log
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.kinds import load_kind_function
from sluice.erasure import propagation
from sluice.erasure.steps import landing
from sluice.erasure.steps.erasing import NotFollowed
from sluice.erasure.subjects import settling
from sluice.errors import SluiceError, UsageError
from sluice.flows.bronze import accounting
from sluice.flows.progress.stream_numbers import join_stream_numbers
from sluice.flows.quarantine import settlement
from sluice.ingest import ledger
from sluice.ingest.deliveries import discovery
from sluice.ingest.deliveries.known import read_known_files
from sluice.ingest.landing import cleaning
from sluice.lake import log, spark_counters
from sluice.lake.report import FlowReport, FlowsFailed
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import DELETIONS, Stage, find_stage_of_pipeline
from sluice.printable import count_noun
from sluice.record_tables import create_record_table
from sluice.run_modes import INCREMENT, REPLAY
from sluice.runs.execution import clones, column_tracing, table_rules
from sluice.runs.execution.clones import Flow
from sluice.runs.named_tables import find_concerned_tables
from sluice.runs.stage_options import PLAIN, StageOptions
from sluice.step_times import DISCOVERING, TABLES, StepTimes, collect_step_times, current_step_times, measure_step
from sluice.work_progress import CountedWork, FollowedSubject, count_work, follow_subject

_SIDE_BY_SIDE = 3


StageFunction = Callable[[Workspace, str, StageOptions], list[FlowReport]]
"""The function that carries out a stage, named by its record. It also gets the stage's name. Raises FlowsFailed and other errors."""


def run_pipeline_stage(workspace: Workspace, stage: str, options: StageOptions = PLAIN) -> list[FlowReport]:
    """Runs a stage under the lease. Raises FlowsFailed if a flow failed; the others finish."""
    return _load_stage_function(find_stage_of_pipeline(workspace.graph.pipeline, stage))(workspace, stage, options)


def _load_stage_function(stage: Stage) -> StageFunction:
    module, _, name = stage.function.partition(":")
    found: StageFunction = getattr(importlib.import_module(module), name)
    return found


def run_layer_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Brings the tables of a layer up to date. The lowest layer looks for deliveries first. Raises FlowsFailed."""
    chosen = find_concerned_tables(workspace.graph, workspace.mode, options.tables)
    first = stage == workspace.graph.pipeline.layer_names[0]
    reports: list[FlowReport] = []
    errors: dict[str, BaseException] = {}
    warnings: dict[str, list[str]] = {}
    if first:
        settlement.finish_interrupted_journals(workspace)
        if clones.read_clone_description(workspace.records) is None:
            propagation.recompute_suppression_entries(
                workspace
            )  # before anything is read, since a person may have another spelling
        errors |= _discover_deliveries(workspace, chosen, warnings)
        reports += [FlowReport(flow=name, layer=stage) for name in errors]
    levels = _group_independent_flows(workspace.graph, stage)
    for level in settling.put_handover_sources_first(workspace, levels) if first else levels:
        able = [
            item
            for item in level
            if item.name not in errors and (item.name in workspace.graph.sources or not errors) and options.due(item)
        ]
        flows = [(item, _choose_flow(workspace, item, chosen)) for item in able]
        try:
            reports += _run_flows_in_parallel(workspace, stage, [(item, flow) for item, flow in flows if flow], judged=True)
        except FlowsFailed as failed:
            reports += failed.reports
            errors |= failed.errors
        if first:
            settling.end_handed_over_entries(workspace, [item.name for item, _ in flows])
    errors |= table_rules.judge_reference_rules(workspace, [report for report in reports if report.flow not in errors])
    column_tracing.record_column_lineage(workspace, [report for report in reports if report.flow not in errors])
    if errors:
        raise FlowsFailed(reports, errors)
    if first:
        _clean_sources(workspace, reports)
        for report in reports:
            report.notes += [*_note_missing_landing_folder(workspace, report.flow), *warnings.get(report.flow, [])]
        _note_missed_files(workspace, reports)
    return reports


def run_layers_above_bronze(workspace: Workspace) -> list[FlowReport]:
    """Runs the layers after a deletion. Rules that a table is too small, or lacks what others refer to, must not stop it half way.

    A failing flow must not stop it either: flows that read its table read it as it is. Raises NotFollowed at the end, with all failures.
    """
    reports: list[FlowReport] = []
    errors: dict[str, BaseException] = {}
    workspace = replace(workspace, follows_deletion=True)
    for layer in workspace.graph.pipeline.layer_names[1:]:
        for level in _group_independent_flows(workspace.graph, layer):
            flows = [(item, flow) for item in level if (flow := _choose_flow(workspace, item, set()))]
            try:
                reports += _run_flows_in_parallel(workspace, layer, flows, judged=False)
            except FlowsFailed as failed:
                reports += failed.reports
                errors |= failed.errors
    if errors:
        raise NotFollowed(reports, errors)
    return reports


@measure_step(DISCOVERING)
def _discover_deliveries(workspace: Workspace, chosen: set[str], warnings: dict[str, list[str]]) -> dict[str, SluiceError]:
    """Discovers deliveries of every source. Returns the errors of sources that could not be listed; raises if that is so for all.

    warnings: collects further warnings, by source.
    """
    every = workspace.mode != REPLAY.name
    sources = [source for source in workspace.graph.sources.values() if every or source.name in chosen]
    for source in sources:
        _refuse_moved_source(workspace, source)
    refused: dict[str, SluiceError] = {}
    accounting.regain_deliveries(workspace, sources)
    discovery.discover_deliveries(
        sources,
        workspace.landing,
        workspace.deliveries,
        workspace.run,
        workspace.interval,
        refused=refused,
        warnings=warnings,
        in_full=workspace.mode != INCREMENT.name,
    )
    create_record_table(workspace.outcomes, ledger.OUTCOMES)
    if refused and len(refused) == len(sources):
        raise next(iter(refused.values()))
    return refused


def _note_missing_landing_folder(workspace: Workspace, flow: str) -> list[str]:
    source = workspace.graph.sources.get(flow)
    if source is None or not source.kind.in_files or (workspace.landing / source.path).is_dir():
        return []
    return [f"there is no landing folder {workspace.landing / source.path} yet"]


def _note_missed_files(workspace: Workspace, reports: list[FlowReport]) -> None:
    """Says in each report how many of the source's files are missed, whether or not this run tried them first."""
    known = read_known_files(workspace.deliveries, workspace.outcomes)
    for report in reports:
        source = workspace.graph.sources.get(report.flow)
        if source is not None and source.kind.in_files and (files := known.unread_files(source.name)):
            count = count_noun(len(files), "file", "is", "are")
            report.notes.append(f"{count} missed, which every run tries again: sluice ledger {workspace.pipeline} --state missed")


def _clean_sources(workspace: Workspace, reports: list[FlowReport]) -> None:
    """Archives or deletes ingested files of sources that declare it.

    Before that, it removes records of erased people that came again from landed files, since nobody would look for them in an archive.
    """
    if any(source.clean_source == "archive" for source in workspace.graph.sources.values()):
        try:
            reports += landing.rewrite_redelivered_files(workspace.as_increment())
        except SluiceError as error:
            raise FlowsFailed([*reports, FlowReport(flow="landing", layer=DELETIONS.name)], {"landing": error}) from None
    for report in reports:
        source = workspace.graph.sources.get(report.flow)
        if source is not None:
            cleaned = cleaning.clean_landing_folder(
                source, workspace.landing, workspace.deliveries, workspace.outcomes, workspace.run
            )
            report.notes += cleaned.notes(source)


def _refuse_moved_source(workspace: Workspace, source: Source) -> None:
    """Raises UsageError if a source once had a table of its own: its earlier records are there and would not be read with the others."""
    own = workspace.records.table_path(workspace.graph.layer(source), source.name)
    if source.into and delta_log.is_delta_table(own):
        raise UsageError(
            f"Source '{source.name}' goes into '{source.into}', but bronze has a table '{source.name}' with its earlier records. "
            "Give the source another name, and it is read from the first file on."
        )


def _group_independent_flows(graph: Graph, layer: str) -> list[list[Source | Dataset[Any]]]:
    """Groups the layer's declarations: within a group none reads another, and no two write one table."""
    levels: list[list[Source | Dataset[Any]]] = []
    level_of: dict[str, int] = {}
    for item in graph.in_layer(layer):
        # A source that writes into another's table follows that source, and those that wrote into it before.
        before = (*(one.name for one in graph.sharing(item)), *item.reads)
        level_of[item.name] = max((level_of[name] + 1 for name in before if name in level_of), default=0)
        while len(levels) <= level_of[item.name]:
            levels.append([])
        levels[level_of[item.name]].append(item)
    return levels


@measure_step(TABLES)
def _run_flows_in_parallel(
    workspace: Workspace, stage: str, items: list[tuple[Source | Dataset[Any], Flow]], judged: bool
) -> list[FlowReport]:
    reports = [FlowReport(flow=item.name, layer=stage) for item, _ in items]
    errors: dict[str, BaseException] = {}

    def work(position: int) -> None:
        item, flow = items[position]
        # Each flow has a session of its own, because the mark of its commits is set on the session.
        mine = workspace.within(workspace.session.newSession())
        if (times := current_step_times()) is not None:
            times.job_tags.append(spark_counters.session_job_tag(mine.session))
        mine.mark_next_commits(item.name)
        try:
            flow(mine, reports[position])
            if judged and isinstance(item, Dataset):
                table_rules.judge_own_table_rules(mine, item, reports[position])
        except Exception as error:
            errors[item.name] = error

    def work_in_turn(position: int, tables: CountedWork, context: Context) -> None:
        context.run(run_timed_flow, workspace, reports[position], lambda: work(position))
        tables.advance()

    with count_work("tables", [item.name for item, _ in items]) as tables, ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE) as pool:
        turns = [pool.submit(work_in_turn, position, tables, copy_context()) for position in range(len(items))]
    for turn in turns:
        turn.result()
    if errors:
        raise FlowsFailed(reports, errors)
    return reports


def run_timed_flow(workspace: Workspace, report: FlowReport, work: Callable[[], None]) -> None:
    """Does a flow's work, and notes its seconds and the versions of its table before and after."""
    path = workspace.path(report.flow)
    started, times = time.monotonic(), StepTimes()
    report.version_before = log.latest_table_version(path)
    with collect_step_times(times), follow_subject(FollowedSubject(report.flow, times)):
        work()
    report.note_new_versions(path)
    report.steps, report.job_tags = times.rounded_seconds(), tuple(times.job_tags)
    report.stream = join_stream_numbers(times.streams)
    report.seconds = round(time.monotonic() - started, 2)


def _choose_flow(workspace: Workspace, item: Source | Dataset[Any], chosen: set[str]) -> Flow | None:
    """Returns what to do to a table in this run's mode, or None if the run does not concern it."""
    choose: Callable[[Workspace, Source | Dataset[Any], bool], Flow | None] = load_kind_function(item.kind, "run")
    return choose(workspace, item, item.name in chosen)
