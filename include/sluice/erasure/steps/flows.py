"""What flows remember of people: states that cannot be cleaned start over, and every flow follows the deletions in its inputs."""

from __future__ import annotations

from collections.abc import Container

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.erasure.steps.erasure_step import ErasureStep
from sluice.errors import SluiceError
from sluice.flows.progress import checkpoints, stream_starts
from sluice.lake import log, versions
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import DELETIONS


def reset_stateful_streams(step: ErasureStep) -> None:
    """Makes stateful streams that read such people start over: nobody can be removed from a sum or an open window.

    The state is removed before the rows it was made from; otherwise a killed propagation would later find no such rows and miss the
    state. Unread changes would still show the deleted rows, so from now on the streams read their inputs as they are.
    """
    propagation, workspace = step.propagation, step.propagation.workspace
    for stream in workspace.graph.streams.values():
        if not step.is_done(stream.name):
            if propagation.domains & _find_input_domains(workspace, stream.reads):
                flow = workspace.graph.flow_name(stream)
                checkpoints.reset_checkpoint(workspace.checkpoints(flow), flow, stream_starts.ERASED)
            step.record_done(stream.name)


def run_following_flows(step: ErasureStep) -> None:
    """Runs every flow above bronze to its end. A failing flow of a table does not matter: its rows are already removed.

    Raises SluiceError if something that cannot be cleaned in another way did not follow.
    """
    if step.is_done():
        return
    propagation, workspace = step.propagation, step.propagation.workspace
    reset_restored_views(workspace, workspace.graph.views)
    try:
        reports, errors = propagation.follow(), {}
    except FlowsFailed as failed:
        reports, errors = failed.reports, failed.errors
    propagation.reports += reports
    stale = sorted(
        name for name in errors if name not in workspace.graph.tables and delta_log.is_delta_table(workspace.path(name))
    )
    if stale:
        first = errors[stale[0]]
        why = str(first) if isinstance(first, SluiceError) else type(first).__name__
        raise SluiceError(
            f"People are erased from tables, but may still be in {', '.join(stale)}, whose flow failed ({why}). Nothing is marked as erased. "
            f"When the flow works again: sluice run {workspace.pipeline} --stage {DELETIONS.name}"
        )
    for name in sorted(errors):
        told = next((report for report in reports if report.flow == name), None) or FlowReport(flow=name, layer=DELETIONS.name)
        told.notes.append("its flow failed and goes on with the next run; erased people are out of its table already")
        if told not in propagation.reports:
            propagation.reports.append(told)
    step.record_done(rows=sum(report.deleted for report in reports))


def reset_restored_views(workspace: Workspace, names: Container[str]) -> None:
    """Makes those of these views start anew that were restored: they may have rows that no change of their inputs affects any more."""
    for view in workspace.graph.views.values():
        if view.name in names and versions.read_restoration_mark(workspace.path(view.name)) is not None:
            flow = workspace.graph.flow_name(view)
            checkpoints.reset_checkpoint(workspace.checkpoints(flow), flow)


def _find_input_domains(workspace: Workspace, reads: tuple[str, ...]) -> set[str]:
    """The kinds of people in these tables, as far as the declarations say."""
    found: set[str] = set()
    for name in reads:
        declared = workspace.graph[name]
        domain = workspace.graph.domain(declared)
        found |= set(subjects.find_other_subject_columns(workspace.graph, declared).values())
        found |= set(workspace.graph.domains()) if subjects.find_free_text_columns(workspace.graph, declared) else set()
        if domain:
            found.add(domain)
        elif declared.reads:
            path = workspace.path(name)
            columns = log.read_column_names(path) if delta_log.is_delta_table(path) else []
            told = subjects.find_table_subjects(workspace.graph, declared, columns)  # type: ignore[arg-type]
            found |= {domain for _, domain in told.columns} | told.unknown
    return found
