"""A source's landed and archived files as they lie there, for who looks into all of them: a part at a time, by the numbers of deliveries.

Landed files that somebody still writes, as far as can be told: no discovery would take them yet, and they were changed a moment ago.

To put another file in the place of one that its producer holds open would lose whatever is written to it afterwards.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from sluice.declare.ingest.source import Source
from sluice.file_events import DELIVERED
from sluice.ingest.deliveries import known, listing
from sluice.ingest.deliveries.known import LastSeenFile
from sluice.ingest.deliveries.listing import escape_file_name, read_file_size_and_time
from sluice.ingest.landing import rewriting
from sluice.ingest.landing.cleaning import ARCHIVE, archived_file_names, restore_archived_suffix
from sluice.ingest.reading.examination import Delivery
from sluice.lake.workspace import Workspace

_TOGETHER = 256_000_000
"""Files of about so many bytes on disk are looked at by one Spark job."""
_LAST = 10**12


def list_landed_files(workspace: Workspace, source: Source, only: Collection[str] | None) -> Iterator[Delivery]:
    """A source's files as they lie there and in the archive, by the numbers of their deliveries; what was never delivered is after all."""
    roots = [workspace.landing / source.path, workspace.landing / ARCHIVE / source.path]
    found = [(root, path) for root in roots if root.is_dir() for path in sorted(root.rglob("*")) if _is_source_file(source, path)]
    numbers = {
        row["file"]: row["delivery"]
        for row in known.read_current_deliveries(workspace.deliveries)
        if row["source"] == source.name and row["event"] == DELIVERED
    }
    for place, (root, listed) in enumerate(found):
        archived = root != roots[0]
        path = restore_archived_suffix(listed) if archived else listed
        file = escape_file_name(str(path.relative_to(root)))
        name = f"{ARCHIVE}/{file}" if archived else file
        if only is None or name in only:
            try:
                size, at = read_file_size_and_time(path)
            except FileNotFoundError:
                continue
            number = numbers.pop(file, _LAST + place)
            # What is archived is no delivery any more: the ledger knows it by no name.
            yield Delivery(number, source.name, name, DELIVERED, path, size, at, None)


def _is_source_file(source: Source, path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or path.name.endswith(rewriting.MARK):
        return False
    return any(fnmatch.fnmatch(name, source.pattern) for name in archived_file_names(path.name))


def batch_deliveries_by_size(deliveries: Iterator[Delivery]) -> Iterator[list[Delivery]]:
    """Files in parts that one job looks at."""
    part: list[Delivery] = []
    size = 0
    for one in deliveries:
        part.append(one)
        size += one.size or 0
        if size >= _TOGETHER:
            yield part
            part, size = [], 0
    if part:
        yield part


def describe_landed_file(delivery: Delivery) -> str:
    """What a file is called in an error: not by its name, which may be somebody's."""
    return f"delivery {delivery.number}" if delivery.number < _LAST else "one that was not delivered, or was archived"


class UnfinishedFiles:
    """What a source's folder shows of its files, at one look. seen: what the ledger knows of them."""

    def __init__(self, workspace: Workspace, source: Source, seen: Mapping[str, LastSeenFile]) -> None:
        there = (workspace.landing / source.path).is_dir()
        self._taken = {os.fspath(one.path) for one in (listing.list_ready_files(source, workspace.landing) if there else ())}
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
