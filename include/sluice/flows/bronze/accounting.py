"""Records the result of each delivery, counted from the committed tables, because a crashed attempt may have done half of the work."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import functions as F

from sluice.declare.ingest.source import Source
from sluice.ingest import ledger
from sluice.ingest.formats import csv_rows
from sluice.ingest.reading.examination import ExaminedDelivery
from sluice.ingest.schema_evolution import held_back_note, newly_held_back_fields
from sluice.lake import log, table_frames
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.open_tables import open_table_snapshot
from sluice.record_states import INGESTED, MISSED, QUARANTINED


def build_outcome_rows(
    workspace: Workspace,
    source: Source,
    examined: list[ExaminedDelivery],
    suppressed: dict[int, int],
    batch: int | None,
    read: Mapping[int, int],
    held_back: Mapping[int, Mapping[str, str]],
) -> list[dict[str, Any]]:
    """Returns a row of the outcomes table for each delivery, with the counts from bronze and its quarantine.

    read: the records by delivery, as far as they are known. held_back: by delivery, the fields that did not become columns.
    """
    written = _count_rows_by_delivery(workspace, workspace.path(source.name), examined)
    aside = _count_rows_by_delivery(workspace, workspace.quarantine(source.name), examined)
    fresh = newly_held_back_fields(held_back, _read_earlier_held_back(workspace, source)) if any(held_back.values()) else {}
    now = datetime.now(UTC)
    found: list[dict[str, Any]] = []
    for item in examined:
        delivery = item.delivery
        rows, rescued = written.get(delivery.number, (0, 0))
        quarantined, _ = aside.get(delivery.number, (0, 0))
        # Rows that an earlier attempt committed count, even if the file has changed or gone since.
        state = INGESTED if rows else QUARANTINED if quarantined and item.state == MISSED else item.state
        accounted = rows + quarantined + suppressed.get(delivery.number, 0)
        found.append({
            "delivery": delivery.number,
            "source": delivery.source,
            "file": delivery.file,
            "state": state,
            # A file that is refused whole counts as one record.
            "read": read.get(delivery.number, accounted),
            "rows": rows,
            "rescued": rescued,
            "quarantined": quarantined,
            "suppressed": suppressed.get(delivery.number, 0),
            # If a delivery was ingested in part, the reason says what is missing.
            "reason": None if state == INGESTED != item.state else item.reason,
            "header": csv_rows.format_csv_header(source.dialect, item.header) or None,
            "modified_at": delivery.modified_at,
            "sha256": delivery.sha256,
            "batch": batch,
            "run": workspace.run,
            ledger.RECORDED: now,
            "held_back": fresh.get(delivery.number),
        })
    return found


def _count_rows_by_delivery(workspace: Workspace, path: str, examined: list[ExaminedDelivery]) -> dict[int, tuple[int, int]]:
    """Returns, by delivery, how many rows a table has and how many of those were partly rescued. delta-rs counts if it can read the table."""
    numbers = [item.delivery.number for item in examined]
    snapshot = open_table_snapshot(path)
    if log.has_plain_reader_protocol(snapshot.table):
        rescued_rows = "COUNT(_rescued_data)" if "_rescued_data" in snapshot.column_names else "0"
        counts = snapshot.query_rows(
            f"SELECT _delivery, COUNT(*) AS rows, {rescued_rows} AS rescued FROM t "
            f"WHERE _delivery BETWEEN {min(numbers)} AND {max(numbers)} GROUP BY _delivery"
        )
        wanted = set(numbers)
        return {row["_delivery"]: (row["rows"], row["rescued"]) for row in counts.to_pylist() if row["_delivery"] in wanted}
    frame = table_frames.read_table(workspace.session, path)
    ours = frame.where(F.col("_delivery").between(min(numbers), max(numbers)) & F.col("_delivery").isin(numbers))
    rescued = F.count("_rescued_data") if "_rescued_data" in frame.columns else F.lit(0)
    counted = ours.groupBy("_delivery").agg(F.count("*").alias("rows"), rescued.alias("rescued"))
    return {row._delivery: (row["rows"], row.rescued) for row in counted.collect()}


def _read_earlier_held_back(workspace: Workspace, source: Source) -> list[str | None]:
    """Returns what the source's earlier outcomes say about fields that did not become columns."""
    rows: list[dict[str, Any]] = ledger.read_delivery_ledger_rows(workspace.outcomes, ["source", "held_back"])
    return [row["held_back"] for row in rows if row["source"] == source.name]


def add_outcomes_to_report(report: FlowReport, source: Source, outcomes: list[dict[str, Any]]) -> None:
    """Adds the outcomes of a batch to the flow's report."""
    note = held_back_note(source, [outcome["held_back"] for outcome in outcomes])
    report.notes += [note] if note else []
    report.batches += 1
    report.deliveries += len(outcomes)
    for outcome in outcomes:
        rows, quarantined, suppressed = (int(str(outcome[name])) for name in ("rows", "quarantined", "suppressed"))
        report.rows_in += rows + quarantined + suppressed
        report.rows_out += rows
        report.quarantined += quarantined
        report.suppressed += suppressed
        report.rescued += int(str(outcome["rescued"]))
        if outcome["state"] == QUARANTINED:
            report.quarantine_reasons[str(outcome["reason"])] += 1
        elif quarantined:
            report.quarantine_reasons["rows that do not fit"] += quarantined
