"""Finds which erasures were lost with commits of a table, and lets them be carried out again. Needs no JVM.

The files that an erasure's commit took out of a table count again once that commit is lost, and the erasure's records still say that it
is done. So its request waits again, from its first step on, and no layer runs before it is carried out. What is removed by age needs
none of this: the stage `propagate_deletions` finds it again by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from sluice.delta_log import DamagedLog
from sluice.erasure import erasure_ledger, request_events, request_record, requests
from sluice.lake import commit_history
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import DELETIONS, ERASE
from sluice.record_states import DONE
from sluice.runs import run_ledger
from sluice.runs.repair.lost_contents import CLOCKS_DIFFER, explain_damaged_record


def find_lost_erasures(records: PipelineRecords, table: str, since: datetime | None) -> tuple[tuple[str, ...], str | None]:
    """Returns the requests whose steps on a table may be lost, and why the repair is refused, if it is.

    These are requests that took rows or files from the table after its last whole commit, or shortly before: to do it again does no harm.
    A step that found nothing there is recorded too, and lost nothing. A lifted request is left out: nobody is kept out by it any more.
    since: when that commit was made; None if it does not say, so that any request is meant that ever took something there.
    """
    try:
        steps = erasure_ledger.list_steps_since_repeated(records)
        run_ledger.read_run_ledger(records)
    except DamagedLog:
        return (), explain_damaged_record(records.pipeline, table)
    removed = (row for row in steps if row.table == table and (row.rows or row.files))
    done = {row.request for row in removed if since is None or row.at >= since - CLOCKS_DIFFER}
    known = request_record.list_erasure_requests(records) if done else []
    return tuple(one.request for one in known if one.request in done and not one.is_lifted and not one.is_withdrawn), None


def repeat_lost_erasures(records: PipelineRecords, table: str, ids: Collection[str]) -> None:
    """Makes requests wait to be carried out again, from their first step on. Safe to repeat."""
    if not ids:
        return
    for request in ids:
        note = f"a commit of '{table}' was lost, and with it what was done there"
        requests.advance_request_state(records, request, request_events.RECEIVED, note)
    erasure_ledger.record_repeated_requests(records, ids, table)


def take_back_counts(records: PipelineRecords, table: str, path: str, lost: Sequence[int]) -> None:
    """Records in the run ledger that rows which lost commits had removed are back: otherwise they would count as removed twice.

    Removed by an erasure or by age. Safe to repeat.
    """
    every = [row for row in run_ledger.read_run_ledger(records) if row["flow"] == table and row["stage"] in _REMOVING]
    done = {(row["run"], row["stage"]) for row in every if row["mode"] == _MODE}
    now = datetime.now(UTC)
    back = []
    for row in every:
        before, after = row["version_before"], row["version_after"]
        versions = range(before + 1, after + 1) if before is not None and after is not None else range(0)
        if (row["run"], row["stage"]) in done or not set(versions) & set(lost):
            continue
        left = sum(commit_history.count_removed_rows(path, version) for version in versions if version not in lost)
        gone = min(row["deleted"] or 0, row["rows_out"] or 0) - left
        if gone > 0:
            told = {name: row[name] for name in ("run", "pipeline", "stage", "flow", "airflow_run")}
            counts = {"mode": _MODE, "deleted": -gone, "rows_out": -gone}
            note = "its commit was lost: these rows are back until they are removed again"
            back.append({**told, **counts, "started_at": now, "ended_at": now, "state": DONE, "note": note})
    if back:
        run_ledger.append_run_rows(records, back)


_REMOVING = (DELETIONS.name, ERASE.name)
_MODE = "repair"
