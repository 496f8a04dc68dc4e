"""Brings the tables of a layer up to date in a run, and those of all layers above bronze after a deletion.

The lowest layer's stage also discovers deliveries before its flows, and cleans landing folders after them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sluice import delta_log
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.erasure import propagation, request_record
from sluice.erasure.steps import landing
from sluice.erasure.subjects import identity_settling
from sluice.errors import SluiceError, UsageError
from sluice.flows.bronze import accounting
from sluice.flows.quarantine import settlement
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries import discovery
from sluice.ingest.deliveries.discovery import Discovery, DiscoveryOptions
from sluice.ingest.deliveries.known_files import read_known_files
from sluice.ingest.landing import cleaning
from sluice.lake.flow_report import FlowReport, FlowsFailed, TableTurns
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun
from sluice.record_tables import create_record_table
from sluice.run_modes import INCREMENT, REFRESH, REPLAY
from sluice.runs.execution import clones, column_tracing, table_rules
from sluice.runs.execution.parallel_flows import Flow, group_independent_flows, run_flows_in_parallel
from sluice.runs.execution.stages import StageOptions, find_concerned_tables
from sluice.step_times import DISCOVERING, measure_step


@dataclass
class LayerUpdate:
    """The update of one layer, level by level. turns: what its flows reported, and which failed."""

    workspace: Workspace
    stage: str
    chosen: set[str]
    due: Callable[[Source | Dataset[Any]], bool]
    turns: TableTurns = field(default_factory=TableTurns)

    def note_refused_sources(self, refused: Mapping[str, BaseException]) -> None:
        """Counts as failed the flows of sources that could not be listed."""
        self.turns.errors |= refused
        self.turns.reports += [FlowReport(flow=name, layer=self.stage) for name in refused]

    def run_flows_of_level(self, level: list[Source | Dataset[Any]]) -> list[str]:
        """Runs those flows of a level that are able to run and due. Returns their names, and those that this run does not concern."""
        able = [item for item in level if self._is_able(item) and self.due(item)]
        flows = choose_flows(self.workspace, able, self.chosen)
        self.turns.take_flows(lambda: run_flows_in_parallel(self.workspace, self.stage, flows, judged=True))
        return [item.name for item in able]

    def _is_able(self, item: Source | Dataset[Any]) -> bool:
        """Whether nothing failed that the flow needs: a source needs no other flow, and a table is left alone once any flow failed."""
        failed = self.turns.errors
        return item.name not in failed and (item.name in self.workspace.graph.sources or not failed)

    def judge_and_report(self) -> list[FlowReport]:
        """Judges rules between tables, and records where columns come from. Returns the reports. Raises FlowsFailed if a flow or rule failed."""
        self.turns.errors |= table_rules.judge_reference_rules(self.workspace, self._list_succeeded_reports())
        column_tracing.record_column_lineage(self.workspace, self._list_succeeded_reports())
        return self.turns.end_turns()

    def _list_succeeded_reports(self) -> list[FlowReport]:
        return [report for report in self.turns.reports if report.flow not in self.turns.errors]


def choose_flows(
    workspace: Workspace, items: Sequence[Source | Dataset[Any]], chosen: set[str]
) -> list[tuple[Source | Dataset[Any], Flow]]:
    """Returns what to do to each table in this run's mode, without those that the run does not concern."""
    return [(item, flow) for item in items if (flow := item.kind.choose_flow(workspace, item, item.name in chosen))]


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
            flows = choose_flows(workspace, level, set())
            turns.take_flows(partial(run_flows_in_parallel, workspace, layer, flows, judged=False))
    return turns.end_turns()


def update_lowest_layer(update: LayerUpdate) -> list[FlowReport]:
    """Discovers deliveries, brings the tables that are made from them up to date, and cleans the landing folders. Raises FlowsFailed."""
    workspace = update.workspace
    settlement.finish_interrupted_journals(workspace)
    if clones.read_clone_description(workspace.records) is None:
        # before anything is read, since a person may have another spelling
        propagation.recompute_suppression_entries(workspace)
    discovered = discover_run_deliveries(workspace, update.chosen)
    update.note_refused_sources(discovered.refused)
    for level in identity_settling.put_handover_sources_first(workspace, group_independent_flows(workspace.graph, update.stage)):
        identity_settling.end_handed_over_entries(workspace, update.run_flows_of_level(level))
    reports = update.judge_and_report()
    clean_sources(workspace, reports)
    for report in reports:
        report.notes += [*_note_missing_landing_folder(workspace, report.flow), *discovered.warnings.get(report.flow, ())]
    note_missed_files(workspace, reports)
    return reports


@measure_step(DISCOVERING)
def discover_run_deliveries(workspace: Workspace, chosen: set[str]) -> Discovery:
    """Discovers deliveries of every source that the run concerns. Raises the first error if no source could be listed; others are in the result."""
    every = workspace.mode != REPLAY.name
    sources = [source for source in workspace.graph.sources.values() if every or source.name in chosen]
    for source in sources:
        _refuse_moved_source(workspace, source)
    accounting.regain_deliveries(workspace, sources)
    found = discovery.discover_deliveries(
        sources,
        workspace.landing,
        workspace.deliveries,
        workspace.run,
        DiscoveryOptions(workspace.interval, in_full=workspace.mode != INCREMENT.name),
    )
    create_record_table(workspace.outcomes, delivery_tables.OUTCOMES)
    return found.raise_first_refusal() if len(found.refused) == len(sources) else found


def _note_missing_landing_folder(workspace: Workspace, flow: str) -> list[str]:
    source = workspace.graph.sources.get(flow)
    if source is None or not source.kind.in_files or (workspace.landing / source.path).is_dir():
        return []
    return [f"there is no landing folder {workspace.landing / source.path} yet"]


def note_missed_files(workspace: Workspace, reports: list[FlowReport]) -> None:
    """Says in each report how many of the source's files are missed, whether or not this run tried them first."""
    known = read_known_files(workspace.deliveries, workspace.outcomes)
    for report in reports:
        source = workspace.graph.sources.get(report.flow)
        if source is not None and source.kind.in_files and (files := known.unread_files(source.name)):
            count = count_noun(len(files), "file", "is", "are")
            report.notes.append(f"{count} missed, which every run tries again: sluice ledger {workspace.pipeline} --state missed")


def clean_sources(workspace: Workspace, reports: list[FlowReport]) -> None:
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
