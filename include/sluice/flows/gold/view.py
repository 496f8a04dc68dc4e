"""The gold flow: a materialised view, kept equal to its full recompute by affected keys.

It streams the changes of its inputs, both images, and takes only names from them: the values of those view columns, and the times, that a
change can touch. What is then made again, and written, is a batch's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.fingerprint import fingerprint
from sluice.declare.datasets.tables import MaterializedView
from sluice.flows.gold import batch, choice, touched
from sluice.flows.gold.batch import Batch, Told
from sluice.flows.gold.probe import Reach, reaches
from sluice.flows.progress import streams
from sluice.flows.progress.checkpoints import TRANSFORM, current
from sluice.flows.progress.pins import Pins
from sluice.flows.writing import enforced, targets
from sluice.lake import evaluation, log
from sluice.lake.report import FlowReport
from sluice.lake.tables import Shape
from sluice.lake.workspace import Workspace
from sluice.privacy import treatments
from sluice.quality import conditions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyView = MaterializedView[Any]
_ALL_FILES = 2**31 - 1
_INPUTS = "what it uses of its inputs changed"


def run(workspace: Workspace, view: AnyView, report: FlowReport, anew: str | None = None) -> None:
    """Bring the view up to date. anew: a reason to recompute it in full."""
    missing = [name for name in view.reads if not log.exists(workspace.path(name))]
    present = view.over(set(view.reads) - set(missing))
    if present is None:
        report.notes.append(f"its input '{missing[0]}' has no row yet")
        return
    view = present
    inputs = {name: batch.read(workspace, name) for name in view.reads}
    given = view(*(inputs[name] for name in view.reads))
    enforced.check(view, given.schema)
    conditions.check(workspace.session, view, given.schema)
    rows = treatments.applied(None, given, view.treatments, f"View '{view.name}'")
    shape = targets.prepare(workspace, view, rows.schema, anew=anew)
    reach = reaches(workspace.session, view, {name: frame.schema for name, frame in inputs.items()})
    streams.rebasing(lambda why: _attempt(workspace, view, reach, report, why, shape), anew)


def _attempt(
    workspace: Workspace,
    view: AnyView,
    reach: Mapping[str, Reach],
    report: FlowReport,
    anew: str | None,
    shape: Shape | None,
) -> None:
    flow = f"{workspace.graph.layer(view)}_{view.name}"
    identities = {name: log.table_id(workspace.path(name)) for name in view.reads}
    marks = fingerprint(view) + "".join(
        f"{name}{sorted(one.columns.items())}{one.time or ''}{one.used}" for name, one in sorted(reach.items())
    )
    checkpoint = current(workspace.checkpoints(flow), flow, identities, marks, anew)
    why = _INPUTS if checkpoint.rebased == TRANSFORM and not targets.changed(workspace, view) else checkpoint.rebased
    if why:
        report.notes.append(f"recomputed in full: {why}")

    pins = Pins(checkpoint.path, {name: workspace.path(name) for name in view.reads}, identities)
    told = Told(report)

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        known = choice.states(inside, view)
        evaluation.suit(inside.session, (), rows=choice.rows_of(known))
        part = Batch(inside, view, reach, pins.of(number), known, told)
        inside.note(flow, inputs=part.versions)
        if why is not None and number == 0:
            part.replace(shape) if shape else part.recompute()
            told.full(why)
            targets.remember(inside, view)
        else:
            part.follow(rows, choice.changed(inside, pins.followed(number)))
        report.batches += 1

    limit = _ALL_FILES if checkpoint.rebased else 1000
    paths = {name: workspace.path(name) for name in view.reads}
    streams.run(workspace, touched.stream(workspace.session, paths, reach, limit), checkpoint, on_batch)
