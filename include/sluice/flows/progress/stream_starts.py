"""At which version of a table a new stream over it begins, so that it need not read the table as it is.

Without a version, Delta's source begins with the whole table, which Spark works out of the log in several jobs, and once more when the
stream goes on after its first batch. With one, the source reads the commits from there on. Read without a JVM.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path

from sluice.delta_log import LOG
from sluice.flows.progress import positions
from sluice.flows.progress.positions import StreamChangesLost, StreamPosition
from sluice.lake import log

_MOST_COMMITS = 200
"""Of more commits, reading each costs more than the table as it is."""
_MOST_AGE = timedelta(days=10)
"""An older commit may be gone, with the log's retention, before the stream has finished its second batch: until then Spark asks for it."""
_CHANGES_THE_TABLE = ("metaData", "protocol")


def find_starts_with_all_rows(tables: Mapping[str, str]) -> dict[str, int]:
    """By name, the version from which commits tell all rows of a table; those whose commits do not are left out. tables: their paths."""
    return _leave_out_unknown((name, _find_start_with_all_rows(path)) for name, path in tables.items())


def find_starts_at_latest_change(tables: Mapping[str, str], feed: bool) -> dict[str, int]:
    """By name, the last version that changed rows of a table, for a flow whose first batch takes everything, whatever the stream says.

    Tables of which none is found are left out. tables: their paths. feed: the change data feed is streamed.
    """
    return _leave_out_unknown((name, _find_latest_change(path, feed)) for name, path in tables.items())


def _find_start_with_all_rows(path: str) -> int | None:
    latest = log.latest_table_version(path)
    if latest is None or latest >= _MOST_COMMITS:
        return None
    try:
        kinds = {kind for version in range(latest + 1) for kind, _ in positions.read_commit_actions(path, version)}
    except StreamChangesLost:
        return None
    return None if "remove" in kinds or _is_old(path, 0) else 0


def _find_latest_change(path: str, feed: bool) -> int | None:
    latest = log.latest_table_version(path)
    if latest is None:
        return None
    try:
        for version in range(latest, max(latest - _MOST_COMMITS, -1), -1):
            change = positions.read_version_change(path, version, StreamPosition(version), feed)
            if change is not None:
                there = all((Path(path) / file).exists() for file in change.files)
                return version if there and not _is_old(path, version) else None
            # The source compares the columns at its start with those of now.
            if any(kind in _CHANGES_THE_TABLE for kind, _ in positions.read_commit_actions(path, version)):
                return None
    except StreamChangesLost:
        return None
    return None


def _is_old(path: str, version: int) -> bool:
    commit = Path(path) / LOG / f"{version:020d}.json"
    return time.time() - commit.stat().st_mtime > _MOST_AGE.total_seconds()


def _leave_out_unknown(found: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    return {name: version for name, version in found if version is not None}
