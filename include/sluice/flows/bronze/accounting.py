"""Keeps the books of deliveries true: records the result of each, and restores what the delivery ledger lost with its last commits.

Results are counted from the committed tables, because a crashed attempt may have done half of the work. Commits are lost by a power failure;
deliveries are then restored from their outcomes, before discovery begins. Otherwise the lost numbers would be given out again, and a new
delivery with one of them would count as read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.ingest.source import Source
from sluice.delivery_rows import RECORDED, REPEATED_IN_OUTCOMES, DeliveryRow, OutcomeRow
from sluice.entries import ENTRY
from sluice.errors import SluiceError
from sluice.flows.progress import checkpoints
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.known_files import KnownFiles, read_known_files
from sluice.ingest.deliveries.landed_file import read_file_state, resolve_landed_path
from sluice.ingest.formats import csv_rows
from sluice.ingest.reading.examination import ExaminedDelivery
from sluice.ingest.schema_evolution import held_back_note, newly_held_back_fields
from sluice.lake import file_statistics, log, table_frames
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.locations import Location
from sluice.open_tables import open_table_snapshot
from sluice.printable import count_noun, match_number
from sluice.record_states import DELIVERED, INGESTED, MISSED, QUARANTINED, VANISHED
from sluice.record_tables import create_record_table


@dataclass(frozen=True)
class WrittenDeliveries:
    """The results of deliveries.

    examined: the deliveries, with the findings of reading them. read, suppressed: records by delivery, as far as they are known. held_back: by
    delivery, the fields that did not become columns.
    """

    examined: list[ExaminedDelivery]
    read: dict[int, int] = field(default_factory=dict)
    suppressed: dict[int, int] = field(default_factory=dict)
    held_back: dict[int, dict[str, str]] = field(default_factory=dict)


def record_outcomes(
    workspace: Workspace,
    source: Source,
    done: WrittenDeliveries,
    report: FlowReport,
    batch: int | None,
    lacking: Mapping[int, Mapping[str, Any]],
) -> None:
    """Records the outcomes of deliveries, and adds them to the flow's report. lacking: from `find_incomplete_deliveries`."""
    outcomes = build_outcome_rows(workspace, source, done, batch)
    report.notes += tell_of_lost_records(outcomes, done.examined, lacking)
    delivery_tables.append_delivery_ledger_rows(workspace.outcomes, outcomes, delivery_tables.OUTCOMES, workspace.run)
    add_outcomes_to_report(report, source, outcomes)


def build_outcome_rows(workspace: Workspace, source: Source, done: WrittenDeliveries, batch: int | None) -> list[OutcomeRow]:
    """Returns a row of the outcomes table for each delivery, with the counts from bronze and its quarantine."""
    examined, suppressed, held_back = done.examined, done.suppressed, done.held_back
    written = _count_rows_by_delivery(workspace, workspace.path(source.name), examined)
    aside = _count_rows_by_delivery(workspace, workspace.quarantine(source.name), examined)
    fresh = newly_held_back_fields(held_back, _read_earlier_held_back(workspace, source)) if any(held_back.values()) else {}
    now = datetime.now(UTC)
    found: list[OutcomeRow] = []
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
            "read": done.read.get(delivery.number, accounted),
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
            RECORDED: now,
            "held_back": fresh.get(delivery.number),
        })
    return found


def find_incomplete_deliveries(
    workspace: Workspace, source: Source, examined: list[ExaminedDelivery]
) -> dict[int, Mapping[str, Any]]:
    """Returns, with its last outcome before that, each delivery that a repair recorded as lost and of which some rows are left, but not all.

    Records that were put back from quarantine came in a later commit than the others, so one part may be lost without the other.
    """
    lost = delivery_tables.find_unsettled_deliveries(workspace.outcomes) if examined else set()
    examined = [item for item in examined if item.delivery.number in lost]
    if not examined:
        return {}
    counted = delivery_tables.read_outcomes_of_read_deliveries(workspace.outcomes, source.name, even_if_lost=True)
    written = _count_rows_by_delivery(workspace, workspace.path(source.name), examined)
    aside = _count_rows_by_delivery(workspace, workspace.quarantine(source.name), examined)
    found: dict[int, Mapping[str, Any]] = {}
    for number in (item.delivery.number for item in examined):
        before = counted.get(number)
        there = written.get(number, (0, 0))[0], aside.get(number, (0, 0))[0]
        if before is not None and there != (before["rows"] or 0, before["quarantined"] or 0):
            found[number] = before
    return found


def tell_of_lost_records(
    outcomes: Sequence[OutcomeRow], examined: Iterable[ExaminedDelivery], lacking: Mapping[int, Mapping[str, Any]]
) -> list[str]:
    """Says in the outcome of a delivery that lacks records why it cannot be read again, and returns notes for the report."""
    unread = {item.delivery.number: item.reason for item in examined if item.state == MISSED}
    notes = []
    for outcome in outcomes:
        before, number = lacking.get(outcome["delivery"]), outcome["delivery"]
        if before is None or number not in unread:
            continue
        had, has = ((of["rows"] or 0) + (of["quarantined"] or 0) for of in (before, outcome))
        if has < had:
            outcome["reason"] = (
                f"{has} of {count_noun(had, 'record')} {match_number(has, 'is', 'are')} left after a commit was lost, and it cannot be read "
                f"again: {unread[number]}"
            )
            notes.append(f"delivery {number}: {outcome['reason']}")
    return notes


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
    return [row["held_back"] for row in delivery_tables.read_recorded_outcomes(workspace.outcomes, source.name, ["held_back"])]


