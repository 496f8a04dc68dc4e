"""The gold flow: a materialised view, kept equal to its full recompute by affected keys.

It streams the changes of its inputs, both images, and takes only names from them: the values of those view columns that a change can
touch. That part of the view is recomputed from the inputs as they are now and the difference is merged.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.fingerprint import fingerprint
from sluice.declare.tables import MaterializedView
from sluice.flows import enforced, streams, targets
from sluice.flows.checkpoints import current
from sluice.flows.difference import (
    DELETE,
    INSERT,
    OPERATION,
    UPDATE,
    beside,
    kept,
    merge,
    same,
)
from sluice.flows.judgement import judge
from sluice.flows.probe import Reach, reaches
from sluice.flows.ranges import Limits, bounds, within
from sluice.lake import evaluation, log, tables
from sluice.lake.report import FlowReport
from sluice.lake.tables import Shape
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import treatments
from sluice.quality import conditions, verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyView = MaterializedView[Any]
_ALL_FILES = 2**31 - 1
_INPUT = "_input"


@dataclass(frozen=True)
class Scope:
    """The part of a view that changes can touch: distinct values of some of its columns, and the ranges that they are in."""

    values: DataFrame
    ranges: Limits
    reach: Mapping[str, Reach]

    def narrow(self, frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
        """The frame's rows whose values of these columns, by expression, are among the scope's, NULLs being equal to each other."""
        shared = [column for column in self.values.columns if column in columns]
        if not shared:
            return frame
        near = frame.where(within(self.ranges, columns))
        values = self.values.select(*(F.col(f"`{column}`").alias(f"_touched_{column}") for column in shared)).distinct()
        condition = same(
            [F.expr(columns[column]) for column in shared],
            [F.col(f"`_touched_{column}`") for column in shared],
        )
        return near.join(values, condition, "left_semi")


def run(workspace: Workspace, view: AnyView, report: FlowReport, anew: str | None = None) -> None:
    """Bring the view up to date. anew: a reason to recompute it in full."""
    missing = [name for name in view.reads if not log.exists(workspace.path(name))]
    present = view.over(set(view.reads) - set(missing))
    if present is None:
        report.notes.append(f"its input '{missing[0]}' has no row yet")
        return
    view = present
    inputs = _inputs(workspace, view)
    given = view(*(inputs[name] for name in view.reads))
    enforced.check(view, given.schema)
    conditions.check(workspace.session, view, given.schema)
    rows = treatments.applied(None, given, view.treatments, f"View '{view.name}'")
    shape = targets.prepare(workspace, view, rows.schema, anew=anew)
    reach = reaches(workspace.session, view, {name: frame.schema for name, frame in inputs.items()})
    try:
        _attempt(workspace, view, reach, report, anew, shape)
    except streams.ContinuityLost as lost:
        _attempt(workspace, view, reach, report, f"its stream could not go on ({lost})")


def _attempt(
    workspace: Workspace,
    view: AnyView,
    reach: Mapping[str, Reach],
    report: FlowReport,
    anew: str | None,
    shape: Shape | None = None,
) -> None:
    flow = f"{workspace.graph.layer(view)}_{view.name}"
    identities = {name: log.table_id(workspace.path(name)) for name in view.reads}
    marks = fingerprint(view) + "".join(f"{name}{sorted(reach[name].columns.items())}" for name in sorted(reach))
    checkpoint = current(workspace.checkpoints(flow), flow, identities, marks, anew)
    if checkpoint.rebased:
        report.notes.append(f"recomputed in full: {checkpoint.rebased}")

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        evaluation.suit(inside.session, map(inside.path, (view.name, *view.reads)))
        if checkpoint.rebased is not None and number == 0:
            replace(inside, view, report, shape) if shape else recompute(inside, view, report)
            targets.remember(inside, view)
        else:
            follow(inside, view, reach, rows, report)
        report.batches += 1

    limit = _ALL_FILES if checkpoint.rebased else 1000
    streams.run(workspace, _changes(workspace, reach, limit), checkpoint, on_batch)


def follow(workspace: Workspace, view: AnyView, reach: Mapping[str, Reach], rows: DataFrame, report: FlowReport) -> None:
    """Recompute what a batch of changed names touches: inputs that are bounded by the same columns in one pass."""
    with kept(rows.distinct()) as changes:
        changed = {row[_INPUT] for row in changes.select(_INPUT).distinct().collect()}
        if any(not reach[name].columns for name in changed):
            recompute(workspace, view, report)
            return
        passes: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in sorted(changed):
            passes[tuple(sorted(reach[name].columns))].append(name)
        for columns, names in passes.items():
            touched = [
                changes.where(F.col(_INPUT) == name).select(*(F.col(f"{name}.`{column}`").alias(column) for column in columns))
                for name in names
            ]
            with kept(functools.reduce(lambda a, b: a.unionByName(b), touched).distinct()) as values:
                plain = targets.bounding(view, values.schema, columns)
                recompute(workspace, view, report, Scope(values, bounds(values, plain), reach))


def recompute(workspace: Workspace, view: AnyView, report: FlowReport, scope: Scope | None = None) -> None:
    """Recompute the view, or the scope's part of it, and merge what differs."""
    inputs = _inputs(workspace, view)
    target = tables.read(workspace.session, workspace.path(view.name))
    if scope is not None:
        inputs = {name: scope.narrow(frame, scope.reach[name].columns) for name, frame in inputs.items()}
    new = view(*(inputs[name] for name in view.reads))
    old = target
    if scope is not None:
        own = {column: f"`{column}`" for column in scope.values.columns}
        new, old = scope.narrow(new, own), scope.narrow(target, own)
    with kept(_stored(workspace, view, new)) as judged:
        judge(view, judged, report)
        operations = _operations(judged.drop(*verdicts.VERDICT), old, view.keys, target.columns)
        path = workspace.path(view.name)
        changes = merge(workspace.session, path, operations, view.keys, targets.bounding(view, target.schema))
    report.changed(changes.inserted, changes.updated, changes.deleted)


