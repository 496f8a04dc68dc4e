"""An erasure request as its file has it, and all that follows from it: whether its rows have left, whether it is over, what it needs next.

Airflow's tasks load this module too. So it knows no vault, no declaration and no Spark, and what prints a request shows no pseudonym.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sluice.erasure.request_events import (
    APPROVED,
    CERTIFIED,
    DONE,
    FAILED,
    KEPT_AFTER,
    LIFTED,
    LOGICALLY,
    NOT_SCANNED,
    RECEIVED,
    SCANNED,
    SCANNED_AGAIN_AFTER,
    WITHDRAWN,
    State,
    load_kept_request,
)
from sluice.errors import UsageError, nearest_name_hint
from sluice.pipeline_records import PipelineRecords


class NextAction(StrEnum):
    """What a request needs next. A value is the name of the field of `sluice.runs.due_requests.DueRequests` that lists such requests."""

    APPROVE = "unapproved"
    REMOVE_ROWS = "erase"
    WAIT_FOR_RETENTION = "later"
    REMOVE_BYTES = "finish"
    SCAN = "scan"
    SCAN_AGAIN = "again"


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
    pseudonyms: tuple[str, ...] = field(repr=False)
    subjects: tuple[SuppressedIdentifier, ...] = field(default=(), repr=False)
    history: tuple[RequestEvent, ...] = ()
    physical_due_at: str | None = None
    planted: str | None = None

    @property
    def control(self) -> str:
        """The name of its canary; while there is none, its own name, which no canary has."""
        return self.planted or self.request

    @property
    def deadline(self) -> datetime:
        """When it must be certified."""
        return datetime.fromisoformat(self.due_at)

    @property
    def bytes_due_at(self) -> datetime | None:
        """When the remaining bytes may go; None while unknown."""
        return datetime.fromisoformat(self.physical_due_at) if self.physical_due_at else None

    @property
    def shown_state(self) -> str:
        """Its state as people read it: a withdrawn request keeps the state that it had."""
        return WITHDRAWN if self.is_withdrawn else self.state

    @property
    def rows_left_at(self) -> str | None:
        """When its rows had left every table, for the latest time if it was repeated; None before that."""
        found: str | None = None
        for event in self.history:
            found = None if event.state == RECEIVED else found or (event.at if event.state in DONE else None)
        return found

    @property
    def certified_at(self) -> tuple[datetime, ...]:
        """When each of its certificates that say PASS was issued."""
        return tuple(datetime.fromisoformat(event.at) for event in self.history if event.state == CERTIFIED)

    @property
    def undecided_scan_at(self) -> datetime | None:
        """When it was last scanned, if that was the last event and decided nothing."""
        last = self.history[-1] if self.history else None
        return datetime.fromisoformat(last.at) if last and last.state == SCANNED else None

    @property
    def lifted_at(self) -> str | None:
        """When its entries on the suppression list were lifted, or None. Its people may come back, and it is scanned no more."""
        return self._find_event_time(LIFTED)

    @property
    def withdrawn_at(self) -> str | None:
        """When it was withdrawn, or None. A withdrawn request erases nobody."""
        return self._find_event_time(WITHDRAWN)

    @property
    def is_lifted(self) -> bool:
        """Whether its people may come back by new data."""
        return self.lifted_at is not None

    @property
    def is_withdrawn(self) -> bool:
        """Whether it was taken back before it was carried out."""
        return self.withdrawn_at is not None

    @property
    def is_refused(self) -> bool:
        """Whether it could not be settled and so was never carried out. Unless rows ask again, its people must be asked for anew."""
        return self.state == FAILED and self.rows_left_at is None

    @property
    def is_open(self) -> bool:
        """Whether the erasure is not proved, and should be: a refused request is open, since its people are still there."""
        return not (self.state == CERTIFIED or self.is_lifted or self.is_withdrawn)

    @property
    def is_over(self) -> bool:
        """Whether the first proof is there, or will never be."""
        return not self.is_open or self.is_refused

    @property
    def is_approved(self) -> bool:
        """Whether somebody approved it, which matters if SLUICE_ERASURE_APPROVAL requires it."""
        return any(event.note == APPROVED for event in self.history)

    @property
    def is_waiting(self) -> bool:
        """Whether its rows are to leave the tables, perhaps after an approval."""
        return self.state == RECEIVED and not self.is_withdrawn

    @property
    def is_repeated(self) -> bool:
        """Whether it was carried out, and its rows may be back: a repair found that a table lost what was done to it."""
        return self.is_waiting and any(event.state in DONE for event in self.history)

    def may_rows_go(self, approval_needed: bool) -> bool:
        """Whether it waits for nothing but to be carried out. What was carried out before needs no second approval."""
        return self.is_waiting and (self.is_approved or self.is_repeated or not approval_needed)

    def must_bytes_stay(self, now: datetime) -> bool:
        """Whether its rows have left and its bytes may not be removed yet: earlier versions of tables are within their retention."""
        return self.state == LOGICALLY and self.bytes_due_at is not None and self.bytes_due_at > now

    def may_bytes_go(self, now: datetime) -> bool:
        """Whether its rows have left and its bytes may be removed."""
        return self.state == LOGICALLY and not self.must_bytes_stay(now)

    @property
    def second_scan_at(self) -> datetime | None:
        """From when on it is scanned for again. None if that is done, or if there will be none.

        An earlier certificate, which somebody requested by hand, is not the second scan.
        """
        made, last = self.certified_at, self.history[-1].state if self.history else None
        if self.state != CERTIFIED or self.is_lifted or self.is_withdrawn or last == NOT_SCANNED or not made:
            return None
        at = made[0] + SCANNED_AGAIN_AFTER
        return at if made[-1] < at else None

    @property
    def identifiers_kept_until(self) -> datetime | None:
        """Until when the second scan may need its identifiers. None if there will be none."""
        return None if self.second_scan_at is None else self.certified_at[0] + KEPT_AFTER

    def next_action(self, now: datetime, approval_needed: bool) -> NextAction | None:
        """What it needs next; None if it needs nothing, now or ever. Lifting ends the scans, and keeps no bytes of former versions."""
        if self.is_withdrawn or self.is_refused:
            return None
        if self.is_waiting:
            return NextAction.REMOVE_ROWS if self.may_rows_go(approval_needed) else NextAction.APPROVE
        if self.state == LOGICALLY:
            return NextAction.REMOVE_BYTES if self.may_bytes_go(now) else NextAction.WAIT_FOR_RETENTION
        if self.state == CERTIFIED:
            return NextAction.SCAN_AGAIN if self.second_scan_at is not None and self.second_scan_at <= now else None
        return None if self.is_lifted else NextAction.SCAN

    def _find_event_time(self, event: str) -> str | None:
        return next((one.at for one in self.history if one.state == event), None)


def list_erasure_requests(records: PipelineRecords) -> list[ErasureRequest]:
    """The pipeline's requests, oldest first."""
    found = [load_kept_request(path, _parse_stored_request) for path in records.erasure_requests.glob("*.json")]
    return sorted(found, key=lambda request: (request.received_at, request.request))