def add_outcomes_to_report(report: FlowReport, source: Source, outcomes: list[OutcomeRow]) -> None:
    """Adds the outcomes of a batch to the flow's report."""
    note = held_back_note(source, [outcome["held_back"] for outcome in outcomes])
    report.notes += [note] if note else []
    report.batches += 1
    report.deliveries += len(outcomes)
    for outcome in outcomes:
        rows, quarantined, suppressed = outcome["rows"] or 0, outcome["quarantined"] or 0, outcome["suppressed"] or 0
        report.rows_in += rows + quarantined + suppressed
        report.rows_out += rows
        report.quarantined += quarantined
        report.suppressed += suppressed
        report.rescued += outcome["rescued"] or 0
        if outcome["state"] == QUARANTINED:
            report.quarantine_reasons[str(outcome["reason"])] += 1
        elif quarantined:
            report.quarantine_reasons["rows that do not fit"] += quarantined


LEDGER_LOST_COMMITS = "the ledger of deliveries had lost its last commits"
_OF_OUTCOME = (*REPEATED_IN_OUTCOMES, "state", RECORDED, ENTRY)


def regain_deliveries(workspace: Workspace, sources: Sequence[Source], own_bronze: bool = True) -> None:
    """Restores the deliveries that have an outcome but are lost. own_bronze: the bronze tables hold no deliveries of another ledger.

    The streams then start anew, because the versions that they have taken now hold other rows. Raises SluiceError if bronze has rows of a
    delivery that nothing else knows.
    """
    known = read_known_files(workspace.deliveries, workspace.outcomes)
    if restore_lost_deliveries(sources, workspace.landing, known, workspace.run):
        known = read_known_files(workspace.deliveries, workspace.outcomes)
        for source in workspace.graph.sources.values():
            flow = workspace.graph.flow_name(source)
            checkpoints.reset_checkpoint(workspace.checkpoints(flow), flow, LEDGER_LOST_COMMITS)
    if own_bronze:
        refuse_unknown_bronze_rows(known, {one.table: workspace.path(one.name) for one in workspace.graph.sources.values()})


def restore_lost_deliveries(sources: Iterable[Source], landing: Location, known: KnownFiles, run: str) -> int:
    """Appends to the deliveries table those deliveries that have an outcome and a higher number than it knows. Returns how many."""
    if delivery_tables.highest_delivery(known.outcomes) <= known.last:
        return 0
    outcomes = delivery_tables.read_last_outcomes(known.outcomes, _OF_OUTCOME)
    last = {number: row for number, row in outcomes.items() if number > known.last}
    folders = {one.name: landing / one.path for one in sources if one.kind.in_files}
    rows = [_delivery_row_from_outcome(row, folders, run) for _, row in sorted(last.items())]
    create_record_table(known.deliveries, delivery_tables.DELIVERIES)
    delivery_tables.append_delivery_ledger_rows(known.deliveries, rows, delivery_tables.DELIVERIES, run)
    return len(rows)


def refuse_unknown_bronze_rows(known: KnownFiles, bronze: Mapping[str, str]) -> None:
    """Raises SluiceError if a bronze table has rows of a delivery whose number is higher than the ledger knows. bronze: paths by table name."""
    for name, path in bronze.items():
        highest = file_statistics.read_highest_value(path, "_delivery")[1] if delta_log.is_delta_table(path) else None
        if highest is not None and highest > known.last:
            raise SluiceError(
                f"Bronze table '{name}' has rows of delivery {highest}, and the ledger knows none after {known.last}: commits of "
                f"{known.deliveries} and {known.outcomes} are lost. Put both folders back from a copy. Without one, delete the rows with "
                f"_delivery > {known.last} from {path} by Delta's own means: no table above has taken them, and the next run reads their "
                "files again."
            )


def _delivery_row_from_outcome(outcome: Mapping[str, Any], folders: Mapping[str, Location], run: str) -> dict[str, Any]:
    """Returns the row of a delivery as far as its outcome tells it. The size is the file's, if the file is unchanged."""
    row = {name: outcome[name] for name in REPEATED_IN_OUTCOMES}
    event = VANISHED if outcome["state"] == VANISHED else DELIVERED
    folder = folders.get(outcome["source"])
    size = (
        _size_if_unmodified(resolve_landed_path(folder, outcome["file"]), outcome["modified_at"])
        if folder and event == DELIVERED
        else None
    )
    told: DeliveryRow = {"event": event, "size": size, "discovered_at": outcome[RECORDED], "run": run}
    return {**row, **told}


def _size_if_unmodified(path: Location, at: object) -> int | None:
    """The size of a file that still has this time. Nothing else of its state at discovery is known from an outcome."""
    try:
        found = read_file_state(path)
    except OSError:
        return None
    return found.size if found.modified_at == at else None