def replace(workspace: Workspace, view: AnyView, report: FlowReport, shape: Shape) -> None:
    """Make the view anew with other columns."""
    inputs = _inputs(workspace, view)
    with kept(_stored(workspace, view, view(*(inputs[name] for name in view.reads)))) as judged:
        judge(view, judged, report)
        report.replaced(targets.replace(judged.drop(*verdicts.VERDICT), workspace.path(view.name), shape))


def _stored(workspace: Workspace, view: AnyView, rows: DataFrame) -> DataFrame:
    """The transform's rows with verdicts, personal columns treated."""
    judged = verdicts.with_verdict(rows, view.expectations)
    return treatments.applied(workspace.settings, judged, view.treatments, f"View '{view.name}'")


def _operations(new: DataFrame, old: DataFrame, keys: tuple[str, ...], columns: list[str]) -> DataFrame:
    both = beside(new, old, keys)
    equal = same([F.col(f"new.`{name}`") for name in columns], [F.col(f"old.`{name}`") for name in columns])
    operation = F.when(F.col("old").isNull(), INSERT).when(F.col("new").isNull(), DELETE).when(~equal, UPDATE)
    chosen = both.select(operation.alias(OPERATION), F.coalesce("new", "old").alias("row")).where(F.col(OPERATION).isNotNull())
    return chosen.select(OPERATION, *(F.col(f"row.`{name}`").alias(name) for name in columns))


def _inputs(workspace: Workspace, view: AnyView) -> dict[str, DataFrame]:
    """The inputs as they are now, without the columns that Sluice adds to silver."""
    return {name: tables.read(workspace.session, workspace.path(name)).drop(*PROVENANCE) for name in view.reads}


def _changes(workspace: Workspace, reach: Mapping[str, Reach], limit: int) -> DataFrame:
    """The names that changes of the inputs touch: _input, and per input a struct of the bounding columns' values."""
    frames = []
    for name in sorted(reach):
        reader = workspace.session.readStream.format("delta").option("readChangeFeed", "true").option("maxFilesPerTrigger", limit)
        columns = [F.expr(expression).alias(column) for column, expression in reach[name].columns.items()]
        values = [F.struct(*columns).alias(name)] if columns else []
        frames.append(reader.load(workspace.path(name)).select(F.lit(name).alias(_INPUT), *values))
    return functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
