"""A made-up ward's sources and silver tables: readings of monitors, and who wears which monitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.declare import Source, auto_cdc, expect_or_quarantine, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

readings = Source(
    name="readings",
    format="json",
    path="readings",
    pattern="*.jsonl",
    schema="monitor BIGINT, day DATE, seq BIGINT, bpm BIGINT",
    redelivery="replace",
    dated_by="day",
    comment="Readings. A file that comes again stands for its earlier versions.",
)
fittings = Source(
    name="fittings",
    format="json",
    path="fittings",
    pattern="*.jsonl",
    schema="monitor BIGINT, at BIGINT, patient BIGINT, op STRING",
    comment="Who was given which monitor.",
)


@table(reads="readings", keys=("monitor", "day"), sequence_by="seq", zorder_by="day")
@expect_or_quarantine("not_negative", "bpm >= 0")
def reading(readings: DataFrame) -> DataFrame:
    """One row a monitor and day."""
    return readings.select("monitor", "day", "seq", "bpm")


worn_by = auto_cdc(
    "worn_by",
    reads="fittings",
    keys="monitor",
    sequence_by="at",
    apply_as_deletes="op = 'delete'",
    except_column_list="op",
)
