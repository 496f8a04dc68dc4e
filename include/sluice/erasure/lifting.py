"""Lifts the suppression of erased people: they then come back by new data only."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from sluice import delta_log, record_tables
from sluice.erasure import request_events, request_record, requests
from sluice.errors import UsageError
from sluice.ingest.delivery_tables import read_delivery_ledger_columns
from sluice.lake.commit_marks import format_commit_mark
from sluice.pipeline_records import PipelineRecords
from sluice.printable import count_noun


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
