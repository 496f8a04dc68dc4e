"""Closing the windows of a stream whose inputs are quiet: the watermark moves with newer rows only, so somebody has to move it.

A heartbeat is an instant in a small table that the stream reads beside its inputs. It moves the watermark and is then left out. The table
is part of the checkpoint, so that what was closed stays closed; rows that come afterwards are late, and kept as such.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sluice.declare.datasets.windowed import Windowed
from sluice.declare.pipeline import duration
from sluice.flows.progress import batches
from sluice.flows.progress.checkpoints import Checkpoint
from sluice.flows.stateful import inputs, operators
from sluice.lake import commits, log, tables
from sluice.lake.tables import Shape
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyStream = Windowed[Any]
_COLUMNS = "checkpoint STRING, instant TIMESTAMP, inputs STRING, run STRING, at TIMESTAMP"
_MILLISECOND = timedelta(milliseconds=1)


def create(workspace: Workspace, stream: AnyStream) -> None:
    """Make the table of heartbeats unless it is there."""
    shape = Shape(
        schema=tables.columns(_COLUMNS),
        comment=f"Up to which instants {stream.name} was closed while its inputs were quiet.",
        statistics=("instant",),
        change_feed=False,
    )
    tables.create(workspace.session, inputs.heartbeats(workspace, stream), shape)


def close(workspace: Workspace, stream: AnyStream, checkpoint: Checkpoint, now: datetime | None = None) -> str | None:
    """Move the watermark to the end of the last open window, if nothing came for long enough. Returns what is to be told, if it did.

    The stream is to be run again then.
    """
    if stream.closes_when_idle is None:
        return None
    marks = {name: log.mark(workspace.path(name)) for name in stream.reads}
    last = max(_last_data(workspace.path(name)) for name in stream.reads)
    quiet = (now or datetime.now(UTC)) - last
    if quiet < duration(stream.closes_when_idle) or _done(workspace, stream, checkpoint, repr(marks)):
        return None
    end = _last_end(workspace, stream)
    if end is None or end.replace(tzinfo=UTC).timestamp() * 1000 <= batches.watermark(checkpoint):
        return None
    rows = [(checkpoint.identity, end.replace(tzinfo=UTC), repr(marks), workspace.run, datetime.now(UTC))]
    commits.append(tables.inline(workspace.session, rows, _COLUMNS), inputs.heartbeats(workspace, stream), None)
    return f"nothing came for {stream.closes_when_idle}: the windows up to {end:%Y-%m-%d %H:%M:%S} were closed"


def _last_data(path: str) -> datetime:
    """When rows last came into a table, as far as its log tells."""
    for commit in log.commits(path):
        if str(commit["operation"]).startswith(("WRITE", "MERGE", "RESTORE")) and commit["at"] is not None:
            at: datetime = commit["at"]
            return at
    return datetime.min.replace(tzinfo=UTC)


def _done(workspace: Workspace, stream: AnyStream, checkpoint: Checkpoint, marks: str) -> bool:
    """Whether the windows of exactly these rows have been closed before."""
    beats = tables.read(workspace.session, inputs.heartbeats(workspace, stream))
    ours = (F.col("checkpoint") == checkpoint.identity) & (F.col("inputs") == marks)
    return not beats.where(ours).isEmpty()


def _last_end(workspace: Workspace, stream: AnyStream) -> datetime | None:
    """When the last window of the inputs' rows ends, in whole milliseconds; without windows, the latest instant of them all."""
    frames = [inputs.as_marked(stream, name, inputs.read_now(workspace, name)) for name in stream.reads]
    found = [_latest(partial(one.ends, workspace.session), "_end") for one in operators.windows(stream(*frames))]
    if not any(found):
        times = [f"`{stream.watermarks[name].time}`" for name in stream.reads]
        found = [_latest(partial(frame.select, time), time) for frame, time in zip(frames, times, strict=True)]
    ends = [end for end in found if end is not None]
    if not ends:
        return None
    end = max(ends)
    whole = end.replace(microsecond=end.microsecond // 1000 * 1000)
    return whole if whole == end else whole + _MILLISECOND


def _latest(rows: Callable[[], DataFrame], column: str) -> datetime | None:
    """The latest instant; None where there is no row, or the plan is one of streams only."""
    try:
        row: Any = rows().agg(F.max(F.expr(column))).first()
    except PySparkException:
        return None
    found: datetime | None = row[0]
    return found
