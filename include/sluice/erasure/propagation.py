"""Propagating deletions: whoever asked to be erased leaves every place of the lake, and what is made from those places follows.

The order matters. The suppression list is extended first, so that nothing lets the person in again while the deletion goes on; what
remembers people by itself is reset before the rows go that it was made of; what reads tables follows when they are clean; and files that
nobody reads any more go last. Each step is noted for each table, so that a killed propagation goes on where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from sluice.erasure import asking, canary, canonical_entries, ledger, requests
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.steps import canaries, landing
from sluice.erasure.steps.erasing import Erasing, Follow
from sluice.erasure.subjects import settling
from sluice.lake import log, shallow
from sluice.lake.report import FlowReport
from sluice.lake.tables import read_table_retention
from sluice.lake.workspace import Workspace


def propagate_deletions(
    workspace: Workspace, follow: Follow, without: Collection[str] = frozenset(), only: Collection[str] = ()
) -> list[FlowReport]:
    """Carry out every request that is received. follow: runs the flows above bronze. without: steps that are left out, for tests.

    only: ids of the requests that are carried out; the others wait, those too that are found in data. None means all.
    A killed propagation is simply run again. Raises SluiceError where a step cannot be done; the requests then stay as they are.
    """
    records = workspace.records
    canonical_entries.recompute_suppression_entries(workspace)
    asking.create_requests_from_rows(workspace)
    if not requests.list_waiting_requests(records, only):
        return landing.rewrite_redelivered_files(workspace)
    settled = canary.plant_canary(workspace, settling.settle_waiting_requests(workspace, only))
    erasing = Erasing(workspace, settled, follow)
    for place in PERSONAL_PLACES:
        if place.erase and place.name not in without:
            place.erase(erasing)
            canaries.erase_canaries(erasing, place.controls)
    _note_shallow_clones(workspace, erasing.reports)
    due = _compute_physical_due_time(workspace, settled)
    taken_out = _count_erased_rows(workspace)
    for request in settled:
        note = f"{taken_out[request.request]} rows"
        requests.advance_request_state(
            records, request, requests.LOGICALLY, note, physical_due_at=due.isoformat(timespec="seconds")
        )
    return erasing.reports


def _count_erased_rows(workspace: Workspace) -> Counter[str]:
    """How many rows the requests have taken out of tables; those that are carried out together have the same ones."""
    found: Counter[str] = Counter()
    for one in ledger.read_erasure_ledger(workspace.records):
        found[one.request] += one.rows if one.step in ("tables", "late", "quarantine") else 0
    return found


def _compute_physical_due_time(workspace: Workspace, settled: Sequence[ErasureRequest]) -> datetime:
    """When the files that hold them may go: the longest retention of a table after now, when the last of them was taken out."""
    tables = {**workspace.tables(), **canaries.canary_table_paths(workspace, settled)}
    keeps = [read_table_retention(path) for path in tables.values() if log.is_delta_table(path)]
    # A second more, since commits are stamped in milliseconds and this is not.
    return datetime.now(UTC) + max(keeps, default=timedelta()) + timedelta(seconds=1)


def _note_shallow_clones(workspace: Workspace, reports: list[FlowReport]) -> None:
    lakes = shallow.find_shallow_clone_lakes(workspace.records)
    for report in reports[:1]:
        report.notes += [f"still in the shallow clone {lake}: remove it" for lake in lakes]
