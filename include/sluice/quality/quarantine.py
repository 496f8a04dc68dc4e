"""Quarantine: the rows and files that a flow did not accept, unchanged. One table per flow, replaced delivery by delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.lake import commits, file_statistics, table_creation, table_frames
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.table_creation import TableShape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = (
    "_delivery BIGINT, _file STRING, _row BIGINT, reasons ARRAY<STRING>, record STRING, content BINARY, _subject STRING, "
    "quarantined_at TIMESTAMP, made STRING, rules_version STRING"
)
"""record: the row as delivered, as text; content: the bytes of a whole file; _subject: whose record it is, if known.

Only tables have these: made: what the transform made of the row, as it would have been stored; rules_version: the version of the rules
that the row failed.
"""

JUDGED_AGAIN = "_judged_again"
"""A column beside those of a quarantine: whether a row was judged again."""

QuarantinedRow = tuple[int, int | None]
"""An entry of a quarantine, by delivery and row; a whole file has no row. In a request, a delivery without a row means all of it."""


def create_quarantine(session: SparkSession, path: str, table: str, retain: str) -> None:
    """Makes a flow's quarantine unless it exists. No value of a row gets into statistics."""
    shape = TableShape(
        schema=table_creation.parse_ddl_schema(SCHEMA),
        comment=f"What {table} did not accept.",
        statistics=("_delivery", "quarantined_at"),
        retain=retain,
    )
    table_creation.create_table(session, path, shape)


def make_quarantine_rows(frame: DataFrame, reasons: Column, record: Column, subject: Column, **more: Column) -> DataFrame:
    """Turns rows of a frame with provenance into quarantine rows. more: further quarantine columns; those not given are NULL."""
    given: dict[str, Column] = {name: F.col(name) for name in ("_delivery", "_file", "_row") if name in frame.columns}
    given |= {"reasons": reasons, "record": record, "_subject": subject.cast("string"), "quarantined_at": F.current_timestamp()}
    given |= more
    fields = table_creation.parse_ddl_schema(SCHEMA)
    return frame.select(*(given.get(one.name, F.lit(None).cast(one.dataType)).alias(one.name) for one in fields))


def replace_quarantine_of_deliveries(rows: DataFrame, path: str, deliveries: Sequence[int], size: RowsSize) -> None:
    """Makes the quarantine hold exactly these rows for these deliveries. Commits only if that changes something."""
    if deliveries and (size.rows or has_rows_of_deliveries(rows.sparkSession, path, deliveries)):
        commits.replace_rows_of_deliveries(rows, path, deliveries, size)


def has_rows_of_deliveries(session: SparkSession, path: str, deliveries: Sequence[int]) -> bool:
    """Whether any row of these deliveries is in quarantine. The log is asked first, without a Spark job: most never had one."""
    before = sorted(file_statistics.find_values_in_file_ranges(path, "_delivery", [int(delivery) for delivery in deliveries]))
    return bool(before) and not table_frames.read_table(session, path).where(F.col("_delivery").isin(before)).isEmpty()


def replace_rejudged_quarantine_rows(rows: DataFrame, path: str, present: DataFrame) -> None:
    """Of the rows that were judged again, keeps exactly `rows` in quarantine; all others stay. Commits only if that changes something.

    present: the rows in quarantine, with JUDGED_AGAIN; it is never NULL.
    """
    old, others = present.where(JUDGED_AGAIN).drop(JUDGED_AGAIN), present.where(f"NOT {JUDGED_AGAIN}").drop(JUDGED_AGAIN)
    what = ("_delivery", "_row", "reasons", "record", "made", "rules_version")
    differing = old.select(*what).exceptAll(rows.select(*what)).unionByName(rows.select(*what).exceptAll(old.select(*what)))
    deliveries = [row._delivery for row in differing.select("_delivery").distinct().collect()]
    if deliveries:
        ours = F.col("_delivery").isin(deliveries)
        commits.replace_rows_of_deliveries(others.where(ours).unionByName(rows.where(ours)), path, deliveries)


def read_quarantine_rows(session: SparkSession, path: str, entries: Sequence[QuarantinedRow] | None) -> DataFrame:
    """Reads rows in quarantine: those of the entries, or all."""
    rows = table_frames.read_table(session, path)
    return rows if entries is None else rows.where(_matches_any_entry(entries))


def remove_quarantine_entries(session: SparkSession, path: str, entries: Sequence[QuarantinedRow]) -> None:
    """Removes entries in one commit. Does not commit if there are none."""
    deliveries = sorted({delivery for delivery, _ in entries})
    if not deliveries:
        return
    before = table_frames.read_table(session, path).where(F.col("_delivery").isin(deliveries))
    gone = table_creation.make_inline_frame(session, list(entries), "_delivery BIGINT, _row BIGINT")
    same = before["_delivery"].eqNullSafe(gone["_delivery"]) & before["_row"].eqNullSafe(gone["_row"])
    if not before.join(F.broadcast(gone), same, "left_semi").isEmpty():
        commits.replace_rows_of_deliveries(before.join(F.broadcast(gone), same, "left_anti"), path, deliveries)


def _matches_any_entry(entries: Sequence[QuarantinedRow]) -> Column:
    whole = [delivery for delivery, row in entries if row is None]
    of_rows: dict[int, list[int]] = {}
    for delivery, row in entries:
        if row is not None:
            of_rows.setdefault(delivery, []).append(row)
    found = F.col("_delivery").isin(whole)
    for delivery, numbers in of_rows.items():
        found |= (F.col("_delivery") == delivery) & F.col("_row").isin(numbers)
    return found
