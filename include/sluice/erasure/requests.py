"""Requests to erase people: a JSON file each, with pseudonyms, a state and a history. The identifiers lie in the vault alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from sluice.declare.assembly.graph import Graph
from sluice.durable_files import PRIVATE, load_kept_request, write_json_durably
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError, nearest_name_hint
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import compute_pseudonym
from sluice.private_files import make_private_folder
from sluice.settings import Settings

State = Literal["received", "logically erased", "physically erased", "certified", "failed"]
RECEIVED: State = "received"
LOGICALLY: State = "logically erased"
PHYSICALLY: State = "physically erased"
CERTIFIED: State = "certified"
FAILED: State = "failed"
DONE = (LOGICALLY, PHYSICALLY, CERTIFIED)
"""The states in which no query returns the person."""

RESCANNED = timedelta(days=30)
"""After so long an erasure is looked at again, for what came late; until then the vault keeps the identifiers."""

KEPT_AFTER = RESCANNED + timedelta(days=14)
"""So long after its first certificate a request's identifiers are kept: the second look may be late, or decide nothing at first."""

NOT_SCANNED = "not scanned again"
"""The event, no state, by which the second look was passed over: its identifiers are kept no more."""

APPROVED = "approved"
"""The note of the event by which somebody approved of a request."""

LIFTED = "lifted"
"""The event by which its entries of the suppression list were lifted."""

WITHDRAWN = "withdrawn"
"""The event by which a request was taken back that was not carried out."""

SEVERAL = "several"
"""What a request's domain is that was asked by identifiers of more than one."""


@dataclass(frozen=True)
class SuppressedIdentifier:
    """An identifier of a request's people, by its pseudonym, and when it was theirs (ISO 8601; since included, until not).

    known_until: see `Identifier`.
    """

    domain: str
    pseudonym: str
    since: str | None = None
    until: str | None = None
    known_until: str | None = None


@dataclass(frozen=True)
class RequestEvent:
    """What happened to a request and when. note: counts and names of declarations, never a value."""

    at: str
    state: str
    note: str = ""


@dataclass(frozen=True)
class ErasureRequest:
    """An erasure request. domain, pseudonyms: what it was asked by. subjects: all that is known of its people, after closure.

    due_at: when it must be certified. physical_due_at: when the bytes that are still there may go; None while that is not known.
    planted: which canary is erased with it (see `control`), None while there is none.
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
        """The name of its canary; its own, which no canary has, while there is none."""
        return self.planted or self.request

    @property
    def done_at(self) -> str | None:
        """When its rows had left every table; None while they had not."""
        found = [event.at for event in self.history if event.state in DONE]
        return found[0] if found and self.state != RECEIVED else None

    @property
    def certified_at(self) -> str | None:
        """When it was proved first; None while it was not."""
        return self._at(CERTIFIED)

    @property
    def approved(self) -> bool:
        """Whether somebody approved of it, which matters where SLUICE_ERASURE_APPROVAL asks for it."""
        return any(event.note == APPROVED for event in self.history)

    @property
    def lifted_at(self) -> str | None:
        """When its entries of the suppression list were lifted, if they were."""
        return self._at(LIFTED)

    @property
    def withdrawn_at(self) -> str | None:
        """When it was taken back, if it was: nobody is erased by it."""
        return self._at(WITHDRAWN)

    def _at(self, event: str) -> str | None:
        return next((one.at for one in self.history if one.state == event), None)


def list_erasure_requests(records: PipelineRecords) -> list[ErasureRequest]:
    """The pipeline's requests, oldest first."""
    found = [_read_request_file(path) for path in _erasure_requests_folder(records).glob("*.json")]
    return sorted(found, key=lambda request: (request.received_at, request.request))


def read_erasure_request(records: PipelineRecords, request: str) -> ErasureRequest:
    """A request as it is now. Raises UsageError with the nearest id."""
    path = _erasure_requests_folder(records) / f"{request}.json"
    if not path.is_file():
        known = [path.stem for path in _erasure_requests_folder(records).glob("*.json")]
        raise UsageError(f"Pipeline '{records.pipeline}' has no erasure request '{request}'.{nearest_name_hint(request, known)}")
    return _read_request_file(path)


