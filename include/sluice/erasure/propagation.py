"""Propagating deletions: whoever asked to be erased leaves every place of the lake, and what is made from those places follows.

The order matters. The suppression list is extended first, so that nothing lets the person in again while the deletion goes on; what
remembers people by itself is reset before the rows go that it was made of; what reads tables follows when they are clean; and files that
nobody reads any more go last. Each step is noted for each table, so that a killed propagation goes on where it was.

What was erased by one spelling may be in the lake by another, once the form of a kind of identifier is declared. So for each request whose
identifiers the vault still has, the list gets them in the declared form, before anything is read; and a new request, of the same people,
takes out what is there of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from sluice.erasure import asking, canary, ledger, receiving, requests, vault
from sluice.erasure.canary import PREFIX
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.steps import canaries, landing
from sluice.erasure.steps.erasing import Erasing, Follow
from sluice.erasure.subjects import settling
from sluice.erasure.vault import PSEUDONYM, Identifier
from sluice.lake import log, shallow
from sluice.lake.log import read_table_retention
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression_list


def propagate_deletions(
    workspace: Workspace, follow: Follow, without: Collection[str] = frozenset(), only: Collection[str] = ()
) -> list[FlowReport]:
    """Carry out every request that is received. follow: runs the flows above bronze. without: steps that are left out, for tests.

    only: ids of the requests that are carried out; the others wait, those too that are found in data. None means all.
    A killed propagation is simply run again. Raises SluiceError where a step cannot be done; the requests then stay as they are.
    """
    records = workspace.records
    recompute_suppression_entries(workspace)
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


_AGAIN = "asked again"


def suppress_request_subjects(erasing: Erasing) -> None:
    """Put the requests' subjects on the suppression list."""
    suppression_list.suppress_subjects(erasing.workspace, {request.request: request.subjects for request in erasing.waiting})


def recompute_suppression_entries(workspace: Workspace) -> list[str]:
    """Bring the list to the forms that are declared now. Returns the ids of the new requests. Once, however often it is tried.

    Of a request whose identifiers the vault has no more the entries stay as they are: they know the spelling that was erased.
    """
    if not log.is_delta_table(workspace.suppression):
        return []
    changed = suppression_list.find_changed_forms(workspace)
    if not changed:
        return []
    records = workspace.records
    listed = suppression_list.list_suppressed_requests(workspace)
    open_ = [one for one in requests.list_erasure_requests(records) if one.request in listed and one.lifted_at is None]
    theirs = {one.request: _find_changed_identifiers(workspace, one, changed) for one in open_}
    known = {request: found for request, found in theirs.items() if found}
    suppression_list.add_suppression_entries(
        workspace,
        {request: requests.pseudonymise_subjects(records.settings, workspace.graph, found) for request, found in known.items()},
    )
    made = [_request_erasure_again(workspace, one, known[one.request]) for one in open_ if one.request in known]
    suppression_list.record_canonical_forms(workspace)
    return [one for one in made if one]


def _find_changed_identifiers(workspace: Workspace, request: ErasureRequest, changed: Collection[str]) -> list[Identifier]:
    if not vault.has_vault_entry(workspace.records, request.request):
        return []
    every = vault.read_vault_identifiers(workspace.records, request.request)
    return [one for one in every if one.domain in changed and one.domain != PSEUDONYM and not one.domain.startswith(PREFIX)]


def _request_erasure_again(workspace: Workspace, before: ErasureRequest, theirs: list[Identifier]) -> str | None:
    """What was theirs for a time alone is asked for by nobody: the list keeps it out, and the time may be another's."""
    records = workspace.records
    said = f"in the forms {suppression_list.canonical_forms_text(workspace)}"
    own = [Identifier(one.domain, one.value) for one in theirs if not (one.since or one.until)]
    if not own or any(one.state == _AGAIN and one.note.startswith(said) for one in before.history):
        return None
    made = receiving.receive_erasure_request(
        records.settings, workspace.graph, own, said=f"{_AGAIN} for request {before.request}, {said}"
    )
    requests.add_request_event(records, before.request, _AGAIN, f"{said}, by request {made.request}")
    return made.request
