"""What a replay of an interval would do to one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluice.declare.datasets.tables import Table
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.errors import SluiceError
from sluice.ingest.deliveries import discovery
from sluice.ingest.ledger import MISSED, QUARANTINED
from sluice.runs.planning.steps import FAIL, FOLD_AGAIN, INGEST, NOTHING, PlannedStep
from sluice.runs.status.books import PipelineBooks
from sluice.runs.status.lag import FlowLag


def plan_bronze_replay(
    books: PipelineBooks, source: Source, flow: FlowLag, interval: Interval, before: Sequence[PlannedStep]
) -> PlannedStep:
    """What a replay would take of a source, or why it cannot."""
    try:
        return _plan_lacking_deliveries(books, source, flow, interval)
    except SluiceError as error:
        return PlannedStep(flow.table, flow.layer, FAIL, str(error))


def _plan_lacking_deliveries(books: PipelineBooks, source: Source, flow: FlowLag, interval: Interval) -> PlannedStep:
    """Files of the interval that nobody has discovered, and its deliveries that bronze lacks."""
    fresh = discovery.preview_discovery(source, books.records.landing, books.known, interval).came
    lacking = [row for row in books.of_interval(source, interval) if row["state"] in ("waiting", MISSED, QUARANTINED)]
    readable = books.select_unchanged(source, lacking)
    files = [
        *({"file": file.file, "state": "new", "delivery": None} for file in fresh),
        *({"file": row["file"], "state": row["state"], "delivery": row["delivery"]} for row in readable),
    ]
    lost = len(lacking) - len(readable)
    why = f"of what it lacks, {lost} cannot be read: the file is gone or changed" if lost else ""
    size = sum(file.size or 0 for file in fresh) + sum(row["size"] or 0 for row in readable)
    return PlannedStep(
        flow.table, flow.layer, INGEST if files else NOTHING, why, len(files), size, None if files else 0, files=files
    )


def plan_silver_replay(
    books: PipelineBooks, table: Table[Any], flow: FlowLag, interval: Interval, before: Sequence[PlannedStep]
) -> PlannedStep:
    """The keys that the interval's rows touch, before or after."""
    source = books.graph.sources[table.reads[0]]
    feeding = {one.name: one for one in books.graph.feeding(source.name)}
    mine = [row for one in feeding.values() for row in books.of_interval(one, interval) if row["rows"]]
    coming = [step for step in before if step.table in feeding and step.does == INGEST]
    deliveries = len(mine) + sum(step.deliveries for step in coming)
    size = sum(row["size"] or 0 for row in mine) + sum(step.bytes for step in coming)
    rows = None if coming or source.dated_by else sum(row["rows"] for row in mine)
    if not deliveries and not source.dated_by:
        return PlannedStep(flow.table, flow.layer, NOTHING)
    return PlannedStep(flow.table, flow.layer, FOLD_AGAIN, f"the keys of {interval}", deliveries, size, rows)
