"""The gold flow: a materialised view, kept equal to its full recompute by affected keys.

It streams the changes of its inputs, both images, and takes only names from them: the values of view columns and the times that a change
can touch. `batch` then recomputes and writes these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.tables import MaterializedView
from sluice.flows.gold import batch, choice, touched
from sluice.flows.gold.batch import RecomputeReport, ViewBatch
from sluice.flows.gold.probe import InputReach, find_input_reaches
from sluice.flows.progress import streams
from sluice.flows.progress.checkpoints import TRANSFORM, open_checkpoint
from sluice.flows.progress.pins import PinnedVersions
from sluice.flows.writing import enforced, targets
from sluice.lake import evaluation, log
from sluice.lake.report import FlowReport
from sluice.lake.tables import TableShape
from sluice.lake.workspace import Workspace
from sluice.privacy import treatments
from sluice.quality import conditions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyView = MaterializedView[Any]
_ALL_FILES = 2**31 - 1
_INPUTS = "what it uses of its inputs changed"


def run_gold_flow(workspace: Workspace, view: AnyView, report: FlowReport, anew: str | None = None) -> None:
    """Bring the view up to date. anew: a reason to recompute it in full."""
    missing = [name for name in view.reads if not log.is_delta_table(workspace.path(name))]
    present = view.over(set(view.reads) - set(missing))
    if present is None:
        report.notes.append(f"its input '{missing[0]}' has no row yet")
        return
    view = present
    inputs = {name: batch.read_view_input(workspace, name) for name in view.reads}
    given = view(*(inputs[name] for name in view.reads))
    enforced.check_declared_schema(view, given.schema)
    conditions.check_conditions(workspace.session, view, given.schema)
    rows = treatments.apply_treatments(None, given, view.treatments, f"View '{view.name}'")
    shape = targets.prepare_target_table(workspace, view, rows.schema, anew=anew)
    reach = find_input_reaches(workspace.session, view, {name: frame.schema for name, frame in inputs.items()})
    streams.run_with_rebase(lambda why: _stream_view_changes(workspace, view, reach, report, why, shape), anew)


def _stream_view_changes(
    workspace: Workspace,
    view: AnyView,
    reach: Mapping[str, InputReach],
    report: FlowReport,
    anew: str | None,
    shape: TableShape | None,
) -> None:
    flow = f"{workspace.graph.layer(view)}_{view.name}"
    identities = {name: log.read_table_id(workspace.path(name)) for name in view.reads}
    marks = compute_declaration_fingerprint(view) + "".join(
        f"{name}{sorted(one.columns.items())}{one.time or ''}{one.used}" for name, one in sorted(reach.items())
    )
    checkpoint = open_checkpoint(workspace.checkpoints(flow), flow, identities, marks, anew)
    why = (
        _INPUTS if checkpoint.rebased == TRANSFORM and not targets.has_transform_changed(workspace, view) else checkpoint.rebased
    )
    if why:
        report.notes.append(f"recomputed in full: {why}")

    pins = PinnedVersions(checkpoint.path, {name: workspace.path(name) for name in view.reads}, identities)
    told = RecomputeReport(report)

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        known = choice.read_table_states(inside, view)
        evaluation.choose_evaluation_settings(inside.session, (), rows=choice.sum_row_counts(known))
        part = ViewBatch(inside, view, reach, pins.of(number), known, told)
        inside.note(flow, inputs=part.versions)
        if why is not None and number == 0:
            part.replace(shape) if shape else part.recompute()
            told.full(why)
            targets.record_transform_fingerprint(inside, view)
        else:
            part.follow(rows, choice.count_changed_rows(inside, pins.followed(number)))
        report.batches += 1

    limit = _ALL_FILES if checkpoint.rebased else 1000
    paths = {name: workspace.path(name) for name in view.reads}
    streams.run_stream(workspace, touched.stream_touched_names(workspace.session, paths, reach, limit), checkpoint, on_batch)
