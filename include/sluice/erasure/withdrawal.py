"""Taking back what was asked: a request that nothing is done of yet, or the suppression of people who were erased, so that they may come back.

Nobody is erased by a request that is taken back, and nothing of it stays but its history. Who was erased comes back by new data only.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from sluice.delta_log import find_table_snapshot, open_table_to_change
from sluice.erasure import looked_at, requests, vault
from sluice.erasure.requests import ErasureRequest
from sluice.errors import SluiceError, UsageError
from sluice.ingest import ledger
from sluice.lake import log
from sluice.lake.commit_marks import format_commit_mark
from sluice.pipeline_records import PipelineRecords


def withdraw_erasure_request(records: PipelineRecords, request: str) -> ErasureRequest:
    """Take a request back of which nothing is done yet, without a JVM; its identifiers leave the vault. Once, however often it is tried.

    Raises UsageError where it was carried out, or is on the way: what is begun is brought to its end.
    """
    found = requests.read_erasure_request(records, request)
    if found.withdrawn_at is not None:
        _forget_request_identifiers(records, request)  # killed right after it was noted
        return found
    if found.done_at is not None or found.state not in (requests.RECEIVED, requests.FAILED):
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
    looked_at.reset_request_table_states(records)


def _is_propagation_begun(records: PipelineRecords, request: str) -> bool:
    """Whether its people are on the suppression list, which is the first step."""
    listed = find_table_snapshot(records.bookkeeping("suppression"))
    return listed is not None and request in listed.query_rows("SELECT request FROM t")["request"].to_pylist()


_COLUMNS = {"lifted_at": pa.timestamp("us", tz="UTC"), "lifted_delivery": pa.int64()}
_UPDATES = {name: f"s.{name}" for name in _COLUMNS}


def lift_suppression(records: PipelineRecords, request: str) -> int:
    """Lift the entries of a request, without a JVM. Returns how many. What had been delivered before stays out.

    Raises UsageError where the request was not carried out, and SluiceError where another process writes the list just now.
    """
    found = requests.read_erasure_request(records, request)
    # One whose scan found something was carried out all the same.
    if found.done_at is None:
        state = requests.WITHDRAWN if found.withdrawn_at else found.state
        raise UsageError(f"Request {request} is '{state}': nobody of it was erased, so that there is nothing to lift.")
    if found.lifted_at is not None:
        return 0
    lifted = _lift_suppression_entries(records, request)
    requests.add_request_event(records, request, requests.LIFTED, f"{lifted} entries of the suppression list")
    return lifted


def _lift_suppression_entries(records: PipelineRecords, request: str) -> int:
    path = records.bookkeeping("suppression")
    if not log.is_delta_table(path):
        return 0
    table = open_table_to_change(path)
    numbers = ledger.read_delivery_ledger_columns(records.bookkeeping("deliveries"), ["delivery"])["delivery"].to_pylist()
    row = {"request": request, "lifted_at": datetime.now(UTC), "lifted_delivery": max(numbers, default=0)}
    schema = pa.schema([pa.field("request", pa.string()), *(pa.field(name, kind) for name, kind in _COLUMNS.items())])
    note = CommitProperties(custom_metadata={"userMetadata": format_commit_mark(flow="suppression", lifted=request)})
    merging = table.merge(
        pa.Table.from_pylist([row], schema=schema),
        predicate="t.request = s.request AND t.lifted_at IS NULL",
        source_alias="s",
        target_alias="t",
        commit_properties=note,
    )
    try:
        return int(merging.when_matched_update(_UPDATES).execute()["num_target_rows_updated"])
    except CommitFailedError:
        raise SluiceError("Another process writes the suppression list just now. Try again.") from None
