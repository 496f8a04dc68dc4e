"""The two tables of the delivery ledger: deliveries (which file came when) and outcomes (the result of each).

They are two because they are streamed: a table that is appended to and streamed cannot keep a state that changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sluice import entries, own_records
from sluice.delivery_rows import RECORDED, DeliveryRow, OutcomeRow
from sluice.entries import ENTRY, AcceptedDelivery, select_counting_deliveries
from sluice.lake.commit_marks import format_commit_mark
from sluice.open_tables import find_table_snapshot
from sluice.record_columns import make_record_schema
from sluice.record_states import INGESTED, LOST, READ, TAKEN, is_settled
from sluice.record_tables import append_record_rows

Row = Mapping[str, Any]
Found = TypeVar("Found", bound=Row)

DELIVERIES = make_record_schema(DeliveryRow)
OUTCOMES = make_record_schema(OutcomeRow)

_FIELDS = {field.name: field.with_nullable(True) for field in (*DELIVERIES, *OUTCOMES)}


def append_delivery_ledger_rows(path: str, rows: Sequence[Mapping[str, object]], schema: pa.Schema, run: str) -> None:
    """Appends rows to one of the two tables in one commit; outcomes get their entries. Without rows there is no commit."""
    append_record_rows(path, rows, schema, format_commit_mark(run=run))


def append_numbered_deliveries(deliveries: str, commits: Iterable[list[DeliveryRow]], last: int, run: str) -> int:
    """Appends rows to the deliveries table, one commit for each list, with numbers after `last` and after every number that has an outcome.

    Returns how many rows there are.
    """
    outcomes = own_records.locate_record_beside(deliveries, own_records.OUTCOMES)
    now, first = datetime.now(UTC), max(last, highest_delivery(outcomes))
    given = first
    for rows in commits:
        for number, row in enumerate(rows, start=given + 1):
            row |= {"delivery": number, "discovered_at": now, "run": run}
        append_delivery_ledger_rows(deliveries, rows, DELIVERIES, run)
        given += len(rows)
    return given - first


def highest_delivery(outcomes: str) -> int:
    """Returns the greatest number of a delivery with an outcome, or 0 if there is none."""
    numbers = read_delivery_ledger_columns(outcomes, ["delivery"])["delivery"]
    return int(pc.max(numbers).as_py() or 0)


def read_delivery_ledger_columns(path: str, names: Sequence[str]) -> pa.Table:
    """Reads columns of a ledger table, without a JVM. A column that an older lake lacks is all NULL. No rows if there is no table."""
    opened = find_table_snapshot(path)
    return opened.read_columns(_ledger_schema(names)) if opened else _ledger_schema(names).empty_table()


def read_delivery_ledger_batches(path: str, names: Sequence[str]) -> Iterator[pa.Table]:
    """Reads columns of a ledger table as `read_delivery_ledger_columns` does, some thousand rows at a time. Nothing if there is no table."""
    opened = find_table_snapshot(path)
    yield from opened.read_column_batches(_ledger_schema(names)) if opened else ()


def read_delivery_ledger_rows(path: str, names: Sequence[str] | None = None) -> list[dict[str, object]]:
    """Reads a ledger table's rows, without a JVM: all columns unless some are named. Empty if there is no table."""
    opened = find_table_snapshot(path)
    if opened is None:
        return []
    found: list[dict[str, object]] = opened.read_columns(_ledger_schema(names or opened.column_names)).to_pylist()
    return found


def sort_deliveries_by_number(rows: Iterable[Found]) -> list[Found]:
    """Sorts rows of the deliveries table in the order of their numbers."""
    return sorted(rows, key=lambda row: int(str(row["delivery"])))


def _ledger_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([_FIELDS[name] for name in names])


def read_settled_deliveries(outcomes: str, among: Collection[int]) -> set[int]:
    """Returns those of some deliveries that have an outcome. No flow takes them again by itself."""
    return {number for number, last in read_last_outcomes(outcomes, ["state"], among).items() if is_settled(last["state"])}


def find_unsettled_deliveries(outcomes: str) -> set[int]:
    """Returns the deliveries that have outcomes of which none counts any more, so that they are taken again."""
    return find_deliveries_in_state(outcomes, LOST)


def count_waiting_deliveries(deliveries: str, outcomes: str, source: str) -> int:
    """Returns how many deliveries of a source have no outcome yet."""
    found = read_delivery_ledger_columns(deliveries, ["delivery", "source", "event"])
    taken = pc.and_(pc.equal(found["source"], source), pc.is_in(found["event"], pa.array(TAKEN)))
    settled = read_delivery_ledger_columns(outcomes, ["delivery"])["delivery"]
    unsettled = pa.array(find_unsettled_deliveries(outcomes), pa.int64())
    settled = settled.filter(pc.invert(pc.is_in(settled, unsettled)))
    return int(pc.sum(pc.invert(pc.is_in(found["delivery"].filter(taken), settled))).as_py() or 0)


