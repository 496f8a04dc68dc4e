"""The erasure ledger: what each step has done to each table for each request. Holds only ids, names of declarations and counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sluice import entries
from sluice.lake.commit_marks import format_commit_mark
from sluice.open_tables import find_table_snapshot
from sluice.own_records import ERASURE
from sluice.pipeline_records import PipelineRecords
from sluice.record_columns import make_record_schema
from sluice.record_tables import append_record_rows


@dataclass(frozen=True)
class ErasureLedgerRow:
    """A row of the ledger. at: UTC."""

    request: str
    table: str
    """The table or source the step worked on, or "" if neither."""
    step: str
    at: datetime
    rows: int = 0
    files: int = 0
    """How many were removed or rewritten."""
    entry: int | None = None
    """See `sluice.entries`; None for rows from before entries existed."""


_REPEATED = "repeated"
"""The entry, not a step, that a request begins anew."""

SCHEMA = make_record_schema(ErasureLedgerRow)


def erasure_ledger_path(records: PipelineRecords) -> str:
    """The path of the ledger."""
    return records.bookkeeping(ERASURE.name)


def record_erasure_step(
    records: PipelineRecords, requests: Iterable[str], table: str, step: str, rows: int = 0, files: int = 0
) -> None:
    """Records for each request that a step is done on a table, in one commit without a JVM. Call it under the pipeline's lease."""
    now = datetime.now(UTC)
    found = [asdict(ErasureLedgerRow(one, table, step, now, rows, files)) for one in requests]
    append_record_rows(erasure_ledger_path(records), found, SCHEMA, format_commit_mark())


def record_repeated_requests(records: PipelineRecords, requests: Iterable[str], table: str) -> None:
    """Records that requests are carried out once more, from their first step on, since what was done to a table is lost."""
    record_erasure_step(records, requests, table, _REPEATED)


def has_repeated_requests(records: PipelineRecords) -> bool:
    """Whether a request was ever carried out once more."""
    opened = find_table_snapshot(erasure_ledger_path(records))
    return opened is not None and opened.query_rows(f"SELECT 1 FROM t WHERE step = '{_REPEATED}' LIMIT 1").num_rows > 0


def list_steps_since_repeated(records: PipelineRecords) -> list[ErasureLedgerRow]:
    """The steps that are done, oldest first: of a request that is carried out once more, only those since then."""
    found: dict[str, list[ErasureLedgerRow]] = {}
    for row in read_erasure_ledger(records):
        of_request = found.setdefault(row.request, [])
        if row.step == _REPEATED:
            of_request.clear()
        else:
            of_request.append(row)
    return [row for of_request in found.values() for row in of_request]


def list_begun_requests(records: PipelineRecords) -> frozenset[str]:
    """The requests of which a step is done. Their people are, or were, on the suppression list, and may be out of their links already."""
    opened = find_table_snapshot(erasure_ledger_path(records))
    return frozenset(opened.query_rows("SELECT DISTINCT request FROM t")["request"].to_pylist()) if opened else frozenset()


def read_erasure_ledger(records: PipelineRecords) -> list[ErasureLedgerRow]:
    """The rows of the ledger, oldest first, independent of clocks. Empty if nothing was erased yet."""
    where = erasure_ledger_path(records)
    opened = find_table_snapshot(where)
    rows = opened.read_columns(SCHEMA).to_pylist() if opened else []
    return [ErasureLedgerRow(**row) for row in entries.sort_by_entry(rows, "at")]
