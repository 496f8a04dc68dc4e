"""Landed files that somebody still writes, as far as can be told: no discovery would take them yet, and they were changed a moment ago.

To put another file in the place of one that its producer holds open would lose whatever is written to it afterwards.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from sluice.declare.ingest.source import Source
from sluice.ingest.deliveries import listing
from sluice.ingest.deliveries.known import Seen
from sluice.ingest.reading.delivery import Delivery
from sluice.lake.workspace import Workspace


class Unfinished:
    """What a source's folder shows of its files, at one look. seen: what the ledger knows of them."""

    def __init__(self, workspace: Workspace, source: Source, seen: Mapping[str, Seen]) -> None:
        there = (workspace.landing / source.path).is_dir()
        self._taken = {os.fspath(one.path) for one in (listing.listing(source, workspace.landing) if there else ())}
        self._seen, self._now = seen, time.time()

    def is_known(self, delivery: Delivery) -> bool:
        """Whether the ledger knows a file as it lies there."""
        last = self._seen.get(delivery.file)
        if last is None or delivery.modified_at is None:
            return False
        at = int(delivery.modified_at.timestamp() * 1e6 + 0.5)
        return (last.size, last.modified) == (delivery.size, at)

    def has(self, delivery: Delivery, archived: bool) -> bool:
        """Whether a file may still be written. An archive is written by Sluice alone; what was delivered as it is was finished."""
        if archived or delivery.modified_at is None or self.is_known(delivery) or os.fspath(delivery.path) in self._taken:
            return False
        return self._now - delivery.modified_at.timestamp() < listing.AT_REST