def read_last_outcomes(
    outcomes: str, columns: Sequence[str], among: Collection[int] | None = None, source: str | None = None
) -> dict[int, dict[str, Any]]:
    """Returns the last outcome of each delivery that has one, from the outcomes table at that path.

    columns: those that are needed, as rows of the table have them. among: only these deliveries. source: only those of this source.
    """
    found = read_delivery_ledger_columns(outcomes, list(dict.fromkeys((*columns, "delivery", "source", RECORDED, ENTRY))))
    if among is not None:
        found = found.filter(pc.is_in(found["delivery"], pa.array(among, pa.int64())))
    if source is not None:
        found = found.filter(pc.equal(found["source"], source))
    rows: list[dict[str, Any]] = found.to_pylist()
    return {row["delivery"]: row for row in sort_outcomes_by_recording(rows)}


def read_last_delivery_states(outcomes: str) -> dict[int, tuple[str, str | None]]:
    """Returns, by delivery, its state and the reason, from the outcomes table at that path."""
    return {number: (row["state"], row["reason"]) for number, row in read_last_outcomes(outcomes, ["state", "reason"]).items()}


def read_recorded_outcomes(outcomes: str, source: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Returns these columns of all outcomes of a source, in the order in which they were recorded, from the outcomes table at that path."""
    found = read_delivery_ledger_columns(outcomes, list(dict.fromkeys((*columns, "source", RECORDED, ENTRY))))
    return sort_outcomes_by_recording(found.filter(pc.equal(found["source"], source)).to_pylist())


def sort_outcomes_by_recording(outcomes: Iterable[Found]) -> list[Found]:
    """Sorts rows of the outcomes table in the order in which they were recorded."""
    return entries.sort_by_entry(outcomes, RECORDED)


def find_deliveries_in_state(outcomes: str, state: str) -> set[int]:
    """Returns the deliveries whose last outcome is that state, from the outcomes table at that path."""
    found = read_delivery_ledger_columns(outcomes, ["delivery", "state"])
    # Few deliveries are ever missed, and the rows of the others need not be read.
    once = found["delivery"].filter(pc.equal(found["state"], state))
    if not len(once):
        return set()
    return {
        number for number, last in read_last_outcomes(outcomes, ["state"], once.to_pylist()).items() if last["state"] == state
    }


@dataclass(frozen=True)
class DeliveryOutcome:
    """What is known about a delivery by its last outcome. rows: how many bronze got. had_rows, was_ingested: whether it ever did or was."""

    delivery: int
    file: str
    state: str
    had_rows: bool
    modified_at: datetime | None
    sha256: str | None
    rows: int = 0
    was_ingested: bool = False


def read_source_outcomes(outcomes: str, source: str) -> list[DeliveryOutcome]:
    """Returns the outcome of each delivery of a source, from the outcomes table at that path."""
    found: dict[int, DeliveryOutcome] = {}
    for row in read_recorded_outcomes(outcomes, source, ["delivery", "file", "state", "rows", "modified_at", "sha256"]):
        before = found.get(row["delivery"])
        had_rows = bool(row["rows"]) or (before is not None and before.had_rows)
        found[row["delivery"]] = DeliveryOutcome(
            delivery=row["delivery"],
            file=row["file"],
            state=row["state"],
            had_rows=had_rows,
            modified_at=row["modified_at"],
            sha256=row["sha256"],
            rows=row["rows"] or 0,
            was_ingested=row["state"] == INGESTED or (before is not None and before.was_ingested),
        )
    return list(found.values())


def read_outcomes_of_read_deliveries(outcomes: str, source: str, even_if_lost: bool) -> dict[int, dict[str, Any]]:
    """Returns the last outcome of each delivery of a source that was read, with all columns.

    even_if_lost: also of those whose rows were lost since, and then the last outcome before that.
    """
    recorded = read_recorded_outcomes(outcomes, source, OUTCOMES.names)
    last = {row["delivery"]: row for row in recorded if is_settled(row["state"]) or not even_if_lost}
    return {number: row for number, row in last.items() if row["state"] in READ}


def select_live_deliveries(outcomes: Iterable[DeliveryOutcome], replaces: bool) -> set[int]:
    """Returns the deliveries of one source whose rows count now.

    If a redelivery replaces, one delivery of each file counts: see `sluice.entries`.
    """
    accepted = [outcome for outcome in outcomes if outcome.state == INGESTED]
    if not replaces:
        return {outcome.delivery for outcome in accepted}
    return select_counting_deliveries(AcceptedDelivery(one.delivery, one.file, one.modified_at, one.sha256) for one in accepted)
