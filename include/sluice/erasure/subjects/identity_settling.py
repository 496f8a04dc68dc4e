"""Settles which identifiers belong to the people of requests, before anything is deleted, and ends those that change hands later.

The deletion takes links too, so people are settled first. An entry of the suppression list with an open end holds until a link gives
the identifier to somebody else. Links are read from bronze before the records delivered with them are judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from sluice.erasure import canary, erasure_ledger, request_events, request_record, requests, vault
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.subjects import link_rows
from sluice.erasure.subjects.closure import AmbiguousIdentifier, canonicalise_identifiers, close_over_identifiers
from sluice.erasure.subjects.link_rows import LinkRows
from sluice.lake import commit_history, table_frames
from sluice.lake.workspace import Workspace
from sluice.printable import count_noun
from sluice.privacy import secrets, suppression, suppression_list
from sluice.privacy.pseudonyms import add_pseudonym_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.declare.erasure.identifiers import Link


def settle_erasure_request(workspace: Workspace, request: ErasureRequest, rows: LinkRows | None = None) -> ErasureRequest:
    """Resolves a request's identifiers from the vault, and stores the result: in the vault, and as the request's subjects.

    Call it before anything is deleted, since the links are deleted too. A request whose people are on the suppression list, or of which a
    step is done, therefore stays as it is; any other is resolved anew, since more may have been delivered. rows: see
    `close_over_identifiers`. Raises VaultEntryMissing and AmbiguousIdentifier.
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
    requests.write_request_subjects(records, request.request, requests.pseudonymise_subjects(workspace.lake, found))
    return requests.add_request_event(
        records,
        request.request,
        "closed",
        f"{count_noun(len(found), 'identifier')} of {count_noun(len(kinds), 'kind')}: {', '.join(sorted(kinds))}",
    )


def settle_waiting_requests(workspace: Workspace, only: Collection[str] = ()) -> list[ErasureRequest]:
    """Settles the waiting requests, or only the given ones, and returns them. One that can never be settled fails, the others go on.

    The reason of a failed request is in its history. An error that somebody can correct, such as the mode of a file or a link's column,
    is raised instead, and every request waits unchanged.
    """
    records = workspace.records
    found, waiting = [], request_record.list_waiting_requests(records, only)
    with link_rows.open_link_rows(workspace) as rows:
        _preload_link_rows(workspace, rows, waiting)
        for request in waiting:
            try:
                found.append(settle_erasure_request(workspace, request, rows))
            except (AmbiguousIdentifier, vault.VaultEntryMissing) as error:
                requests.advance_request_state(records, request, request_events.FAILED, str(error))
    return found


def _is_request_settled(workspace: Workspace, request: ErasureRequest, listed: Collection[str]) -> bool:
    """A list that lost its last commit does not know a request that is begun: the ledger does."""
    records, name = workspace.records, request.request
    return bool(request.subjects) and (
        name in listed or not vault.has_vault_entry(records, name) or name in erasure_ledger.list_begun_requests(records)
    )


def _preload_link_rows(workspace: Workspace, rows: LinkRows, waiting: Iterable[ErasureRequest]) -> None:
    """Looks up in the links at once what resolving each request will need: up to all owners, and down to all that was theirs."""
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
    """The values in the domain of a link's column."""
    return {value for domain, value in known if domain == column[1]}


def _find_handover_sources(workspace: Workspace) -> frozenset[str]:
    """The sources of links whose identifiers change hands."""
    graph = workspace.graph
    made = [
        graph.tables[name]
        for link in graph.links
        if link.since
        for name in (link.table, *graph.kept_for(link.table))
        if name in graph.tables
    ]
    return frozenset(one.name for table in made for one in graph.feeding(table.reads[0]))


def put_handover_sources_first(workspace: Workspace, levels: list[list[Any]]) -> list[list[Any]]:
    """Puts the links' sources first in the lowest layer, if an identifier on the list may get a new owner."""
    early = _find_handover_sources(workspace)
    if not early or suppression_list.is_suppression_list_empty(workspace):
        return levels
    parts = [[item for item in level if (item.name in early) is wanted] for wanted in (True, False) for level in levels]
    return [part for part in parts if part]


def end_handed_over_entries(workspace: Workspace, flows: Sequence[str]) -> int:
    """Ends entries whose identifiers have new owners. flows: those that have just run. Returns how many were ended."""
    if not _find_handover_sources(workspace) & set(flows) or suppression_list.is_suppression_list_empty(workspace):
        return 0
    changing = [link for link in workspace.graph.links if link.since]
    suppression_list.create_suppression_list(workspace)
    workspace.mark_next_commits("suppression")
    with link_rows.open_link_rows(workspace) as rows:
        return sum(_end_entries_of_link(workspace, link, rows) for link in changing)


def _end_entries_of_link(workspace: Workspace, link: Link, rows: link_rows.LinkRows) -> int:
    frame = rows.frame(link)
    path = workspace.suppression
    if frame is None:
        return 0
    open_ones = table_frames.read_table(workspace.session, path).where(
        (F.col("domain") == link.identifier[1]) & F.expr("valid_to IS NULL AND lifted_at IS NULL AND known_until IS NOT NULL")
    )
    if open_ones.isEmpty():
        return 0
    key = secrets.read_suppression_key(workspace.settings, path)
    others = suppression.exclude_suppressed_rows(workspace, frame.where("since IS NOT NULL"), F.col("person"), link.person[1])
    # Includes the identifier as written: entries from before a form was declared are of the text.
    written = [others.select(F.col(name).alias("identifier"), "since") for name in ("identifier", "identifier_as_is")]
    every = written[0].unionByName(written[1]).distinct()
    hashed = add_pseudonym_column(every, key, link.identifier[1], F.col("identifier"), "pseudonym").select("pseudonym", "since")
    # Erased people have no links any more, so anyone in a link got the identifier before or after them.
    found = hashed.join(F.broadcast(open_ones.select("pseudonym", "known_until").distinct()), "pseudonym").where(
        "since > known_until"
    )
    ends = found.groupBy("pseudonym", "known_until").agg(F.min("since").alias("ended_at")).persist()
    try:
        return _write_entry_ends(workspace, path, link.identifier[1], ends)
    finally:
        ends.unpersist()


def _write_entry_ends(workspace: Workspace, path: str, domain: str, ends: DataFrame) -> int:
    if ends.isEmpty():
        return 0
    same = "t.domain = s.domain AND t.pseudonym = s.pseudonym AND t.known_until = s.known_until AND t.valid_to IS NULL"
    of_domain = ends.withColumn("domain", F.lit(domain))
    merging = DeltaTable.forPath(workspace.session, path).alias("t").merge(of_domain.alias("s"), same)
    merging.whenMatchedUpdate(set={"valid_to": "s.ended_at"}).execute()
    return int(commit_history.read_commit_history(path, 1)[0]["metrics"].get("numTargetRowsUpdated", 0))
