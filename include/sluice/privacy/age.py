"""Records that are older than their source keeps them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sluice.declare.ingest.source import Source
from sluice.declare.lazy import F
from sluice.declare.pipeline import parse_duration
from sluice.privacy import suppression

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INGESTED = "_ingested_at"


def oldest_kept_instant(source: Source, now: datetime | None = None) -> datetime | None:
    """The instant (UTC) before which a source's table keeps nothing. None where it keeps everything."""
    return None if source.keep_for is None else (now or datetime.now(UTC)) - parse_duration(source.keep_for)


def is_older_than_kept(source: Source, frame: DataFrame, before: datetime) -> Column:
    """Whether a record's time is before that instant.

    A record without a time, or with one later than its arrival, is as old as its arrival: otherwise it would stay for ever.
    """
    came = F.col(INGESTED)
    told = suppression.row_instant_column(frame, source.subject_at or source.dated_by)
    return (came if told is None else F.least(F.coalesce(told, came), came)) < F.lit(before)
