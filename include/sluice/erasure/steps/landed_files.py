"""Lists a source's landed and archived files in batches, by delivery number, for steps that look into all of them.

Also recognises landed files that somebody may still be writing: discovery would not take them yet, and they changed a moment ago.
Replacing a file that its producer holds open would lose whatever is written to it afterwards.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Collection, Iterator

from sluice.declare.ingest.source import Source
from sluice.ingest.deliveries import known_files, listing
from sluice.ingest.deliveries.landed_file import escape_file_name, find_known_name, read_file_state
from sluice.ingest.deliveries.seen_files import SeenFiles
from sluice.ingest.landing import rewriting
from sluice.ingest.landing.cleaning import ARCHIVE, archived_file_names, restore_archived_suffix
from sluice.ingest.reading.examination import Delivery
from sluice.lake.workspace import Workspace
from sluice.locations import Location, is_on_disk
from sluice.record_states import DELIVERED

_TOGETHER = 256_000_000
"""Files of about this many bytes on disk share one Spark job."""
_LAST = 10**12


def list_landed_files(workspace: Workspace, source: Source, only: Collection[str] | None) -> Iterator[Delivery]:
    """A source's files, landed and archived, by delivery number; files that were never delivered come last."""
    roots = [workspace.landing / source.path, workspace.landing / ARCHIVE / source.path]
    found = [(root, path) for root in roots if root.is_dir() for path in sorted(root.rglob("*")) if _is_source_file(source, path)]
    current = [row for row in known_files.read_current_deliveries(workspace.deliveries) if row["source"] == source.name]
    numbers = {row["file"]: row["delivery"] for row in current if row["event"] == DELIVERED}
    names = {row["file"] for row in current}
    for position, (root, listed) in enumerate(found):
        archived = root != roots[0]
        path = restore_archived_suffix(listed) if archived else listed
        relative = str(path.relative_to(root))
        file = find_known_name(escape_file_name(relative) if is_on_disk(path) else relative, str(path), names)
        name = f"{ARCHIVE}/{file}" if archived else file
        if only is None or name in only:
            try:
                state = read_file_state(path)
            except FileNotFoundError:
                continue
            number = numbers.pop(file, _LAST + position)
            # The ledger does not know archived files by name, since they are no deliveries any more.
            yield Delivery(number, source.name, name, DELIVERED, path, state.size, state.modified_at, None, state.etag)


def _is_source_file(source: Source, path: Location) -> bool:
    if path.is_symlink() or not path.is_file() or path.name.endswith(rewriting.MARK):
        return False
    return any(fnmatch.fnmatch(name, source.pattern) for name in archived_file_names(path.name))


def batch_deliveries_by_size(deliveries: Iterator[Delivery]) -> Iterator[list[Delivery]]:
    """Groups files into batches, one per job."""
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
    """Describes a file in an error without its name, which may identify somebody."""
    return f"delivery {delivery.number}" if delivery.number < _LAST else "one that was not delivered, or was archived"


class UnfinishedFiles:
    """What one look at a source's folder shows of its files. seen: what the ledger knows of them."""

    def __init__(self, workspace: Workspace, source: Source, seen: SeenFiles) -> None:
        there = (workspace.landing / source.path).is_dir()
        self._taken = {one.path for one in (listing.list_ready_files(source, workspace.landing) if there else ())}
        self._seen, self._now = seen, time.time()

    def is_known(self, delivery: Delivery) -> bool:
        """Whether the ledger knows a file in its current state."""
        last = self._seen.get(delivery.file)
        if last is None or delivery.modified_at is None:
            return False
        return last.state.is_same(delivery.state)

    def has(self, delivery: Delivery, archived: bool) -> bool:
        """Whether a file may still be being written. Only Sluice writes archives, and a file delivered in its current state was complete."""
        if archived or delivery.modified_at is None or self.is_known(delivery) or str(delivery.path) in self._taken:
            return False
        return self._now - delivery.modified_at.timestamp() < listing.AT_REST
