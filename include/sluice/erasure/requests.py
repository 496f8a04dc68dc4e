"""Writes erasure requests: one JSON file each, with pseudonyms, a state and a history. Only the vault holds the identifiers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import get_args

from sluice.durable_files import PRIVATE, write_json_durably
from sluice.erasure.request_events import WITHDRAWN, State
from sluice.erasure.request_record import ErasureRequest, RequestEvent, SuppressedIdentifier, read_erasure_request
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError, nearest_name_hint
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import locate
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import compute_pseudonym
from sluice.private_files import make_private_folder

SEVERAL = "several"
"""The domain of a request made by identifiers of more than one domain."""


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
