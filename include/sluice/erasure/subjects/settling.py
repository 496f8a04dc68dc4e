"""Settling who the people of requests are, before anything of theirs is deleted: the links go, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sluice.erasure import canary, requests, vault
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.subjects import link_rows
from sluice.erasure.subjects.closure import AmbiguousIdentifier, canonicalise_identifiers, close_over_identifiers
from sluice.erasure.subjects.link_rows import LinkRows
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression_list


def settle_erasure_request(workspace: Workspace, request: ErasureRequest, rows: LinkRows | None = None) -> ErasureRequest:
    """Close over a request's identifiers, which the vault has, and keep what was found: in the vault, and as the request's subjects.

    To be called before anything is deleted: the links are deleted, too. So a request whose people are on the suppression list stays as it
    is; for any other what an attempt before has found is found anew, since more was delivered. rows: see `close`. Raises vault.Missing and Ambiguous.
    """
    records = workspace.records
    if _is_request_settled(
        workspace, request, suppression_list.list_suppressed_requests(workspace) if rows is None else rows.listed
    ):
        return request
    known = vault.read_vault_identifiers(records, request.request)
    made_up = [one for one in known if one.domain.startswith(canary.PREFIX)]
    asked = [one for one in vault.read_asked_identifiers(records, request.request) if one not in made_up]
    found = close_over_identifiers(workspace, asked, rows)
    vault.replace_vault_identifiers(records, request.request, [*found, *made_up])
    kinds = {one.domain for one in found}
    requests.write_request_subjects(
        records, request.request, requests.pseudonymise_subjects(records.settings, workspace.graph, found)
    )
    return requests.add_request_event(
        records, request.request, "closed", f"{len(found)} identifiers of {len(kinds)} kinds: {', '.join(sorted(kinds))}"
    )


def settle_waiting_requests(workspace: Workspace, only: Collection[str] = ()) -> list[ErasureRequest]:
    """The requests that wait, or only these of them, each settled. One that never can be is failed, with the reason in its history; the others go on.

    What somebody can set right, such as the mode of a file or a link's column, is raised: every request then waits as it is.
    """
    records = workspace.records
    found, waiting = [], requests.list_waiting_requests(records, only)
    with link_rows.open_link_rows(workspace) as rows:
        _preload_link_rows(workspace, rows, waiting)
        for request in waiting:
            try:
                found.append(settle_erasure_request(workspace, request, rows))
            except (AmbiguousIdentifier, vault.VaultEntryMissing) as error:
                requests.advance_request_state(records, request, requests.FAILED, str(error))
    return found


def _is_request_settled(workspace: Workspace, request: ErasureRequest, listed: Collection[str]) -> bool:
    there = vault.has_vault_entry(workspace.records, request.request)
    return bool(request.subjects) and (request.request in listed or not there)


def _preload_link_rows(workspace: Workspace, rows: LinkRows, waiting: Iterable[ErasureRequest]) -> None:
    """Ask the links at once for what closing over each request will ask them for: up to everybody, and down to all that was theirs."""
    records, links = workspace.records, workspace.graph.links
    open_ = [one.request for one in waiting if not _is_request_settled(workspace, one, rows.listed)]
    asked = (vault.read_asked_identifiers(records, one) for one in open_ if vault.has_vault_entry(records, one))
    people = fresh = {(one.domain, one.value) for of in asked for one in canonicalise_identifiers(workspace.graph, of)}
    while fresh:
        found = {
            (link.person[1], row.person)
            for link in links
            for row in rows.of_identifiers(link, _select_domain_values(fresh, link.identifier))
        }
        fresh = found - people
        people = people | fresh
    known = fresh = people
    while fresh:
        found = set()
        for link in links:
            linked = {row.identifier for row in rows.of_people(link, _select_domain_values(fresh, link.person))}
            rows.of_identifiers(link, linked)
            found |= {(link.identifier[1], identifier) for identifier in linked}
        fresh = found - known
        known = known | fresh
    for domain in workspace.graph.forms:
        rows.spellings(domain, {value for of, value in known if of == domain})


def _select_domain_values(known: Iterable[tuple[str, str]], column: tuple[str, str]) -> set[str]:
    """The values of the domain of a link's column."""
    return {value for domain, value in known if domain == column[1]}
