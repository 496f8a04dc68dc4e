"""Entries of the suppression list: those of the requests that are carried out, and those of before a kind's form was declared.

What was erased by one spelling may be in the lake by another. So for each request whose identifiers the vault still has, the list gets them in
the declared form, before anything is read; and a new request, of the same people, takes out what is there of them.
"""

from __future__ import annotations

from collections.abc import Collection

from sluice.erasure import receiving, requests, vault
from sluice.erasure.canary import PREFIX
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.steps.erasing import Erasing
from sluice.erasure.subjects.identifiers import PSEUDONYM, Identifier
from sluice.lake import log
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression_list

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
