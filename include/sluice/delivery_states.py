"""The states of deliveries: what became of each. All rooms import them from here."""

from __future__ import annotations

from sluice.file_events import CLEANED, EXISTING, GONE, IGNORED, RETURNED

INGESTED = "ingested"
"""Its records are in bronze, and those that do not fit in quarantine."""
QUARANTINED = "quarantined"
"""The whole file is in quarantine."""
MISSED = "missed"
"""Its file changed or went before it was read, or cannot be opened. Each run tries again."""
VANISHED = GONE
DISCARDED = "discarded"
ERASED = "erased"
LOST = "lost"
"""Its rows were in a lost commit (`sluice repair`). It counts as having no outcome."""

WAITING = "waiting"
"""It has no outcome yet. No ledger has this state: it is found when the ledger is read."""
SUPERSEDED = "superseded"
"""It was ingested, and another delivery of its file counts. This too is found when the ledger is read."""

SHOWN_STATES = (
    WAITING,
    INGESTED,
    SUPERSEDED,
    QUARANTINED,
    MISSED,
    VANISHED,
    DISCARDED,
    ERASED,
    EXISTING,
    IGNORED,
    CLEANED,
    RETURNED,
)
"""What the delivery ledger can show of an entry: the states of deliveries, and the events that are no delivery."""
