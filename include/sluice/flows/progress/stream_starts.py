"""Decides whether a flow's stream is started, whether a stream with state can resume, and at which version of a table a new one begins.

A stream that would take nothing, by its checkpoint and its inputs' logs, is not started. Without a starting version, Delta's source
begins with the whole table. Spark works that out of the log in several jobs, and again when the stream resumes after its first batch.
With a version, the source reads only the commits from there on.

A stream with state is never rebased by itself: its new state would not match its table. Needs no JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from sluice import delta_log
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.windowed import HEARTBEATS, Windowed
from sluice.delta_log import LOG
from sluice.errors import SluiceError
from sluice.flows.progress import batches, checkpoints, positions
from sluice.flows.progress.flow_memory import read_flow_memory
from sluice.flows.progress.positions import StreamChangesLost, StreamPosition
from sluice.lake import commit_history, log
from sluice.locations import locate
from sluice.pipeline_stages import RESTORE
from sluice.step_times import LOOKING, measure_step

_MOST_COMMITS = 200
"""With more commits than this, reading each of them costs more than reading the whole table."""
_MOST_AGE = timedelta(days=10)
"""A third of the shortest time that a log is kept. An older commit may be gone before a new stream has finished its second batch, and until
then Spark asks for it. A stream that is behind and has taken nothing for this long is started as well, because Spark asks for the commits
of its last batch again when it resumes."""
_CHANGES_THE_TABLE = ("metaData", "protocol")


def find_starts_with_all_rows(tables: Mapping[str, str]) -> dict[str, int]:
    """Returns, by name, the version from which commits hold all rows of a table. Other tables are left out. tables: paths by name."""
    return _leave_out_unknown((name, _find_start_with_all_rows(path)) for name, path in tables.items())


def find_starts_at_latest_change(tables: Mapping[str, str], feed: bool) -> dict[str, int]:
    """Returns, by name, the last version that changed rows of a table, for a flow whose first batch takes everything in any case.

    Tables without such a version are left out. tables: paths by name. feed: whether the change data feed is streamed.
    """
    return _leave_out_unknown((name, _find_latest_change(path, feed)) for name, path in tables.items())


def find_starts_past(tables: Mapping[str, str], followed: Mapping[str, int]) -> dict[str, int]:
    """Returns, by name, the version after the last one that a flow has taken, so that a stream of change feeds begins there.

    If that version does not exist yet, the stream begins with the last change, which the flow then takes a second time.
    """
    found = {}
    for name, path in tables.items():
        latest, wanted = log.latest_table_version(path), followed.get(name, -1) + 1
        found[name] = wanted if latest is not None and wanted <= latest else _find_latest_change(path, feed=True)
    return _leave_out_unknown(found.items())


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
                there = all((locate(path) / file).exists() for file in change.files)
                return version if there and not _is_old(path, version) else None
            # Delta's source compares the columns at its start with today's.
            if any(kind in _CHANGES_THE_TABLE for kind, _ in positions.read_commit_actions(path, version)):
                return None
    except StreamChangesLost:
        return None
    return None


def _is_old(path: str, version: int) -> bool:
    commit = locate(path) / LOG / f"{version:020d}.json"
    return time.time() - commit.stat().st_mtime > _MOST_AGE.total_seconds()


def _leave_out_unknown(found: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    return {name: version for name, version in found if version is not None}


_MOST_VERSIONS = 200
"""A stream that is further behind is started, so that its position moves on.

