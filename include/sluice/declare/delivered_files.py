"""Lets a maker of deliveries put a file into a landing folder, on a disk or on a store."""

from __future__ import annotations

import os
from datetime import datetime

from sluice.locations import Location, is_on_disk


def deliver_file(target: Location, content: bytes, at: datetime | None = None) -> None:
    """Writes a file so that nobody sees half of it, and replaces an existing one.

    at: its modification time. A store sets the time of an object itself.
    """
    if not is_on_disk(target):
        target.write_bytes(content)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")  # a name that no source takes
    partial.write_bytes(content)
    if at is not None:
        os.utime(partial, (at.timestamp(), at.timestamp()))
    partial.replace(target)
