"""What follows from an erasure request's file: whether its rows have left, whether it is over, what it needs next. No Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from sluice.erasure.request_events import (
    APPROVED,
    CERTIFIED,
    FAILED,
    LIFTED,
    LOGICALLY,
    NOT_SCANNED,
    PHYSICALLY,
    RECEIVED,
    WITHDRAWN,
    State,
)
from sluice.erasure.request_record import ErasureRequest, NextAction, RequestEvent, SuppressedIdentifier
from sluice.runs.due_requests import DueRequests

NOW = datetime(2026, 11, 20, tzinfo=UTC)
HASH = "c0ffee00c0ffee00"


def made(state: State, *history: str, retained_for: int | None = None, note: str = "") -> ErasureRequest:
    """A request whose events happened one after the other, the last of them now. retained_for: days from now."""
    first = NOW - timedelta(days=len(history))
    events = (RequestEvent((first + timedelta(days=day)).isoformat(), what, note) for day, what in enumerate(history, start=1))
    until = None if retained_for is None else (NOW + timedelta(days=retained_for)).isoformat()
    return ErasureRequest(
        "0a1b",
        NOW.isoformat(),
        (NOW + timedelta(days=30)).isoformat(),
        state,
        "user_id",
        (HASH,),
        (SuppressedIdentifier("user_id", HASH),),
        tuple(events),
        until,
    )


@pytest.mark.parametrize(
    ("request_", "action"),
    [
        (made(RECEIVED, RECEIVED), NextAction.REMOVE_ROWS),
        (made(RECEIVED, RECEIVED, WITHDRAWN), None),
        (made(LOGICALLY, LOGICALLY, retained_for=1), NextAction.WAIT_FOR_RETENTION),
        (made(LOGICALLY, LOGICALLY, retained_for=0), NextAction.REMOVE_BYTES),
        (made(LOGICALLY, LOGICALLY), NextAction.REMOVE_BYTES),
        (made(LOGICALLY, LOGICALLY, LIFTED, retained_for=0), NextAction.REMOVE_BYTES),
        (made(PHYSICALLY, LOGICALLY, PHYSICALLY), NextAction.SCAN),
        (made(PHYSICALLY, LOGICALLY, PHYSICALLY, LIFTED), None),
        (made(FAILED, RECEIVED, FAILED), None),
        (made(FAILED, LOGICALLY, PHYSICALLY, FAILED), NextAction.SCAN),
        (made(FAILED, PHYSICALLY, FAILED), NextAction.SCAN),
        (made(FAILED, CERTIFIED, FAILED), NextAction.SCAN),
        (made(FAILED, LOGICALLY, FAILED, LIFTED), None),
        (made(CERTIFIED, LOGICALLY, CERTIFIED), None),
    ],
)
def test_each_request_has_what_it_needs_next(request_: ErasureRequest, action: NextAction | None) -> None:
    assert request_.next_action(NOW, approval_needed=False) is action


def test_whoever_must_be_approved_waits_for_it_and_for_nothing_else() -> None:
    fresh, approved = made(RECEIVED, RECEIVED), made(RECEIVED, RECEIVED, note=APPROVED)
    assert [one.next_action(NOW, approval_needed=True) for one in (fresh, approved)] == [
        NextAction.APPROVE,
        NextAction.REMOVE_ROWS,
    ]
    assert made(PHYSICALLY, PHYSICALLY).next_action(NOW, approval_needed=True) is NextAction.SCAN


def test_the_second_scan_is_once_and_never_of_what_was_lifted_or_passed_over() -> None:
    later = NOW + timedelta(days=30)
    proved = made(CERTIFIED, LOGICALLY, CERTIFIED)
    assert proved.second_scan_at == later and proved.identifiers_kept_until == later + timedelta(days=14)
    assert proved.next_action(later, approval_needed=False) is NextAction.SCAN_AGAIN
    for over in (LIFTED, NOT_SCANNED):
        ended = made(CERTIFIED, CERTIFIED, over)
        assert (ended.second_scan_at, ended.next_action(later, approval_needed=False)) == (None, None)


def test_rows_have_left_in_any_state_that_follows_and_not_where_they_are_to_leave_again() -> None:
    assert made(FAILED, PHYSICALLY, FAILED).rows_left_at == (NOW - timedelta(days=1)).isoformat()
    assert made(RECEIVED, LOGICALLY, RECEIVED).rows_left_at is None
    assert made(FAILED, RECEIVED, FAILED).rows_left_at is None


def test_what_is_open_must_be_told_of_and_what_is_over_needs_no_control() -> None:
    found = {
        "waits": made(RECEIVED, RECEIVED),
        "refused": made(FAILED, FAILED),
        "failed": made(FAILED, LOGICALLY, FAILED),
        "proved": made(CERTIFIED, LOGICALLY, CERTIFIED),
        "lifted": made(LOGICALLY, LOGICALLY, LIFTED),
        "withdrawn": made(RECEIVED, RECEIVED, WITHDRAWN),
    }
    assert {name for name, one in found.items() if one.is_open} == {"waits", "refused", "failed"}
    assert {name for name, one in found.items() if one.is_over} == {"refused", "proved", "lifted", "withdrawn"}
    assert {name for name, one in found.items() if one.is_lifted} == {"lifted"}, "nobody was erased by one that was withdrawn"
    assert (found["withdrawn"].shown_state, found["withdrawn"].state) == (WITHDRAWN, RECEIVED)


def test_each_action_is_listed_under_its_name_and_nothing_that_is_printed_shows_a_pseudonym() -> None:
    assert {action.value for action in NextAction} == set(DueRequests.__dataclass_fields__)
    assert HASH not in repr(made(RECEIVED, RECEIVED))


@pytest.mark.parametrize(
    "module", ["sluice.erasure.request_record", "sluice.runs.due_requests", "sluice.runs.quiet", "orchestration.erasure.ids"]
)
def test_what_each_process_of_airflow_loads_has_neither_the_vault_nor_declarations_nor_spark(module: str) -> None:
    loads = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert not {"sluice.erasure.vault", "sluice.declare", "pyspark"} & set(loaded)
