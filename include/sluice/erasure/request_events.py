"""The states and events of an erasure request, how long after one what follows, and how its file is read.

Loads no Spark: Airflow's tasks read it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, TypeVar

from sluice.durable_files import load_kept_json
from sluice.locations import Location

Said = TypeVar("Said")

State = Literal["received", "logically erased", "physically erased", "certified", "failed"]
RECEIVED: State = "received"
LOGICALLY: State = "logically erased"
PHYSICALLY: State = "physically erased"
CERTIFIED: State = "certified"
FAILED: State = "failed"
"""A scan found something, or a step could not be done."""
DONE = (LOGICALLY, PHYSICALLY, CERTIFIED)
"""The states in which no query returns the person any more."""

SCANNED = "scanned"
"""The event, not a state, that a scan was made which does not change the state, such as an undecided one."""

NOT_SCANNED = "not scanned again"
"""The event, not a state, that the second scan was skipped; the identifiers are then kept no longer."""

APPROVED = "approved"
"""The note of the event that somebody approved the request, which allows it to be carried out where that is required."""

LIFTED = "lifted"
"""The event that the request's entries on the suppression list were lifted."""

WITHDRAWN = "withdrawn"
"""The event that the request was withdrawn before it was carried out."""

SCANNED_AGAIN_AFTER = timedelta(days=30)
"""How long after its certificate a request is scanned for again, to find data that came late or came back."""

KEPT_AFTER = SCANNED_AGAIN_AFTER + timedelta(days=14)
"""How long after its first certificate a request's identifiers are kept: the second scan may be late, or undecided at first."""


def name_erasure_flow(changed: str) -> str:
    """Returns the flow's name in commits and reports of an erasure. changed: the table or place that is changed, or the request."""
    return f"erasure_{changed}"


def load_kept_request(path: Location, build: Callable[[Any], Said]) -> Said:
    """The content of a request's file, as `build` makes it. Raises KeptFileDamaged."""
    remedy = "Put a copy of it back. Without one, move the file away and ask for the erasure again: sluice erase request"
    return load_kept_json(path, "a request to erase somebody", remedy, build)
