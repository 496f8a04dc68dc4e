"""Takes requests back: withdraws those for which nothing is done yet, and lifts the suppression of those that were carried out.

Of a withdrawn request only its history stays. After lifting, people come back by new data only.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from sluice import delta_log, record_tables
from sluice.erasure import erasure_ledger, request_events, request_record, requests, vault
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.searched_tables import reset_searched_tables
from sluice.errors import UsageError
from sluice.ingest.delivery_tables import read_delivery_ledger_columns
from sluice.lake.commit_marks import format_commit_mark
from sluice.open_tables import find_table_snapshot
from sluice.pipeline_records import PipelineRecords
from sluice.printable import count_noun


def withdraw_erasure_request(records: PipelineRecords, request: str) -> ErasureRequest:
    """Withdraws a request for which nothing is done yet, without a JVM. Its identifiers leave the vault. Safe to repeat.

    Raises UsageError if it was carried out or is under way: what is begun is finished.
    """
    found = request_record.read_erasure_request(records, request)
    if found.is_withdrawn:
        _forget_request_identifiers(records, request)  # a kill came right after it was recorded
        return found
    if found.rows_left_at is not None or found.state not in (request_events.RECEIVED, request_events.FAILED):
        raise UsageError(
            f"Request {request} is carried out: it is {found.state}. To let the person come back: sluice erase lift {request}"
        )
    if _is_propagation_begun(records, request):
        raise UsageError(
            f"Request {request} is being carried out. When that has ended (sluice erase run {records.pipeline}): sluice erase lift {request}"
        )
    kept = requests.mark_request_withdrawn(records, request)
    _forget_request_identifiers(records, request)
    return kept


def _forget_request_identifiers(records: PipelineRecords, request: str) -> None:
    vault.remove_vault_entry(records, request)
    reset_searched_tables(records)


def _is_propagation_begun(records: PipelineRecords, request: str) -> bool:
    """Whether its people are on the suppression list, which is the first step, or a later step is done."""
    if request in erasure_ledger.list_begun_requests(records):
        return True
    listed = find_table_snapshot(records.suppression_list)
    return listed is not None and request in listed.query_rows("SELECT request FROM t")["request"].to_pylist()


def lift_suppression(records: PipelineRecords, request: str) -> int:
    """Lifts a request's entries, without a JVM. Returns how many. What had been delivered before stays out. Call this under the lease.

    Raises UsageError if the request was not carried out, and SluiceError if another process is writing the list.
    """
    found = request_record.read_erasure_request(records, request)
    # A request whose scan found something was still carried out.
    if found.rows_left_at is None:
        raise UsageError(f"Request {request} is '{found.shown_state}': nobody was erased by it, so there is nothing to lift.")
    if found.is_lifted:
        return 0
    lifted = _lift_suppression_entries(records, request)
    requests.add_request_event(records, request, request_events.LIFTED, f"{count_noun(lifted, 'entry')} of the suppression list")
    return lifted


def _lift_suppression_entries(records: PipelineRecords, request: str) -> int:
    path = records.suppression_list
    if not delta_log.is_delta_table(path):
        return 0
    numbers = read_delivery_ledger_columns(records.delivery_ledger, ["delivery"])["delivery"].to_pylist()
    lifted = {"lifted_at": datetime.now(UTC), "lifted_delivery": max(numbers, default=0)}
    given = pa.Table.from_pylist([{"request": request, **lifted}])
    note = format_commit_mark(flow="suppression", lifted=request)
    return record_tables.update_record_rows(path, given, "t.request = s.request AND t.lifted_at IS NULL", list(lifted), note)
