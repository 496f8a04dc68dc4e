"""The gold flow keeps a materialised view equal to its full recompute, by affected keys.

It streams the changes of its inputs, both images, and takes only names from them: the values of view columns and the times that a change
can touch. A batch recomputes what its changes touch from the inputs as they are now, and merges the difference.

The inputs are read at versions that are pinned for the run. If a full recompute is cheaper, the whole view is recomputed, and still only
the difference is merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.materialized_views import AnyView
from sluice.declare.quoting import quote_identifier
from sluice.flows.gold import choice, touched
from sluice.flows.gold.probe import PROBE_RULES, InputReach, find_input_reaches
from sluice.flows.gold.view_batch import ViewBatch, check_view_columns, read_view_input
from sluice.flows.progress import stream_starts, streams
from sluice.flows.progress.batches import PinnedVersions, TakenVersions
from sluice.flows.progress.checkpoints import (
    TRANSFORM,
    open_checkpoint,
    reason_to_rebase,
    record_followed_versions,
    record_probe,
)
from sluice.flows.progress.flow_memory import read_flow_memory
from sluice.flows.progress.missing_inputs import describe_missing_inputs, list_missing_inputs
from sluice.flows.writing import targets
from sluice.lake import batch_sizes, log
from sluice.lake.flow_report import FlowReport
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import MergedKeys, Workspace
from sluice.quality import verdicts
from sluice.step_times import COMPUTING, PLANNING, measure_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INPUTS = "what it uses of its inputs changed"


def run_gold_flow(workspace: Workspace, view: AnyView, report: FlowReport, anew: str | None = None) -> None:
    """Brings the view up to date. anew: a reason to recompute it in full."""
    missing = list_missing_inputs(view.reads, workspace.path)
    present = view.over(set(view.reads) - set(missing))
    if present is None:
        report.notes.append(describe_missing_inputs(missing))
        return
    view = present
    with measure_step(PLANNING):
        inputs = {name: read_view_input(workspace, name) for name in view.reads}
        given = view(*(inputs[name] for name in view.reads))
        stored = check_view_columns(view, given)
        verdicts.check_conditions(workspace.session, view, given.schema)
    shape = targets.prepare_target_table(workspace, view, stored, anew=anew)
    if anew is None:
        if _has_taken_everything(workspace, view, {}):
            return
        merged = _find_merged_keys(workspace, view, inputs)
        if (
            shape is None
            and merged
            and _has_taken_everything(workspace, view, {name: one.versions for name, one in merged.items()})
        ):
            _follow_merged_keys(workspace, view, merged, report)
            return
    reach = find_input_reaches(workspace.session, view, {name: frame.schema for name, frame in inputs.items()})
    streams.run_with_rebase(lambda why: _stream_view_changes(workspace, view, reach, report, why, shape), anew)


def _has_taken_everything(workspace: Workspace, view: AnyView, known: Mapping[str, range]) -> bool:
    """Whether the flow would resume, with the same declaration and today's probe, and has taken all changes of its inputs.

    known: by input, versions whose changes it need not have taken.
    """
    flow, paths = workspace.graph.flow_name(view), workspace.streamed_tables(view)
    folder, identities = workspace.checkpoints(flow), {name: log.read_table_id(path) for name, path in paths.items()}
    memory = read_flow_memory(folder, flow)
    # The rest of the mark follows from the declaration and from the inputs' columns.
    if memory is None or not memory.fingerprint.startswith(compute_declaration_fingerprint(view)):
        return False
    if memory.probe_rules != PROBE_RULES or reason_to_rebase(folder, flow, identities, memory.fingerprint):
        return False
    return not stream_starts.has_unread_changes(str(memory.checkpoint), identities, paths, memory.followed, known)


def _find_merged_keys(workspace: Workspace, view: AnyView, inputs: Mapping[str, DataFrame]) -> dict[str, MergedKeys]:
    """Returns, by input, the keys whose rows this run has just merged into it, if a change touches only the view's rows of its own key."""
    followed = {
        name: frame
        for name, frame in inputs.items()
        if view.followed_by and set(view.followed_by) <= set(frame.columns) and not _has_empty_text_as_null(view, frame)
    }
    merged = {name: workspace.merged_keys.find(name) for name in followed}
    return {name: one for name, one in merged.items() if one is not None}


def _has_empty_text_as_null(view: AnyView, frame: DataFrame) -> bool:
    """Whether a key may be another one in the table than in its input: Delta keeps the empty text of a partition as NULL."""
    both = set(view.followed_by) & set(view.partition_by)
    return any(frame.schema[name].dataType.simpleString() == "string" for name in both)


