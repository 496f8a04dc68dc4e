"""Appends and replaces rows so that an attempt can be repeated. Only this module sets the options of such a commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.lake import commit_marks, file_statistics, log, small_writes
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.table_creation import FILES_BY_SIZE
from sluice.step_times import COMPUTING, WRITING, measure_step

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter

_MOST_IN_ONE_FILE = 64 * 1024 * 1024
"""Rows that take at most this many bytes of memory go into one file, however many tasks made them."""


@measure_step(COMPUTING)
def _collect_rows(frame: DataFrame) -> pa.Table:
    """Collects the rows, which Spark computes only now."""
    return frame.toArrow()


@dataclass(frozen=True)
class Transaction:
    """Names an append, so that a repeated attempt commits nothing: a flow on a checkpoint, its target and its batch.

    Only appends carry it. A MERGE must not: these ids survive RESTORE and a reset of the checkpoint, and would then skip work in silence.
    """

    flow: str
    checkpoint: str
    target: str
    batch: int

    @property
    def application(self) -> str:
        """The id under which Delta remembers the last batch."""
        return f"sluice/{self.flow}/{self.checkpoint}/{self.target}"


@measure_step(WRITING)
def append_rows(frame: DataFrame, path: str, transaction: Transaction | None, size: RowsSize | None = None) -> None:
    """Appends rows and adds new columns to the table. With a transaction the rows are appended once, however often this is tried.

    size: the size of the rows, if known: few rows go through delta-rs.
    """
    if size is not None and small_writes.is_appended_by_delta_rs(path, frame.schema, size):
        rows, once = _collect_rows(frame), (transaction.application, transaction.batch) if transaction else None
        if small_writes.are_dates_within_reach(rows):
            with small_writes.leave_failure_to_spark():
                small_writes.append_few_rows(path, rows, commit_marks.read_session_mark(frame.sparkSession), once)
                return
    writer = _write_files_by_size(frame, path, size).mode("append").option("mergeSchema", "true")
    if transaction:
        writer = writer.option("txnAppId", transaction.application).option("txnVersion", transaction.batch)
    writer.save(path)


@measure_step(WRITING)
def overwrite_rows(frame: DataFrame, path: str) -> None:
    """Makes the table hold exactly these rows, in one commit. The table keeps its properties and its identity."""
    frame.write.format("delta").mode("overwrite").save(path)


@measure_step(WRITING)
def replace_rows_of_deliveries(frame: DataFrame, path: str, deliveries: Sequence[int], size: RowsSize | None = None) -> None:
    """Replaces the table's rows of these deliveries by the frame's rows: the same for a retry, a replay and a rebase.

    size: as in `append_rows`. If no file can contain a row of these deliveries, the rows are appended.
    """
    if size is not None and not file_statistics.find_values_in_file_ranges(path, "_delivery", deliveries):
        append_rows(frame, path, None, size)
        return
    within = f"_delivery IN ({', '.join(str(delivery) for delivery in sorted(deliveries))})"
    _write_files_by_size(frame, path, size).mode("overwrite").option("replaceWhere", within).save(path)


def _write_files_by_size(frame: DataFrame, path: str, size: RowsSize | None) -> DataFrameWriter:
    """Returns a writer that makes as many files as the rows' bytes need. Spark itself makes one for each task and each partition in it.

    Many rows for a table without partitions stay with their tasks: each task has enough of them, and a shuffle would cost more. A MERGE
    needs no such writer, because it shuffles anyway, by partitions.
    """
    small = size is not None and size.bytes is not None and size.bytes <= _MOST_IN_ONE_FILE
    return frame.write.format("delta").option(FILES_BY_SIZE, str(small or bool(log.read_partition_columns(path))).lower())
