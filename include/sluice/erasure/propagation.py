"""Propagates deletions: removes requested people from every place of the lake, and updates what is made from those places.

The order matters. The suppression list is extended first, so that nobody comes back in while the deletion goes on. Places that remember
people by themselves are reset before the rows that they were made from go. Readers of tables follow once the tables are clean. Files
that nobody reads any more go last. Each step is recorded per table, so a killed propagation resumes where it was.

Once the canonical form of a domain is declared, the lake may hold other spellings of what was erased. For each request whose
identifiers the vault still has, the list therefore gets them in the declared form before anything is read, and a new request for the
same people removes what is left of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from sluice import delta_log, durable_files
from sluice.declare.assembly.graph import PSEUDONYM
from sluice.erasure import asking, canary, erasure_ledger, request_events, request_record, requests, vault
from sluice.erasure.canary import PREFIX
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.steps import canaries, landing
from sluice.erasure.steps.erasure_step import ErasureStep, Follow, Propagation
from sluice.erasure.subjects import identity_settling
from sluice.erasure.vault import Identifier
from sluice.lake.clone_registry import find_shallow_clone_lakes
from sluice.lake.flow_report import FlowReport
from sluice.lake.log import read_table_retention
from sluice.lake.workspace import Workspace
from sluice.printable import count_noun
from sluice.privacy import suppression_list


def propagate_deletions(workspace: Workspace, follow: Follow, only: Collection[str] = ()) -> list[FlowReport]:
    """Carries out every received request. follow: runs the flows above bronze.

    only: the ids of the requests to carry out; the others wait, including those found in data; empty means all. After a kill, simply run
    it again. Raises SluiceError if a step cannot be done; the requests then keep their state.
    """
    records = workspace.records
    recompute_suppression_entries(workspace)
    asking.create_requests_from_rows(workspace)
    if not request_record.list_waiting_requests(records, only):
        return landing.rewrite_redelivered_files(workspace)
    settled = canary.plant_canary(workspace, identity_settling.settle_waiting_requests(workspace, only))
    propagation = Propagation(workspace, settled, follow)
    for place in PERSONAL_PLACES:
        if place.erase:
            place.erase(ErasureStep(propagation, place.name))
            canaries.erase_canaries(propagation, place.controls)
    _note_shallow_clones(workspace, propagation.reports)
    due = _compute_physical_due_time(workspace, settled)
    taken_out = _count_erased_rows(workspace)
    for request in settled:
        note = count_noun(taken_out[request.request], "row")
        requests.advance_request_state(
            records, request, request_events.LOGICALLY, note, physical_due_at=due.isoformat(timespec="seconds")
        )
    return propagation.reports


def _count_erased_rows(workspace: Workspace) -> Counter[str]:
    """The number of rows that the requests removed from tables; those carried out together share the same rows."""
    counted = {place.name for place in PERSONAL_PLACES if place.counts_rows}
    found: Counter[str] = Counter()
    for one in erasure_ledger.list_steps_since_repeated(workspace.records):
        found[one.request] += one.rows if one.step in counted else 0
    return found


def _compute_physical_due_time(workspace: Workspace, settled: Sequence[ErasureRequest]) -> datetime:
    """When the files that still hold them may go: the longest retention of a table, counted from now."""
    tables = {**workspace.lake.record_tables(), **canaries.canary_table_paths(workspace, settled)}
    keeps = [read_table_retention(path) for path in tables.values() if delta_log.is_delta_table(path)]
    # One second more, because commits have millisecond timestamps and this one does not.
    return datetime.now(UTC) + max(keeps, default=timedelta()) + timedelta(seconds=1)


def _note_shallow_clones(workspace: Workspace, reports: list[FlowReport]) -> None:
    lakes = find_shallow_clone_lakes(workspace.records)
    for report in reports[:1]:
        report.notes += [f"still in the shallow clone {lake}: remove it" for lake in lakes]


_AGAIN = "asked again"


def suppress_request_subjects(step: ErasureStep) -> None:
    """Puts the requests' subjects on the suppression list, from where no power failure takes them once rows are gone."""
    workspace = step.propagation.workspace
    suppression_list.suppress_subjects(workspace, {request.request: request.subjects for request in step.propagation.waiting})
    durable_files.flush_run_output(workspace.settings)


def recompute_suppression_entries(workspace: Workspace) -> list[str]:
    """Brings the list to the canonical forms declared now. Returns the ids of the new requests. Safe to repeat.

    The entries of a request whose identifiers have left the vault stay as they are: they know the spelling that was erased.
    """
    if not delta_log.is_delta_table(workspace.suppression):
        return []
    changed = suppression_list.find_changed_forms(workspace)
    if not changed:
        return []
    records = workspace.records
    listed = suppression_list.list_suppressed_requests(workspace)
    open_ = [one for one in request_record.list_erasure_requests(records) if one.request in listed and not one.is_lifted]
    theirs = {one.request: _find_changed_identifiers(workspace, one, changed) for one in open_}
    known = {request: found for request, found in theirs.items() if found}
    suppression_list.add_suppression_entries(
        workspace,
        {request: requests.pseudonymise_subjects(workspace.lake, found) for request, found in known.items()},
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
    """Identifiers that were the person's only for a time are not requested again: the list keeps them out, and they may be another's now."""
    records = workspace.records
    said = f"in the forms {suppression_list.canonical_forms_text(workspace)}"
    own = [Identifier(one.domain, one.value) for one in theirs if not (one.since or one.until)]
    if not own or any(one.state == _AGAIN and one.note.startswith(said) for one in before.history):
        return None
    made = requests.receive_erasure_request(workspace.lake, own, said=f"{_AGAIN} for request {before.request}, {said}")
    requests.add_request_event(records, before.request, _AGAIN, f"{said}, by request {made.request}")
    return made.request