@measure_step(COMPUTING)
def _follow_merged_keys(workspace: Workspace, view: AnyView, merged: Mapping[str, MergedKeys], report: FlowReport) -> None:
    """Recomputes the rows of the merged keys from the inputs as they are now, without a stream or a change feed.

    If this is killed before its end, the flow's stream takes the same changes, and finds no difference in what was done.
    """
    by_key = InputReach({key: quote_identifier(key) for key in view.followed_by})
    # An input without the keys, such as a log of truncates, is read whole.
    reach = {name: by_key if name in merged else InputReach({}) for name in view.reads}
    with _take_inputs_without_stream(workspace, view, reach, report) as part:
        part.follow_keys([one.rows for one in merged.values()])


@contextmanager
def _take_inputs_without_stream(
    workspace: Workspace, view: AnyView, reach: Mapping[str, InputReach], report: FlowReport
) -> Iterator[ViewBatch]:
    """Gives a batch of the inputs as they are now. If it is carried out, the flow's stream begins after them when it is needed again."""
    streams.stop_if_requested(workspace)
    flow = workspace.graph.flow_name(view)
    versions = {name: version for name in view.reads if (version := log.latest_table_version(workspace.path(name))) is not None}
    workspace.mark_next_commits(flow, inputs=versions)
    known = choice.read_table_states(workspace, view)
    yield ViewBatch(workspace, view, reach, versions, TakenVersions(versions, versions), known, report)
    record_followed_versions(workspace.checkpoints(flow), flow, versions)
    report.batches += 1


def _recompute_anew(part: ViewBatch, why: str, shape: TableShape | None) -> None:
    """Recomputes the whole view, with other columns if it has a new shape, and records that today's transform made all of it."""
    part.replace_table(shape) if shape else part.recompute_whole_view()
    part.report.note_full_recompute(why)
    targets.record_transform_fingerprint(part.workspace, part.view)


def _stream_view_changes(
    workspace: Workspace,
    view: AnyView,
    reach: Mapping[str, InputReach],
    report: FlowReport,
    anew: str | None,
    shape: TableShape | None,
) -> None:
    flow = workspace.graph.flow_name(view)
    paths = workspace.streamed_tables(view)
    identities = {name: log.read_table_id(path) for name, path in paths.items()}
    marks = compute_declaration_fingerprint(view) + "".join(
        f"{name}{sorted(one.columns.items())}{one.time or ''}{one.used}" for name, one in sorted(reach.items())
    )
    checkpoint = open_checkpoint(
        workspace.checkpoints(flow),
        flow,
        identities,
        marks,
        anew,
        lambda: stream_starts.find_starts_at_latest_change(paths, feed=True),
        lambda followed: stream_starts.find_starts_past(paths, followed),
    )
    unbounded = [name for name, one in sorted(reach.items()) if one.is_unbounded]
    record_probe(workspace.checkpoints(flow), flow, unbounded, PROBE_RULES)
    why = (
        _INPUTS if checkpoint.rebased == TRANSFORM and not targets.has_transform_changed(workspace, view) else checkpoint.rebased
    )
    if why:
        report.note_view_anew(why)

    pins = PinnedVersions(checkpoint.path, paths, identities)
    before = report.batches

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        known = choice.read_table_states(inside, view)
        batch_sizes.choose_evaluation_settings(inside.session, (), rows=choice.sum_row_counts(known))
        part = ViewBatch(inside, view, reach, pins.pin_for_batch(number), pins.find_taken(number), known, report)
        inside.mark_next_commits(flow, inputs=part.versions)
        if why is not None and number == 0:
            _recompute_anew(part, why, shape)
        else:
            part.follow_changes(rows, choice.count_changed_rows(inside, pins.followed(number)))
        report.batches += 1

    at_once = streams.ALL_FILES if checkpoint.rebased else streams.USUAL_FILES
    feeds = {
        name: streams.stream_table(workspace.session, path, at_once, checkpoint.starts.get(name), feed=True)
        for name, path in paths.items()
    }
    streams.run_stream(workspace, touched.select_touched_names(feeds, reach), checkpoint, on_batch)
    if why is not None and report.batches == before:  # a stream over inputs without a row has no batch
        with measure_step(COMPUTING), _take_inputs_without_stream(workspace, view, reach, report) as part:
            _recompute_anew(part, why, shape)
