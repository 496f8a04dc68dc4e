"""The inputs of a stateful flow: added rows as streams, and the same rows of one batch again as tables.

Both go through the same steps, so that counts of a batch's rows apply to the rows that Spark had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.datasets.windowed import HEARTBEATS, AnyStream
from sluice.declare.quoting import quote_column, quote_identifier
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.flows import plans
from sluice.flows.progress import streams
from sluice.flows.progress.batches import VersionRange
from sluice.lake import log, table_frames
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import suppression, suppression_list
from sluice.table_properties import CHANGE_FEED_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROW = "_row_of_batch"

_BEAT = "_beat"
_LONG_AGO = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"


@dataclass(frozen=True)
class BatchInput:
    """One input's rows of a batch. added: those that the stream had, each with a number. unfollowed, suppressed: how many it did not have."""

    added: DataFrame
    unfollowed: int
    suppressed: int


def stream_inputs(workspace: Workspace, stream: AnyStream, checkpoint: str) -> list[DataFrame]:
    """Returns the inputs as streams with their watermarks, in the declared order. checkpoint: its identity."""
    return [_stream_input(workspace, stream, name, checkpoint) for name in stream.reads]


def with_input_watermark(stream: AnyStream, name: str, rows: DataFrame) -> DataFrame:
    """Returns the rows with the input's watermark, if it has one. Raises DeclarationError if its column is not an instant."""
    watermark = stream.watermarks.get(name)
    if watermark is None:
        return rows
    check_watermark_column(stream, name, rows.schema)
    return rows.withWatermark(watermark.time, watermark.delay)


def mark_watermark_column(stream: AnyStream, name: str, rows: DataFrame) -> DataFrame:
    """Marks the watermark's column in a table's rows, as `with_input_watermark` does in a stream's. The rows' numbers are left out."""
    watermark = stream.watermarks.get(name)
    columns = {one: quote_column(one) for one in rows.columns if one != ROW}
    if watermark is not None:
        columns[watermark.time] = columns[watermark.time].alias(watermark.time, metadata={plans.DELAY: 1})
    return rows.select(*columns.values())


def check_watermark_column(stream: AnyStream, name: str, schema: StructType) -> None:
    """Raises DeclarationError if the column that a watermark names does not exist or is not a TIMESTAMP."""
    time = stream.watermarks[name].time
    if time not in schema.names:
        raise DeclarationError(
            f"Stream '{stream.name}': the watermark of '{name}' names '{time}', no column of it.{nearest_name_hint(time, schema.names)}"
        )
    kind = schema[time].dataType.simpleString()
    if kind != "timestamp":
        raise DeclarationError(
            f"Stream '{stream.name}': the watermark of '{name}' is by '{time}', which is {kind.upper()}; it must be a TIMESTAMP. "
            "Let a @table make one of it."
        )


def drop_technical_columns(frame: DataFrame) -> DataFrame:
    """Drops technical columns: a transform gets the columns that a view gets."""
    return frame.drop(*CHANGE_FEED_COLUMNS, *PROVENANCE)


def read_batch_input(workspace: Workspace, name: str, of: VersionRange) -> BatchInput:
    """Reads again the rows of an input that a batch had, in the same order of steps as in the stream."""
    path, session = workspace.path(name), workspace.session
    if of.first is None:
        added = session.read.format("delta").option("versionAsOf", of.last).load(path)
        unfollowed = 0
    else:
        session.conf.set(_LONG_AGO, "false")
        reader = session.read.format("delta").option("readChangeFeed", "true")
        changes = reader.option("startingVersion", of.first).option("endingVersion", of.last).load(path)
        added = changes.where("_change_type = 'insert'")
        unfollowed = changes.where("_change_type IN ('delete', 'update_postimage')").count()
    rows = _drop_erased_people(workspace, name, added)
    suppressed = 0 if rows is added else added.count() - rows.count()
    return BatchInput(drop_technical_columns(rows).withColumn(ROW, F.monotonically_increasing_id()), unfollowed, suppressed)


def _stream_input(workspace: Workspace, stream: AnyStream, name: str, checkpoint: str) -> DataFrame:
    # Everything there is forms one batch: within a batch no row is late.
    feed = streams.stream_table(workspace.session, workspace.path(name), streams.ALL_FILES, feed=True)
    rows = drop_technical_columns(_drop_erased_people(workspace, name, feed.where("_change_type = 'insert'")))
    if name in stream.watermarks:
        check_watermark_column(stream, name, rows.schema)
    if stream.closes_when_idle is None or name not in stream.watermarks:
        return with_input_watermark(stream, name, rows)
    return _with_heartbeat_watermark(workspace, stream, name, rows, checkpoint)


def _with_heartbeat_watermark(workspace: Workspace, stream: AnyStream, name: str, rows: DataFrame, checkpoint: str) -> DataFrame:
    """Returns the rows with a watermark that the heartbeats of an idle stream move, too."""
    watermark = stream.watermarks[name]
    heartbeats = streams.stream_table(workspace.session, heartbeat_table_path(workspace, stream), streams.USUAL_FILES)
    ours = heartbeats.where(F.col("checkpoint") == checkpoint)
    beats = ours.select(F.expr(f"instant + INTERVAL {watermark.delay}").alias(watermark.time), F.lit(True).alias(_BEAT))
    both = rows.withColumn(_BEAT, F.lit(False)).unionByName(beats, allowMissingColumns=True)
    # The condition also names the instant. The optimiser would move any other below the watermark, which then never saw a heartbeat.
    seen = both.withWatermark(watermark.time, watermark.delay).where(f"NOT {_BEAT} OR {quote_identifier(watermark.time)} IS NULL")
    return seen.drop(_BEAT)


def heartbeat_table_path(workspace: Workspace, stream: AnyStream) -> str:
    """Returns the path of the table of instants up to which an idle stream was closed."""
    return workspace.streamed_tables(stream)[HEARTBEATS]


def input_table_ids(workspace: Workspace, stream: AnyStream) -> Mapping[str, str]:
    """Returns the ids of the tables that a stream reads, by name."""
    streamed = workspace.streamed_tables(stream)
    return {name: log.read_table_id(path) for name, path in streamed.items()}


def _drop_erased_people(workspace: Workspace, name: str, rows: DataFrame) -> DataFrame:
    """Returns the rows without those of erased people; the same frame if there is nobody to leave out."""
    declared = workspace.graph[name]
    domain = workspace.graph.domain(declared)
    told = subjects.build_subject_expression(workspace.graph, declared, rows.columns)
    if domain is None or told is None or suppression_list.is_suppression_list_empty(workspace):
        return rows
    at = suppression.row_instant_column(rows, subjects.subject_time_expression(declared))
    return suppression.empty_suppressed_cells(
        workspace, declared, suppression.exclude_suppressed_rows(workspace, rows, F.expr(told), domain, at)
    )


def make_empty_stream(session: SparkSession, schema: StructType) -> DataFrame:
    """Returns a stream of these columns, made only for its plan."""
    # No literals: the optimiser would fold them into the conditions that are to be looked at.
    rows = session.readStream.format("rate").load()
    return rows.select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select("row.*")


def read_stream_input(workspace: Workspace, name: str) -> DataFrame:
    """Returns an input as it is now, with the columns that a transform sees."""
    return drop_technical_columns(
        _drop_erased_people(workspace, name, table_frames.read_table(workspace.session, workspace.path(name)))
    )
