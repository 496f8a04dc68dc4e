"""Running a flow: a stream of names, triggered to take what is there now, a batch at a time, each in a session of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice import step_times
from sluice.errors import SluiceError, StopRequested
from sluice.flows.progress import batches
from sluice.flows.progress.checkpoints import Checkpoint
from sluice.flows.progress.stream_numbers import summarize_stream_progress
from sluice.lake.workspace import Workspace
from sluice.work_progress import count_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALL_FILES = 2**31 - 1
USUAL_FILES = 1000
"""How many files a batch takes at most: as many as there are, and as many as Delta's source takes by itself."""

OnBatch = Callable[[Workspace, "DataFrame", int], None]

_CONTINUITY_ERRORS = (
    "DELTA_SCHEMA_CHANGED",
    "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    # Of streams with state: a column that an input has now, and what is kept has not.
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "CANNOT_LOAD_STATE_STORE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "sources in the checkpoint offsets and now there are",
)


class ContinuityLost(SluiceError):
    """The stream cannot go on from its checkpoint, now or ever; the flow must be rebased."""


def stream_table(session: SparkSession, path: str, files: int, start: int | None = None, feed: bool = False) -> DataFrame:
    """A table as a stream of its rows; with `feed`, of their changes. files: at most so many a batch.

    start: the version that it begins at (`Checkpoint.starts`); None: with the table as it is.
    """
    reader = session.readStream.format("delta").option("maxFilesPerTrigger", files)
    if start is not None:
        reader = reader.option("startingVersion", start)
    if feed:
        reader = reader.option("readChangeFeed", "true")
    return reader.load(path)


def run_stream(
    workspace: Workspace, frame: DataFrame, checkpoint: Checkpoint, on_batch: OnBatch, output: str = "append"
) -> dict[str, Any] | None:
    """Take everything that is there now, then end. Every read and write of a batch must go through the workspace it is given.

    output: of a query with state, its output mode. Returns Spark's progress of the last batch; None where there was none.

    Raises ContinuityLost where only a fresh checkpoint helps, and whatever on_batch raises.
    """
    raised: list[BaseException] = []
    times = step_times.current_step_times()

    def batch(rows: DataFrame, number: int) -> None:
        try:
            stop_if_requested(workspace)
            inside = workspace.within(rows.sparkSession)
            inside.note(checkpoint.flow)
            with step_times.measure_step(step_times.COMPUTING):
                on_batch(inside, rows, number)
            batches_done.advance()
        except BaseException as error:
            # Raised again below, on this side. The JVM, which would log it with its frames, hears only that it happened; and of
            # anything but an Exception it would not hear at all, and wait for ever.
            raised.append(error)
            raise RuntimeError("the batch failed") from None

    writer = (
        frame.writeStream
        .queryName(f"{workspace.pipeline}.{checkpoint.flow}")
        .outputMode(output)
        .foreachBatch(lambda rows, number: context.run(batch, rows, number))  # in a thread of the JVM's
        .option("checkpointLocation", checkpoint.path)
        .trigger(availableNow=True)
    )
    try:
        with step_times.measure_step(step_times.STREAMING), count_work("batches") as batches_done:
            context = copy_context()
            query = writer.start()  # which reads the checkpoint, too
            if times is not None:
                times.job_tags.append(query.runId)
            query.awaitTermination()
    except Exception as error:
        cause = raised[-1] if raised else error
        why = _find_continuity_error(cause) or (None if raised else batches.find_checkpoint_damage(Path(checkpoint.path)))
        if why:
            raise ContinuityLost(why) from cause
        raise cause from None
    progress = _read_batch_progress(query)
    if times is not None:
        times.streams.append(summarize_stream_progress(progress, batches_done.done))
    return progress[-1] if progress else None


def run_with_rebase(attempt: Callable[[str | None], None], anew: str | None) -> None:
    """Run a flow of names, which may start anew whenever it cannot go on. attempt: takes the reason to start anew. anew: a first one.

    What stops a stream that has just started anew is not its checkpoint, and is raised as it is.
    """
    try:
        attempt(anew)
    except ContinuityLost as lost:
        try:
            attempt(f"its stream could not go on ({lost})")
        except ContinuityLost as again:
            raise (again.__cause__ or again) from None


def stop_if_requested(workspace: Workspace) -> None:
    """Raises StopRequested if somebody asked this run to stop."""
    if workspace.places.stop_request(workspace.run).exists():
        raise StopRequested("stopped on request, at a batch boundary; the next run goes on from there")


def _read_batch_progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Of the last batches. A trigger that found nothing has a progress, too, which is of no batch."""
    found: list[dict[str, Any]] = [json.loads(progress.json) for progress in query.recentProgress]
    return [progress for progress in found if "addBatch" in progress["durationMs"]]


def _find_continuity_error(error: BaseException) -> str | None:
    text = str(error)
    return next((mark for mark in _CONTINUITY_ERRORS if mark in text), None)