So is a stream that is ahead of its table: Spark then reports that it cannot resume."""


@dataclass(frozen=True)
class _Standing:
    """Where a stream resumes in each of its inputs, and when it finished its last batch, in seconds since 1970."""

    positions: Mapping[str, StreamPosition]
    finished: float

    def is_to_move_on(self, path: str, position: StreamPosition) -> bool:
        """Whether the stream must be started even if nothing came: to move on in time, or to report that it cannot."""
        latest = log.latest_table_version(path)
        if latest is None or not -1 <= latest - position.version < _MOST_VERSIONS:
            return True
        return latest >= position.version and time.time() - self.finished > _MOST_AGE.total_seconds()


@measure_step(LOOKING)
def has_unread_rows_of_sources(checkpoint: str, name: str, table_id: str, path: str, sources: Collection[str]) -> bool:
    """Whether a table of the delivery ledger has rows of these sources that a stream, which reads it under this name, has not taken."""
    standing = _read_standing(checkpoint, {name: table_id})
    position = standing.positions.get(name)
    try:
        if position is None or standing.is_to_move_on(path, position):
            return True
        changes = positions.list_changes_since(path, position)
        return any(row["source"] in sources for row in positions.read_appended_rows(path, changes, ["source"]))
    except StreamChangesLost:
        return True


@measure_step(LOOKING)
def has_unread_changes(
    checkpoint: str,
    identities: Mapping[str, str],
    paths: Mapping[str, str],
    followed: Mapping[str, int] = MappingProxyType({}),
    known: Mapping[str, range] = MappingProxyType({}),
) -> bool:
    """Whether tables whose change data feeds a stream reads have changed rows, columns or properties that the flow has not taken.

    identities, paths: those of the tables, by name. followed: by name, the version up to which the flow came without its stream. known: by
    name, versions whose rows do not count, because the flow knows them already.
    """
    standing = _read_standing(checkpoint, identities)
    reached = positions.move_past_followed(standing.positions, followed)
    if reached != standing.positions:
        # Its stream would begin after what was followed and not where it stopped, so it need not move on in time.
        standing = _Standing(reached, time.time())
    taken = standing.positions
    try:
        return any(
            name not in taken
            or standing.is_to_move_on(path, taken[name])
            or _has_table_changed(path, taken[name], known.get(name, range(0)))
            for name, path in paths.items()
        )
    except StreamChangesLost:
        return True


def _read_standing(checkpoint: str, identities: Mapping[str, str]) -> _Standing:
    """Returns where a stream stands. A stream with an unfinished batch has no position, nor has an input that is still read as a whole."""
    begun, done = (batches.list_batch_numbers(locate(checkpoint) / kind) for kind in ("offsets", "commits"))
    last = max(begun, default=None)
    if last is None or last not in done:
        return _Standing({}, 0)
    found = positions.read_stream_positions(checkpoint, last, identities)
    finished = (locate(checkpoint) / "commits" / str(last)).stat().st_mtime
    return _Standing({name: position for name, position in found.items() if not position.snapshot}, finished)


def _has_table_changed(path: str, position: StreamPosition, known: range) -> bool:
    if any(change.version not in known for change in positions.list_changes_since(path, position, feed=True)):
        return True
    latest = log.latest_table_version(path) or 0
    versions = range(position.version, latest + 1)
    return any(kind in _CHANGES_THE_TABLE for version in versions for kind, _ in positions.read_commit_actions(path, version))


REFRESH_REQUESTED = "refresh"
"""The reason to make a table anew on request. It may change the schema."""
ERASED = "people were erased from its inputs"
"""Why a stream starts over although it could resume: its state holds rows of erased people and is forgotten with it."""

_OVER = (REFRESH_REQUESTED, ERASED)
_MADE_ANEW = ("RESTORE", "REPLACE", "CREATE OR REPLACE", "TRUNCATE")


def reason_to_start_over(folder: str, flow: str, inputs: Mapping[str, str], code: str) -> str | None:
    """Returns why a stream starts over although this run was not asked to. None: it resumes, or cannot (see `find_stream_break`)."""
    why = checkpoints.reason_to_rebase(folder, flow, inputs, code)
    return why if why in (*_OVER, checkpoints.FIRST) else None


def find_stream_break(
    folder: str, flow: str, inputs: Mapping[str, str], code: str, target: str, find_path: Callable[[str], str]
) -> str | None:
    """Returns why a stream can neither resume nor begin, or None if it can. Arguments are those of `checkpoints.open_checkpoint`.

    target: the path of its table. find_path: returns the path of an input.
    """
    why, memory = checkpoints.reason_to_rebase(folder, flow, inputs, code), read_flow_memory(folder, flow)
    if memory is None or (why == checkpoints.FIRST and not batches.has_begun_batch(memory.checkpoint)):
        state = log.read_table_state(target)
        return checkpoints.LOST_CHECKPOINT if state is not None and state.rows != 0 else None
    if why is not None:
        return None if why in (*_OVER, checkpoints.FIRST) else why
    if not delta_log.is_delta_table(target):
        return checkpoints.TABLE_MISSING
    for name, version in batches.read_first_unread_versions(str(memory.checkpoint), inputs).items():
        if any(
            commit["version"] >= version and _is_restore_or_replace(commit) for commit in _read_input_commits(name, find_path)
        ):
            return f"its input '{name}' was restored or replaced, and what was taken of it cannot be taken back"
    return None


def stream_fingerprint(stream: Windowed[Any]) -> str:
    """Returns the fingerprint of a stream's checkpoint. Heartbeats count, because they are one more source of the stream."""
    return compute_declaration_fingerprint(stream) + ("+idle" if stream.closes_when_idle else "")


def broken_stream_error(pipeline: str, stream: str, why: str) -> SluiceError:
    """Returns the error for a stream that cannot resume."""
    return SluiceError(
        f"Stream '{stream}' cannot go on: {why}. Its state holds what it has read so far, so it is not made anew by itself. "
        f"Start it over, from its inputs as they are now: sluice run {pipeline} --mode refresh --table {stream}"
    )


def _read_input_commits(name: str, find_path: Callable[[str], str]) -> list[dict[str, Any]]:
    return [] if name == HEARTBEATS else commit_history.read_commit_history(find_path(name))


def _is_restore_or_replace(commit: Mapping[str, Any]) -> bool:
    """Whether a commit is a restore or a replacement. Delta's are known by name; `sluice restore` merges old rows back."""
    return commit["note"].get("mode") == RESTORE or str(commit["operation"]).startswith(_MADE_ANEW)
