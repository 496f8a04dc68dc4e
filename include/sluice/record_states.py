"""What the records of a lake say: events of files, states of deliveries, how a flow's part of a run ended. All rooms import them from here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

# The events of the deliveries table: what a row says about a file.

DELIVERED, VANISHED, EXISTING, IGNORED, CLEANED = "delivered", "vanished", "existing", "ignored", "cleaned"
REWRITTEN = "rewritten"
"""Sluice removed somebody's records from the file: its size and hash changed, but it is the same delivery as before."""
RETURNED = "returned"
"""The file was gone and is back with the latest known content of its name: it is the same delivery as before."""
UNOPENED = "unopened"
"""The file cannot be opened or examined: it is no delivery until it can."""

TAKEN = (DELIVERED, VANISHED)
"""The events that bronze flows take, and that get an outcome. The others only record facts about a file, which is not read for them."""
SAME_DELIVERY = (REWRITTEN, RETURNED)
"""The events after which a file is the same delivery as before."""
AWAY = (VANISHED, CLEANED)
"""The events after which a file does not exist."""


def carry_current_content(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> None:
    """Update each delivery, in place, with what these columns now say about its file, after it was rewritten or returned. rows: by number.

    A column that an older lake lacks is None.
    """
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        file = (row["source"], row["file"])
        if row["event"] in SAME_DELIVERY:
            last.get(file, {}).update({name: row.get(name) for name in columns})
        elif row["event"] not in AWAY:
            last[file] = row


# The states of deliveries: what became of each. VANISHED is a state, too.

INGESTED = "ingested"
"""Its records are in bronze, and those that do not fit in quarantine."""
QUARANTINED = "quarantined"
"""The whole file is in quarantine."""
MISSED = "missed"
"""Its file changed or went before it was read, or cannot be opened. Each run tries again."""
DISCARDED = "discarded"
ERASED = "erased"
LOST = "lost"
"""Its rows were in a lost commit (`sluice repair`). It counts as having no outcome."""

WAITING = "waiting"
"""It has no outcome yet. No ledger has this state: it is found when the ledger is read."""
SUPERSEDED = "superseded"
"""It was ingested, and another delivery of its file counts. This too is found when the ledger is read."""


READ = (INGESTED, QUARANTINED)
"""The states of deliveries that were read: every record of one is in bronze or in quarantine, or was left out."""


def is_settled(stored: str | None) -> bool:
    """Whether a delivery with this last outcome, or None, has one that counts: no flow takes it again by itself."""
    return stored not in (None, LOST)


def show_delivery_state(stored: str | None) -> str:
    """Returns how a delivery with this last outcome is shown; None: it has none. Never `superseded`, which depends on the file's other deliveries."""
    return str(stored) if is_settled(stored) else WAITING


REREAD_BY_REFRESH = (INGESTED, SUPERSEDED, QUARANTINED, MISSED)
"""The shown states of the deliveries that a refresh of bronze reads again, if their files are unchanged."""
LACKED_BY_REPLAY = (WAITING, QUARANTINED, MISSED)
"""The shown states of the deliveries that bronze lacks, which a replay of their interval tries to take."""

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


# The states of the run ledger: how a flow's part of a run ended.

DONE = "done"
FAILED = "failed"
