"""Closes the windows of a stream whose inputs are quiet. Only newer rows move the watermark, so something else has to move it.

A heartbeat is an instant in a small table that the stream reads beside its inputs. It moves the watermark and is then left out. The table
is part of the checkpoint, so closed windows stay closed; rows that come afterwards are late and kept as such.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.datasets.windowed import AnyStream
from sluice.declare.pipeline import parse_duration
from sluice.declare.quoting import quote_identifier
from sluice.flows.progress import batches
from sluice.flows.progress.checkpoints import Checkpoint
from sluice.flows.stateful import inputs, operators
from sluice.lake import commit_history, commits, log, table_creation, table_frames
from sluice.lake.batch_sizes import measure_inline_rows
from sluice.lake.table_creation import TableShape
from sluice.lake.table_frames import compute_aggregates
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS = "checkpoint STRING, instant TIMESTAMP, inputs STRING, run STRING, at TIMESTAMP"
_MILLISECOND = timedelta(milliseconds=1)


def create_heartbeat_table(workspace: Workspace, stream: AnyStream) -> None:
    """Creates the table of heartbeats if it does not exist."""
    shape = TableShape(
        schema=table_creation.parse_ddl_schema(_COLUMNS),
        comment=f"Up to which instants {stream.name} was closed while its inputs were quiet.",
        statistics=("instant",),
        change_feed=False,
    )
    table_creation.create_table(workspace.session, inputs.heartbeat_table_path(workspace, stream), shape)


def close_idle_windows(
    workspace: Workspace, stream: AnyStream, checkpoint: Checkpoint, now: datetime | None = None
) -> str | None:
    """Moves the watermark to the end of the last open window if nothing came for long enough. Returns a note for the report if it did.

    The stream must then be run again.
    """
    due = find_idle_time(stream, workspace.path)
    if due is None or (now or datetime.now(UTC)) < due:
        return None
    marks = {name: log.table_change_mark(workspace.path(name)) for name in stream.reads}
    if _is_already_closed(workspace, stream, checkpoint, repr(marks)):
        return None
    end = _find_last_window_end(workspace, stream)
    if end is None or end.replace(tzinfo=UTC).timestamp() * 1000 <= batches.read_last_watermark(checkpoint):
        return None
    rows = [(checkpoint.identity, end.replace(tzinfo=UTC), repr(marks), workspace.run, datetime.now(UTC))]
    beat = table_creation.make_inline_frame(workspace.session, rows, _COLUMNS)
    commits.append_rows(beat, inputs.heartbeat_table_path(workspace, stream), None, measure_inline_rows(rows))
    return f"nothing came for {stream.closes_when_idle}: the windows up to {end:%Y-%m-%d %H:%M:%S} were closed"


def find_idle_time(stream: AnyStream, locate: Callable[[str], str]) -> datetime | None:
    """Returns when the inputs will have been quiet for long enough. None if open windows wait for new rows. locate: gives a table's path."""
    there = [locate(name) for name in stream.reads if delta_log.is_delta_table(locate(name))]
    if stream.closes_when_idle is None or not there:
        return None
    came = [commit_history.find_last_data_change(path) or datetime.min.replace(tzinfo=UTC) for path in there]
    return max(came) + parse_duration(stream.closes_when_idle)


def _is_already_closed(workspace: Workspace, stream: AnyStream, checkpoint: Checkpoint, marks: str) -> bool:
    """Whether the windows of exactly these rows were closed before."""
    beats = table_frames.read_table(workspace.session, inputs.heartbeat_table_path(workspace, stream))
    ours = (F.col("checkpoint") == checkpoint.identity) & (F.col("inputs") == marks)
    return not beats.where(ours).isEmpty()


def _find_last_window_end(workspace: Workspace, stream: AnyStream) -> datetime | None:
    """Returns when the last window of the inputs' rows ends, in whole milliseconds. Without windows, their latest instant."""
    frames = [inputs.mark_watermark_column(stream, name, inputs.read_stream_input(workspace, name)) for name in stream.reads]
    found = [
        _latest_instant(partial(one.ends, workspace.session), "_end")
        for one in operators.find_window_aggregations(stream(*frames))
    ]
    if not any(found):
        times = [quote_identifier(stream.watermarks[name].time) for name in stream.reads]
        found = [_latest_instant(partial(frame.select, time), time) for frame, time in zip(frames, times, strict=True)]
    ends = [end for end in found if end is not None]
    if not ends:
        return None
    end = max(ends)
    whole = end.replace(microsecond=end.microsecond // 1000 * 1000)
    return whole if whole == end else whole + _MILLISECOND


def _latest_instant(rows: Callable[[], DataFrame], column: str) -> datetime | None:
    """Returns the latest instant. None if there is no row, or if the plan has only streams."""
    try:
        found: datetime | None = compute_aggregates(rows(), F.max(F.expr(column)).alias("latest"))["latest"]
    except PySparkException:
        return None
    return found
