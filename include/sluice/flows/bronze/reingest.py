"""Replay in bronze: deliveries of an interval that were missed, refused as a whole or never taken are taken now, if they can be."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.file_events import DELIVERED
from sluice.flows.bronze import append, intake
from sluice.flows.bronze.apart import ingest_together_or_singly
from sluice.flows.progress.streams import stop_if_requested
from sluice.ingest import ledger
from sluice.ingest.deliveries import dates
from sluice.ingest.deliveries.known import read_current_deliveries
from sluice.ingest.reading.examination import examine_unread_deliveries
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace


def ingest_missed_deliveries(workspace: Workspace, source: Source, interval: Interval, report: FlowReport) -> None:
    """Take what the interval lacks. Beside the flow's checkpoint: its stream passes over deliveries that have an outcome."""
    append.create_bronze_tables(workspace, source)
    folder = intake.source_landing_folder(workspace, source)
    judged = ledger.read_last_delivery_states(workspace.outcomes)
    lacking = [
        row for row in read_deliveries_in_interval(workspace, source, interval) if _is_not_ingested(judged.get(row["delivery"]))
    ]
    for start in range(0, len(lacking), source.max_files_per_trigger):
        stop_if_requested(workspace)
        some = [intake.delivery_from_row(row, folder) for row in lacking[start : start + source.max_files_per_trigger]]
        examined = examine_unread_deliveries(source, some, judged)
        # What is refused again for the same reason is left as it is, so that a second replay changes nothing.
        changed = [item for item in examined if (item.state, item.reason) != judged.get(item.delivery.number)]
        if changed:
            workspace.note(workspace.graph.flow_name(source), [item.delivery.number for item in changed])
            ingest_together_or_singly(workspace, source, changed, report)


def read_deliveries_in_interval(workspace: Workspace, source: Source, interval: Interval) -> list[dict[str, Any]]:
    """The source's deliveries of an interval, oldest first, as rows of the deliveries table."""
    found: list[dict[str, Any]] = [
        row
        for row in read_current_deliveries(workspace.deliveries)
        if row["source"] == source.name and row["event"] == DELIVERED and isinstance(row["modified_at"], datetime)
    ]
    inside = [row for row in found if dates.find_delivery_date(source, row["file"], row["modified_at"]) in interval]
    return sorted(inside, key=lambda row: int(row["delivery"]))


def _is_not_ingested(outcome: tuple[str, str | None] | None) -> bool:
    return outcome is None or outcome[0] in (ledger.MISSED, ledger.QUARANTINED, ledger.LOST)
