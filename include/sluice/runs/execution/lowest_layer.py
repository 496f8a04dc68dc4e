"""What only the lowest layer's stage does: it discovers deliveries before its flows, and cleans landing folders after them."""

from __future__ import annotations

from sluice import delta_log
from sluice.declare.ingest.source import Source
from sluice.erasure import propagation
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
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun
from sluice.record_tables import create_record_table
from sluice.run_modes import INCREMENT, REPLAY
from sluice.runs.execution import clones
from sluice.runs.execution.layer_update import LayerUpdate
from sluice.runs.execution.parallel_flows import group_independent_flows
from sluice.step_times import DISCOVERING, measure_step


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
