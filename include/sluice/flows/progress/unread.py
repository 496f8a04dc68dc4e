"""Whether a flow's stream would take anything, by its checkpoint and its inputs' logs: one that would not is not started. Without a JVM."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sluice.flows.progress import batches, positions
from sluice.flows.progress.positions import StreamChangesLost, StreamPosition
from sluice.lake import log

_MOST_VERSIONS = 200
"""A stream that is further behind is started, so that its position moves on.

So is one that is ahead of its table: Spark says that the stream cannot go on."""
_MOST_AGE = timedelta(days=10)
"""And one that is behind, and has taken nothing for so long: a third of what each log is kept for at least. Spark asks for the commits
of a stream's last batch once more when it goes on."""
_CHANGES_THE_TABLE = ("metaData", "protocol")


@dataclass(frozen=True)
class _Standing:
    """Where a stream goes on in each of its inputs, and when it finished its last batch, in seconds since 1970."""

    positions: Mapping[str, StreamPosition]
    finished: float

    def is_to_move_on(self, path: str, position: StreamPosition) -> bool:
        """Whether the stream must be started whatever has come: to move on in time, or to say that it cannot."""
        latest = log.latest_table_version(path)
        if latest is None or not -1 <= latest - position.version < _MOST_VERSIONS:
            return True
        return latest >= position.version and time.time() - self.finished > _MOST_AGE.total_seconds()


def has_unread_rows_of_sources(checkpoint: str, name: str, table_id: str, path: str, sources: Collection[str]) -> bool:
    """Whether a table of the delivery ledger, that a stream reads by this name, has rows of these sources that it has not taken."""
    standing = _read_standing(checkpoint, {name: table_id})
    position = standing.positions.get(name)
    try:
        if position is None or standing.is_to_move_on(path, position):
            return True
        changes = positions.list_changes_since(path, position)
        return any(row["source"] in sources for row in positions.read_appended_rows(path, changes, ["source"]))
    except StreamChangesLost:
        return True


def has_unread_changes(checkpoint: str, identities: Mapping[str, str], paths: Mapping[str, str]) -> bool:
    """Whether tables, whose change data feeds a stream reads, have changed rows, columns or properties that it has not taken.

    identities, paths: of the tables, by name.
    """
    standing = _read_standing(checkpoint, identities)
    taken = standing.positions
    try:
        return any(
            name not in taken or standing.is_to_move_on(path, taken[name]) or _has_table_changed(path, taken[name])
            for name, path in paths.items()
        )
    except StreamChangesLost:
        return True


def _read_standing(checkpoint: str, identities: Mapping[str, str]) -> _Standing:
    """No position of a stream that has a batch to finish, or in an input that it still reads as it was at first."""
    begun, done = (batches.list_batch_numbers(Path(checkpoint) / kind) for kind in ("offsets", "commits"))
    last = max(begun, default=None)
    if last is None or last not in done:
        return _Standing({}, 0)
    found = positions.read_stream_positions(checkpoint, last, identities)
    finished = (Path(checkpoint) / "commits" / str(last)).stat().st_mtime
    return _Standing({name: position for name, position in found.items() if not position.snapshot}, finished)


def _has_table_changed(path: str, position: StreamPosition) -> bool:
    if positions.list_changes_since(path, position, feed=True):
        return True
    latest = log.latest_table_version(path) or 0
    versions = range(position.version, latest + 1)
    return any(kind in _CHANGES_THE_TABLE for version in versions for kind, _ in positions.read_commit_actions(path, version))