def list_request_ids(records: PipelineRecords) -> list[str]:
    """The ids of the pipeline's requests."""
    return sorted(path.stem for path in records.erasure_requests.glob("*.json"))


def read_erasure_request(records: PipelineRecords, request: str) -> ErasureRequest:
    """Returns a request as it is now. Raises UsageError with the nearest id."""
    path = records.erasure_requests / f"{request}.json"
    if not path.is_file():
        hint = nearest_name_hint(request, list_request_ids(records))
        raise UsageError(f"Pipeline '{records.pipeline}' has no erasure request '{request}'.{hint}")
    return load_kept_request(path, _parse_stored_request)


def list_waiting_requests(records: PipelineRecords, only: Collection[str] = ()) -> list[ErasureRequest]:
    """The requests whose people are still in tables, oldest first, without those that still need approval.

    only: the ids to include; empty means all.
    """
    every = [one for one in list_erasure_requests(records) if not only or one.request in only]
    return [one for one in every if one.may_rows_go(records.settings.erasure_approval)]


def list_repeated_requests(records: PipelineRecords) -> list[str]:
    """The ids of the requests that were carried out and whose rows may be back in tables. No flow may read those before they are gone.

    As long as the erasure ledger knows none that was repeated, no request is read: each layer of each run asks.
    """
    from sluice.erasure import erasure_ledger  # here, so that Airflow's tasks, which read requests, do not load delta-rs

    if not erasure_ledger.has_repeated_requests(records):
        return []
    return [one.request for one in list_erasure_requests(records) if one.is_repeated]


def list_unapproved_requests(records: PipelineRecords) -> list[ErasureRequest]:
    """The requests that nothing carries out before somebody approves them, oldest first."""
    approval = records.settings.erasure_approval
    return [one for one in list_erasure_requests(records) if one.is_waiting and not one.may_rows_go(approval)]


def _parse_stored_request(stored: dict[str, Any]) -> ErasureRequest:
    """Raises ValueError for a text that is no instant: the file is damaged, which is told now and not by whoever needs that instant."""
    found = ErasureRequest(**{
        **stored,
        "pseudonyms": tuple(stored["pseudonyms"]),
        "subjects": tuple(SuppressedIdentifier(**one) for one in stored["subjects"]),
        "history": tuple(RequestEvent(**one) for one in stored["history"]),
    })
    for at in (found.received_at, found.due_at, found.physical_due_at, *(event.at for event in found.history)):
        if at is not None:
            datetime.fromisoformat(at)
    return found
