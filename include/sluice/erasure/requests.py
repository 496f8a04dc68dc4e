"""Erasure requests: one JSON file each, with pseudonyms, a state and a history. Only the vault holds the identifiers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, get_args

from sluice.declare.assembly.graph import Graph
from sluice.durable_files import PRIVATE, write_json_durably
from sluice.erasure.request_events import (
    APPROVED,
    CERTIFIED,
    DONE,
    LIFTED,
    RECEIVED,
    WITHDRAWN,
    State,
    load_kept_request,
)
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError, nearest_name_hint
from sluice.locations import Location, locate
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import compute_pseudonym
from sluice.private_files import make_private_folder
from sluice.settings import Settings

SEVERAL = "several"
"""The domain of a request made by identifiers of more than one domain."""


@dataclass(frozen=True)
class SuppressedIdentifier:
    """An identifier of a request's people as a pseudonym, and when it was theirs (ISO 8601; since is included, until is not).

    known_until: see `Identifier`.
    """

    domain: str
    pseudonym: str
    since: str | None = None
    until: str | None = None
    known_until: str | None = None


@dataclass(frozen=True)
class RequestEvent:
    """An event in a request's history. note: counts and names of declarations, never a value."""

    at: str
    state: str
    note: str = ""


@dataclass(frozen=True)
class ErasureRequest:
    """An erasure request. domain, pseudonyms: what was asked for. subjects: all that identity resolution found of its people.

    due_at: when it must be certified. physical_due_at: when the remaining bytes may go; None while unknown. planted: the canary that is
    erased with it (see `control`), or None.
    """

    request: str
    received_at: str
    due_at: str
    state: State
    domain: str
    pseudonyms: tuple[str, ...]
    subjects: tuple[SuppressedIdentifier, ...] = ()
    history: tuple[RequestEvent, ...] = ()
    physical_due_at: str | None = None
    planted: str | None = None

    @property
    def control(self) -> str:
        """The name of its canary; while there is none, its own name, which no canary has."""
        return self.planted or self.request

    @property
    def done_at(self) -> str | None:
        """When its rows had left every table; None before that."""
        found = [event.at for event in self.history if event.state in DONE]
        return found[0] if found and self.state != RECEIVED else None

    @property
    def certified_at(self) -> str | None:
        """When it was first proved; None before that."""
        return self._at(CERTIFIED)

    @property
    def approved(self) -> bool:
        """Whether somebody approved it, which matters if SLUICE_ERASURE_APPROVAL requires it."""
        return any(event.note == APPROVED for event in self.history)

    @property
    def waits(self) -> bool:
        """Whether it is to be carried out, perhaps after an approval."""
        return self.state == RECEIVED and self.withdrawn_at is None

    @property
    def lifted_at(self) -> str | None:
        """When its entries on the suppression list were lifted, or None."""
        return self._at(LIFTED)

    @property
    def withdrawn_at(self) -> str | None:
        """When it was withdrawn, or None. A withdrawn request erases nobody."""
        return self._at(WITHDRAWN)

    def _at(self, event: str) -> str | None:
        return next((one.at for one in self.history if one.state == event), None)


def list_erasure_requests(records: PipelineRecords) -> list[ErasureRequest]:
    """The pipeline's requests, oldest first."""
    found = [_read_request_file(path) for path in records.erasure_requests.glob("*.json")]
    return sorted(found, key=lambda request: (request.received_at, request.request))


def read_erasure_request(records: PipelineRecords, request: str) -> ErasureRequest:
    """Returns a request as it is now. Raises UsageError with the nearest id."""
    path = records.erasure_requests / f"{request}.json"
    if not path.is_file():
        known = [path.stem for path in records.erasure_requests.glob("*.json")]
        raise UsageError(f"Pipeline '{records.pipeline}' has no erasure request '{request}'.{nearest_name_hint(request, known)}")
    return _read_request_file(path)


def list_waiting_requests(records: PipelineRecords, only: Collection[str] = ()) -> list[ErasureRequest]:
    """The requests whose people are still in tables, oldest first, without those that still need approval.

    only: the ids to include; empty means all.
    """
    every = [one for one in list_erasure_requests(records) if not only or one.request in only]
    return [one for one in every if one.waits and (one.approved or not records.settings.erasure_approval)]


def list_unapproved_requests(records: PipelineRecords) -> list[ErasureRequest]:
    """The requests that nothing carries out before somebody approves them, oldest first."""
    return [one for one in list_erasure_requests(records) if one.waits and not one.approved and records.settings.erasure_approval]


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


def pseudonymise_subjects(settings: Settings, graph: Graph, identifiers: Iterable[Identifier]) -> list[SuppressedIdentifier]:
    """The identifiers as the suppression list knows them, with their times. Several spellings of one become one.

    Raises UsageError if the list's key is missing.
    """
    key = secrets.read_suppression_key(settings, graph.records(settings).suppression_list)
    hashed = ((one, compute_pseudonym(key, one.domain, one.value, graph.canonical(one.domain))) for one in identifiers)
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


def _read_request_file(path: Location) -> ErasureRequest:
    return load_kept_request(path, _parse_stored_request)


def _parse_stored_request(stored: dict[str, Any]) -> ErasureRequest:
    return ErasureRequest(**{
        **stored,
        "pseudonyms": tuple(stored["pseudonyms"]),
        "subjects": tuple(SuppressedIdentifier(**one) for one in stored["subjects"]),
        "history": tuple(RequestEvent(**one) for one in stored["history"]),
    })


def write_erasure_request(records: PipelineRecords, request: ErasureRequest) -> ErasureRequest:
    """Stores a request atomically."""
    folder = records.erasure_requests
    make_private_folder(locate(records.bookkeeping()))
    folder.mkdir(parents=True, exist_ok=True)
    write_json_durably(folder / f"{request.request}.json", asdict(request), PRIVATE, indent=1)
    return request
