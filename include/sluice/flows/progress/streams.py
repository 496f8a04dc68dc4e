"""Runs a flow: a stream of names that takes what is there now, batch by batch, each batch in a session of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from sluice import step_times
from sluice.errors import SluiceError, StopRequested
from sluice.flows.progress import batches
from sluice.flows.progress.checkpoints import Checkpoint
from sluice.flows.progress.stream_numbers import summarize_stream_progress
from sluice.lake.workspace import Workspace
from sluice.locations import locate
from sluice.work_progress import count_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALL_FILES = 2**31 - 1
USUAL_FILES = 1000
"""How many files a batch takes at most: all there are, or as many as Delta's source takes by default."""

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
    # For streams with state: an input has a column now that the kept rows do not have.
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "CANNOT_LOAD_STATE_STORE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "sources in the checkpoint offsets and now there are",
)


class ContinuityLost(SluiceError):
    """The stream can never resume from its checkpoint, so the flow must be rebased."""


def stream_table(session: SparkSession, path: str, files: int, start: int | None = None, feed: bool = False) -> DataFrame:
    """Returns a table as a stream of its rows, or with `feed` of their changes.

    files: how many a batch takes at most. start: the version that the stream begins at (`Checkpoint.starts`), or None for the whole table.
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
    """Takes everything that is there now, then ends. Every read and write of a batch must go through the workspace that it is given.

    output: the output mode of a query with state. Returns Spark's progress of the last batch, or None if there was none.

    Raises ContinuityLost if only a fresh checkpoint helps, and whatever on_batch raises.
    """
    raised: list[BaseException] = []
    times = step_times.current_step_times()

    def batch(rows: DataFrame, number: int) -> None:
        try:
            stop_if_requested(workspace)
            inside = workspace.within(rows.sparkSession)
            inside.mark_next_commits(checkpoint.flow)
            with step_times.measure_step(step_times.COMPUTING):
                on_batch(inside, rows, number)
            batches_done.advance()
        except BaseException as error:
            # The error is raised again below, in Python. The JVM would log it with its frames, so it only hears that one happened. Of
            # anything but an Exception it would not hear at all and would wait for ever.
            raised.append(error)
            raise RuntimeError("the batch failed") from None

    writer = (
        frame.writeStream
        .queryName(f"{workspace.pipeline}.{checkpoint.flow}")
        .outputMode(output)
        .foreachBatch(lambda rows, number: context.run(batch, rows, number))  # in a thread of the JVM
        .option("checkpointLocation", checkpoint.path)
        .trigger(availableNow=True)
    )
    try:
        with step_times.measure_step(step_times.STREAMING), count_work("batches") as batches_done:
            context = copy_context()
            query = writer.start()  # this reads the checkpoint, too
            if times is not None:
                times.job_tags.append(query.runId)
            query.awaitTermination()
    except Exception as error:
        cause = raised[-1] if raised else error
        why = _find_continuity_error(cause) or (None if raised else batches.find_checkpoint_damage(locate(checkpoint.path)))
        if why:
            raise ContinuityLost(why) from cause
        raise cause from None
    finally:
        _remove_idle_event_bus(frame.sparkSession)
    progress = _read_batch_progress(query)
    if times is not None:
        times.streams.append(summarize_stream_progress(progress, batches_done.done))
    return progress[-1] if progress else None


def _remove_idle_event_bus(session: SparkSession) -> None:
    """Takes the session's bus of stream events out of Spark's bus, unless somebody listens to it.

    Spark adds one for each session that starts a stream and never removes it, and gives each event to all of them: a process that is kept
    running would pay more for each increment. No result depends on it, so a Spark of another make keeps them.
    """
    with suppress(Exception):
        manager: Any = session._jsparkSession.sessionState().streamingQueryManager()
        if len(manager.active()) or len(manager.listListeners()):
            return
        field = manager.getClass().getDeclaredField("listenerBus")
        field.setAccessible(True)
        session._jsparkSession.sparkContext().listenerBus().removeListener(field.get(manager))


def run_with_rebase(attempt: Callable[[str | None], None], anew: str | None) -> None:
    """Runs a flow of names, which may start anew whenever it cannot resume.

    attempt: runs the flow, given the reason to start anew or None. anew: a reason to start anew at once. If a stream fails that has just
    started anew, its checkpoint is not the cause, and the error is raised as it is.
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
    if workspace.paths.stop_request(workspace.run).is_file():
        raise StopRequested("stopped on request, at a batch boundary; the next run goes on from there")


def _read_batch_progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Returns the progress of the last batches. A trigger that found nothing reports progress, too, but that belongs to no batch."""
    found: list[dict[str, Any]] = [json.loads(progress.json) for progress in query.recentProgress]
    return [progress for progress in found if "addBatch" in progress["durationMs"]]


def _find_continuity_error(error: BaseException) -> str | None:
    text = str(error)
    return next((mark for mark in _CONTINUITY_ERRORS if mark in text), None)
