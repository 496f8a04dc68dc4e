"""Whether a flow's stream would take anything, by its checkpoint and its inputs' logs: one that would not is not started. Without a JVM."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from sluice.flows.progress import batches, positions
from sluice.flows.progress.positions import StreamChangesLost, StreamPosition
from sluice.lake import log

_MOST_VERSIONS = 200
"""A stream that is further behind is started, so that its position moves on.

So is one that is ahead of its table: Spark says that the stream cannot go on."""
_CHANGES_THE_TABLE = ("metaData", "protocol")


def has_unread_rows_of_sources(checkpoint: str, name: str, table_id: str, path: str, sources: Collection[str]) -> bool:
    """Whether a table of the delivery ledger, that a stream reads by this name, has rows of these sources that it has not taken."""
    position = _read_positions(checkpoint, {name: table_id}).get(name)
    try:
        if position is None or _is_out_of_sight(path, position):
            return True
        changes = positions.list_changes_since(path, position)
        return any(row["source"] in sources for row in positions.read_appended_rows(path, changes, ["source"]))
    except StreamChangesLost:
        return True


def has_unread_changes(checkpoint: str, identities: Mapping[str, str], paths: Mapping[str, str]) -> bool:
    """Whether tables, whose change data feeds a stream reads, have changed rows, columns or properties that it has not taken.

    identities, paths: of the tables, by name.
    """
    taken = _read_positions(checkpoint, identities)
    try:
        return any(name not in taken or _has_table_changed(path, taken[name]) for name, path in paths.items())
    except StreamChangesLost:
        return True


def _read_positions(checkpoint: str, identities: Mapping[str, str]) -> dict[str, StreamPosition]:
    """Where a stream goes on; nothing of one that has a batch to finish, or that still reads a table as it was at first."""
    begun, done = (batches.list_batch_numbers(Path(checkpoint) / kind) for kind in ("offsets", "commits"))
    last = max(begun, default=None)
    if last is None or last not in done:
        return {}
    found = positions.read_stream_positions(checkpoint, last, identities)
    return {name: position for name, position in found.items() if not position.snapshot}


def _is_out_of_sight(path: str, position: StreamPosition) -> bool:
    latest = log.latest_table_version(path)
    return latest is None or not -1 <= latest - position.version < _MOST_VERSIONS


def _has_table_changed(path: str, position: StreamPosition) -> bool:
    if _is_out_of_sight(path, position) or positions.list_changes_since(path, position, feed=True):
        return True
    latest = log.latest_table_version(path) or 0
    versions = range(position.version, latest + 1)
    return any(kind in _CHANGES_THE_TABLE for version in versions for kind, _ in positions.read_commit_actions(path, version))
