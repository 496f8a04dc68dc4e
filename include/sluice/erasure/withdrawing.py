"""Withdraws requests. That can be done while nothing has been done for a request; only its history stays."""

from __future__ import annotations

from sluice.erasure import erasure_ledger, request_events, request_record, requests, vault
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.searched_tables import reset_searched_tables
from sluice.errors import UsageError
from sluice.open_tables import find_table_snapshot
from sluice.pipeline_records import PipelineRecords


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
