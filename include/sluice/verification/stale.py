"""Which rows of a table are by earlier code, and so may differ: those of the deliveries, or of the records, of stale intervals."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.datasets.tables import Table
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.ingest import ledger
from sluice.ingest.deliveries import dates
from sluice.lake import tables
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.verification.rows import of_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Stale = Callable[[Table[Any]], list[Interval]]
"""Of a silver table, the dates whose rows are by earlier code."""

EVER = Interval(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def keys(workspace: Workspace, table: Table[Any], intervals: Sequence[Interval]) -> DataFrame | None:
    """The keys (`replayed_by`) whose rows may differ since earlier code made some of them; None: all."""
    if EVER in intervals:
        return None
    source = workspace.graph.sources[table.reads[0]]
    of_intervals = _of_records(source.dated_by, intervals) if source.dated_by else _of_deliveries(workspace, source, intervals)
    names = [F.col(f"`{name}`") for name in table.replayed_by]
    origin = tables.read(workspace.session, workspace.path(source.name)).where(of_intervals).select(*PROVENANCE)
    stored = tables.read(workspace.session, workspace.path(table.name))
    by_earlier = stored.join(origin, list(PROVENANCE), "left_semi").select(*names)
    by_today = of_table(workspace, table, of_intervals)
    return by_earlier if by_today is None else by_earlier.unionByName(by_today.select(*names))


def _of_records(dated_by: str, intervals: Sequence[Interval]) -> Column:
    at = F.expr(dated_by).cast("timestamp")

    def within(interval: Interval) -> Column:  # an instant without beginning or end is none that Spark has
        after = F.lit(True) if interval.start == EVER.start else at >= F.lit(interval.start)
        return after if interval.end == EVER.end else after & (at < F.lit(interval.end))

    return functools.reduce(lambda a, b: a | b, (within(one) for one in intervals))


def _of_deliveries(workspace: Workspace, source: Source, intervals: Sequence[Interval]) -> Column:
    """The condition that a record came in a delivery of these dates; also one that counts no more, whose rows may still stand."""
    numbers = [
        outcome.delivery
        for one in workspace.graph.feeding(source.name)
        for outcome in ledger.of_source(workspace.outcomes, one.name)
        if outcome.modified_at is None
        or any(dates.of_file(one, outcome.file, outcome.modified_at) in interval for interval in intervals)
    ]
    return F.col("_delivery").isin(sorted(numbers))