def list_waiting_requests(records: PipelineRecords, only: Collection[str] = ()) -> list[ErasureRequest]:
    """The requests whose people are still in tables, oldest first; without those that somebody has to approve of yet.

    only: ids of those that are asked for; none means all.
    """
    every = [one for one in list_erasure_requests(records) if not only or one.request in only]
    found = [one for one in every if one.state == RECEIVED and one.withdrawn_at is None]
    return [request for request in found if request.approved or not records.settings.erasure_approval]


def advance_request_state(
    records: PipelineRecords, request: str | ErasureRequest, state: State, note: str = "", *, physical_due_at: str | None = None
) -> ErasureRequest:
    """Put a request into a state and say so in its history; nothing where the history ends with the same. note: no value of anybody."""
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
    """Add to a request's history what is no state of it, such as that its entries were lifted."""
    now = read_erasure_request(records, request)
    return write_erasure_request(records, replace(now, history=(*now.history, new_request_event(what, said))))


def mark_request_withdrawn(records: PipelineRecords, request: str) -> ErasureRequest:
    """Note that a request was taken back; what closure had found of its people goes."""
    now = read_erasure_request(records, request)
    return write_erasure_request(records, replace(now, subjects=(), history=(*now.history, new_request_event(WITHDRAWN, ""))))


def write_request_subjects(records: PipelineRecords, request: str, subjects: Iterable[SuppressedIdentifier]) -> ErasureRequest:
    """Keep all that is known of a request's people, found by closure."""
    return write_erasure_request(
        records, replace(read_erasure_request(records, request), subjects=tuple(sorted(subjects, key=repr)))
    )


def write_request_canary(records: PipelineRecords, request: str, planted: str) -> ErasureRequest:
    """Keep which canary is erased with a request."""
    return write_erasure_request(records, replace(read_erasure_request(records, request), planted=planted))


def pseudonymise_subjects(settings: Settings, graph: Graph, identifiers: Iterable[Identifier]) -> list[SuppressedIdentifier]:
    """The identifiers as the suppression list knows them, with their times; spellings of one are one.

    Raises UsageError where the list's key is not there.
    """
    key = secrets.read_suppression_key(settings, graph.records(settings).bookkeeping("suppression"))
    hashed = ((one, compute_pseudonym(key, one.domain, one.value, graph.canonical(one.domain))) for one in identifiers)
    return list(
        dict.fromkeys(
            SuppressedIdentifier(one.domain, made, one.since, one.until, one.known_until) for one, made in hashed if made
        )
    )


def new_request_event(state: str, note: str) -> RequestEvent:
    """What happens now. note: no value of anybody."""
    return RequestEvent(format_request_time(datetime.now(UTC)), state, note)


def format_request_time(at: datetime) -> str:
    """An instant as requests have it."""
    return at.isoformat(timespec="seconds")


def _erasure_requests_folder(records: PipelineRecords) -> Path:
    return Path(records.bookkeeping("erasure_requests"))


def _read_request_file(path: Path) -> ErasureRequest:
    return load_kept_request(path, _parse_stored_request)


def _parse_stored_request(stored: dict[str, Any]) -> ErasureRequest:
    return ErasureRequest(**{
        **stored,
        "pseudonyms": tuple(stored["pseudonyms"]),
        "subjects": tuple(SuppressedIdentifier(**one) for one in stored["subjects"]),
        "history": tuple(RequestEvent(**one) for one in stored["history"]),
    })


def write_erasure_request(records: PipelineRecords, request: ErasureRequest) -> ErasureRequest:
    """Keep a request as it is now, whole or not at all."""
    folder = _erasure_requests_folder(records)
    make_private_folder(Path(records.bookkeeping()))
    folder.mkdir(parents=True, exist_ok=True)
    write_json_durably(folder / f"{request.request}.json", asdict(request), PRIVATE, indent=1)
    return request
