"""Receives and writes erasure requests: one JSON file each, with pseudonyms, a state and a history. Only the vault holds the identifiers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import get_args

from sluice.declare.assembly.graph import PSEUDONYM, Graph
from sluice.declare.pipeline import parse_duration
from sluice.durable_files import PRIVATE, write_json_durably
from sluice.erasure import request_events, vault
from sluice.erasure.request_events import WITHDRAWN, State
from sluice.erasure.request_record import ErasureRequest, RequestEvent, SuppressedIdentifier, read_erasure_request
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError, nearest_name_hint
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import locate
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import canonical_text, compute_pseudonym
from sluice.private_files import make_private_folder
from sluice.settings import Settings
from sluice.stores.opening import is_searchable_location

SEVERAL = "several"
"""The domain of a request made by identifiers of more than one domain."""


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
    hashed = pseudonymise_subjects(lake, asked)
    domains = {one.domain for one in asked}
    request = ErasureRequest(
        request=uuid.uuid4().hex[:12],
        received_at=format_request_time(received),
        due_at=format_request_time(due),
        state=request_events.RECEIVED,
        domain=domains.pop() if len(domains) == 1 else SEVERAL,
        pseudonyms=tuple(sorted({one.pseudonym for one in hashed})),
        history=(new_request_event(request_events.RECEIVED, said),),
    )
    # The vault first: a request whose identifiers are nowhere could not be carried out.
    expires = max(due, received + parse_duration(pipeline.retain)) + request_events.SCANNED_AGAIN_AFTER
    vault.store_vault_entry(records, request.request, asked, format_request_time(expires))
    return write_erasure_request(records, request)


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


def advance_request_state(
    records: PipelineRecords, request: str | ErasureRequest, state: State, note: str = "", *, physical_due_at: str | None = None
) -> ErasureRequest:
    """Puts a request into a state and records that in its history, unless its last event is the same. note: holds no personal value."""
    if state not in get_args(State):
        raise UsageError(f"There is no state '{state}' of a request.{nearest_name_hint(state, get_args(State))}")
    now = read_erasure_request(records, request if isinstance(request, str) else request.request)
    due = physical_due_at or now.physical_due_at
    last = now.history[-1] if now.history else None
    if now.state == state and last and (last.state, last.note) == (state, note) and due == now.physical_due_at:
        return now
    return write_erasure_request(
        records, replace(now, state=state, physical_due_at=due, history=(*now.history, new_request_event(state, note)))
    )


def add_request_event(records: PipelineRecords, request: str, what: str, said: str = "") -> ErasureRequest:
    """Adds an event that is not a state to a request's history, such as that its entries were lifted."""
    now = read_erasure_request(records, request)
    return write_erasure_request(records, replace(now, history=(*now.history, new_request_event(what, said))))


def mark_request_withdrawn(records: PipelineRecords, request: str) -> ErasureRequest:
    """Records that a request was withdrawn, and removes what identity resolution had found of its people."""
    now = read_erasure_request(records, request)
    return write_erasure_request(records, replace(now, subjects=(), history=(*now.history, new_request_event(WITHDRAWN, ""))))


def write_request_subjects(records: PipelineRecords, request: str, subjects: Iterable[SuppressedIdentifier]) -> ErasureRequest:
    """Stores everything known of a request's people, as identity resolution found it."""
    return write_erasure_request(
        records, replace(read_erasure_request(records, request), subjects=tuple(sorted(subjects, key=repr)))
    )


def write_request_canary(records: PipelineRecords, request: str, planted: str) -> ErasureRequest:
    """Stores which canary is erased with a request."""
    return write_erasure_request(records, replace(read_erasure_request(records, request), planted=planted))


def pseudonymise_subjects(lake: PipelineLake, identifiers: Iterable[Identifier]) -> list[SuppressedIdentifier]:
    """The identifiers as the suppression list knows them, with their times. Several spellings of one become one.

    Raises UsageError if the list's key is missing.
    """
    key = secrets.read_suppression_key(lake.settings, lake.records.suppression_list)
    hashed = ((one, compute_pseudonym(key, one.domain, one.value, lake.graph.canonical(one.domain))) for one in identifiers)
    return list(
        dict.fromkeys(
            SuppressedIdentifier(one.domain, made, one.since, one.until, one.known_until) for one, made in hashed if made
        )
    )


def new_request_event(state: str, note: str) -> RequestEvent:
    """A new event, dated now. note: holds no personal value."""
    return RequestEvent(format_request_time(datetime.now(UTC)), state, note)


def format_request_time(at: datetime) -> str:
    """Formats an instant as requests have it."""
    return at.isoformat(timespec="seconds")


def write_erasure_request(records: PipelineRecords, request: ErasureRequest) -> ErasureRequest:
    """Stores a request atomically."""
    folder = records.erasure_requests
    make_private_folder(locate(records.bookkeeping()))
    folder.mkdir(parents=True, exist_ok=True)
    write_json_durably(folder / f"{request.request}.json", asdict(request), PRIVATE, indent=1)
    return request
