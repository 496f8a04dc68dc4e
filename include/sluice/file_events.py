"""The events of the deliveries table: what a row says about a file. Flows, status and Airflow import them from here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

DELIVERED, GONE, EXISTING, IGNORED, CLEANED = "delivered", "vanished", "existing", "ignored", "cleaned"
REWRITTEN = "rewritten"
"""Sluice removed somebody's records from the file: its size and hash changed, but it is the same delivery as before."""
RETURNED = "returned"
"""The file was gone and is back with the latest known content of its name: it is the same delivery as before."""
UNOPENED = "unopened"
"""The file cannot be opened or examined: it is no delivery until it can."""

TAKEN = (DELIVERED, GONE)
"""The events that bronze flows take, and that get an outcome. The others only record facts about a file, which is not read for them."""
SAME_DELIVERY = (REWRITTEN, RETURNED)
"""The events after which a file is the same delivery as before."""
AWAY = (GONE, CLEANED)
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
