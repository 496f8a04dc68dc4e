"""A source's landed and archived files as they lie there, for who looks into all of them: a part at a time, by the numbers of deliveries."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator
from pathlib import Path

from sluice.declare.ingest.source import Source
from sluice.ingest.deliveries import known
from sluice.ingest.deliveries.discovery import DELIVERED, modified
from sluice.ingest.deliveries.listing import as_text
from sluice.ingest.landing import rewriting
from sluice.ingest.landing.cleaning import ARCHIVE, names_of, readable
from sluice.ingest.reading.delivery import Delivery
from sluice.lake.workspace import Workspace

_TOGETHER = 256_000_000
"""Files of about so many bytes on disk are looked at by one Spark job."""
_LAST = 10**12


def of(workspace: Workspace, source: Source, only: Collection[str] | None) -> Iterator[Delivery]:
    """A source's files as they lie there and in the archive, by the numbers of their deliveries; what was never delivered is after all."""
    roots = [workspace.landing / source.path, workspace.landing / ARCHIVE / source.path]
    found = [(root, path) for root in roots if root.is_dir() for path in sorted(root.rglob("*")) if _is_ours(source, path)]
    numbers = {
        row["file"]: row["delivery"]
        for row in known.deliveries_now(workspace.deliveries)
        if row["source"] == source.name and row["event"] == DELIVERED
    }
    for place, (root, listed) in enumerate(found):
        archived = root != roots[0]
        path = readable(listed) if archived else listed
        file = as_text(str(path.relative_to(root)))
        name = f"{ARCHIVE}/{file}" if archived else file
        if only is None or name in only:
            try:
                size, at = modified(path)
            except FileNotFoundError:
                continue
            number = numbers.pop(file, _LAST + place)
            # What is archived is no delivery any more: the ledger knows it by no name.
            yield Delivery(number, source.name, name, DELIVERED, path, size, at, None)


def _is_ours(source: Source, path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or path.name.endswith(rewriting.MARK):
        return False
    return any(fnmatch.fnmatch(name, source.pattern) for name in names_of(path.name))


def together(deliveries: Iterator[Delivery]) -> Iterator[list[Delivery]]:
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


def called(delivery: Delivery) -> str:
    """What a file is called in an error: not by its name, which may be somebody's."""
    return f"delivery {delivery.number}" if delivery.number < _LAST else "one that was not delivered, or was archived"
