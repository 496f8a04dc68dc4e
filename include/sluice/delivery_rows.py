"""The columns of the tables `deliveries` and `outcomes`, each with its meaning: who writes, reads or shows them goes by these classes."""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypedDict

RECORDED: Final = "recorded_at"
"""The column that orders outcomes without an entry."""


class DeliveryRow(TypedDict, total=False):
    """A row of the deliveries table: what a discovery says about a file. A column may be NULL if its type allows None."""

    delivery: int
    """An increasing number."""
    source: str
    file: str
    """Its name relative to the source's folder."""
    event: str
    """See `sluice.record_states`: delivered, or vanished (the file is gone). The others only record what is known about a file: existing
    (there before the source's first discovery), ignored (changed, though the source allows no overwrites), cleaned (archived or deleted by
    Sluice), rewritten (by an erasure), returned (it was gone and came back unchanged), unopened (it cannot be opened; the reason says why)."""
    size: int | None
    modified_at: datetime | None
    sha256: str | None
    discovered_at: datetime | None
    run: str | None
    reason: str | None
    """An older lake lacks this and the next two columns until its next discovery."""
    device: int | None
    """The device of the source's folder when a file was delivered."""
    etag: str | None
    """Of an object on a store."""


class OutcomeRow(TypedDict, total=False):
    """A row of the outcomes table: what became of a delivery. read = rows + quarantined + suppressed + discarded."""

    delivery: int
    source: str
    file: str
    state: str
    """See `sluice.record_states`."""
    rows: int | None
    rescued: int | None
    quarantined: int | None
    suppressed: int | None
    reason: str | None
    header: str | None
    modified_at: datetime | None
    sha256: str | None
    batch: int | None
    run: str | None
    recorded_at: datetime | None
    read: int | None
    """The records that the file has."""
    discarded: int | None
    held_back: str | None
    """JSON of the fields, with their types, that did not become columns and that this delivery was the first of its source to have. An older
    lake lacks this and the next column until something is appended to it."""
    entry: int | None
    """See `sluice.entries`."""


FILE_STATE = ("size", "modified_at", "sha256", "etag")
"""The columns of deliveries that change if an erasure rewrites the file; on a disk, a rewritten file keeps its time."""
REPEATED_IN_OUTCOMES = ("delivery", "source", "file", "modified_at", "sha256")
"""The columns of a delivery that its outcome repeats, so that one restores the other."""
