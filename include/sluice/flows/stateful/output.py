"""How a stream's batch gets into its table: appended once, or as the difference to what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.datasets.windowed import Windowed
from sluice.flows.progress.checkpoints import Checkpoint
from sluice.flows.writing import targets
from sluice.flows.writing.difference import merge, operations, same
from sluice.lake import commits, log, tables
from sluice.lake.commits import Transaction
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyStream = Windowed[Any]


def write(
    workspace: Workspace, stream: AnyStream, checkpoint: Checkpoint, rows: DataFrame, number: int, report: FlowReport
) -> None:
    """Write a batch's rows, which are kept and counted. The first batch of a stream that starts over takes the place of all that is there."""
    first = checkpoint.rebased is not None and number == 0
    if stream.output == "append":
        _append(workspace, stream, checkpoint, rows, number, report, first)
    else:
        _merge(workspace, stream, rows, report, whole=first or stream.output == "complete")


def _append(
    workspace: Workspace,
    stream: AnyStream,
    checkpoint: Checkpoint,
    rows: DataFrame,
    number: int,
    report: FlowReport,
    first: bool,
) -> None:
    path, fresh = workspace.path(stream.name), rows.count()
    state = log.state(path)
    if first and state is not None and state.rows != 0:
        commits.overwrite(rows, path)
    elif fresh:
        commits.append(rows, path, Transaction(checkpoint.flow, checkpoint.identity, stream.name, number))
    report.changed(fresh, 0, 0)


def _merge(workspace: Workspace, stream: AnyStream, rows: DataFrame, report: FlowReport, whole: bool) -> None:
    """whole: the rows are all that the table should have; else what it has of other keys stays."""
    path = workspace.path(stream.name)
    target = tables.read(workspace.session, path)
    old = target if whole else _of_keys(target, rows, stream.keys)
    differing = operations(rows, old, stream.keys)
    changes = merge(workspace.session, path, differing, stream.keys, targets.bounding(stream, target.schema))
    report.changed(changes.inserted, changes.updated, changes.deleted)


def _of_keys(target: DataFrame, rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    wanted = rows.select(*(F.col(f"`{key}`").alias(f"_key_{key}") for key in keys)).distinct()
    ours = same([F.col(f"`{key}`") for key in keys], [F.col(f"`_key_{key}`") for key in keys])
    return target.join(wanted, ours, "left_semi")
