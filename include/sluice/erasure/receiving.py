"""Receives requests. A request holds pseudonyms; the identifiers themselves are checked and go into the vault."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from sluice.declare.assembly.graph import PSEUDONYM, Graph
from sluice.declare.pipeline import parse_duration
from sluice.erasure import request_events, requests, vault
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError, nearest_name_hint
from sluice.lake.pipeline_lake import PipelineLake
from sluice.privacy.pseudonyms import canonical_text
from sluice.settings import Settings
from sluice.stores.opening import is_searchable_location


def _refuse_unsearched_store(settings: Settings) -> None:
    if not is_searchable_location(settings.lake):
        raise UsageError(
            f"The lake {settings.lake} is on a store whose objects and former versions the scan cannot search, so that an erasure could not "
            f"be proved. No request was made. docs/stores.md lists the stores on which it can."
        )


def receive_erasure_request(
    lake: PipelineLake,
    identifiers: Iterable[str | Identifier],
    domain: str | None = None,
    received_at: datetime | None = None,
    said: str = "",
) -> ErasureRequest:
    """Stores a request to erase the people with these identifiers, which go into the vault. said: its origin, for the history.

    domain: that of identifiers given as texts; it may be left out if the pipeline has only one. Raises UsageError if there is no
    identifier, if a domain is unknown, or for a lake on a store that the scan cannot search.
    """
    _refuse_unsearched_store(lake.settings)
    asked = _validate_identifiers(lake.graph, identifiers, domain)
    pipeline, records = lake.graph.pipeline, lake.records
    received = (received_at or datetime.now(UTC)).astimezone(UTC)
    due = received + parse_duration(pipeline.erase_within)
    hashed = requests.pseudonymise_subjects(lake, asked)
    domains = {one.domain for one in asked}
    request = ErasureRequest(
        request=uuid.uuid4().hex[:12],
        received_at=requests.format_request_time(received),
        due_at=requests.format_request_time(due),
        state=request_events.RECEIVED,
        domain=domains.pop() if len(domains) == 1 else requests.SEVERAL,
        pseudonyms=tuple(sorted({one.pseudonym for one in hashed})),
        history=(requests.new_request_event(request_events.RECEIVED, said),),
    )
    # The vault first: a request whose identifiers are nowhere could not be carried out.
    expires = max(due, received + parse_duration(pipeline.retain)) + request_events.SCANNED_AGAIN_AFTER
    vault.store_vault_entry(records, request.request, asked, requests.format_request_time(expires))
    return requests.write_erasure_request(records, request)


def resolve_identifier_domain(graph: Graph, domain: str | None) -> str:
    """Returns the domain, or the only one if none is given. Raises UsageError with the nearest name."""
    domains = graph.domains()
    if not domains:
        raise UsageError(f"No source of pipeline '{graph.pipeline.name}' declares a subject; there is nobody to erase.")
    plain = [one for one in domains if one != PSEUDONYM]
    if domain is None and len(plain) == 1:
        return plain[0]
    if domain not in domains:
        unknown = (
            f"There is no kind of identifier '{domain}'."
            if domain
            else "Say with --identifier which kind of identifier is meant."
        )
        raise UsageError(f"{unknown}{nearest_name_hint(domain or '', domains)}")
    return domain


def _validate_identifiers(graph: Graph, identifiers: Iterable[str | Identifier], domain: str | None) -> list[Identifier]:
    texts = [one for one in identifiers]
    of_texts = resolve_identifier_domain(graph, domain) if any(isinstance(one, str) for one in texts) else ""
    found: dict[Identifier, None] = {}
    for given in texts:
        asked = Identifier(of_texts, given) if isinstance(given, str) else given
        value, domain_of = asked.value.strip(), resolve_identifier_domain(graph, asked.domain)
        if value and not canonical_text(value, graph.canonical(domain_of)):
            raise UsageError(
                f"An identifier of kind '{domain_of}' is empty in the form in which its kind is compared, "
                f"'{graph.canonical(domain_of)}'. Is it of another kind?"
            )
        if value:
            found[replace(asked, domain=domain_of, value=value)] = None
    if not found:
        raise UsageError("No identifier was given. Give them on standard input, or in a file named by --subject-file.")
    return list(found)
