"""Finds how far a flow has read, by its checkpoint, and which versions of its inputs changed rows since, by their logs. Needs no JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from sluice.delta_log import LOG, split_commit_lines
from sluice.flows.progress import batches, checkpoints
from sluice.lake import log
from sluice.locations import Location, locate, open_to_read

Row = dict[str, Any]


@dataclass(frozen=True)
class StreamPosition:
    """Where a stream stands in a Delta table: it resumes at `version`, of which it has taken `taken` files.

    snapshot: whether it is still reading the whole table as of that version, as every stream does first.
    """

    version: int
    taken: int = 0
    snapshot: bool = False


@dataclass(frozen=True)
class FlowProgress:
    """The state of a flow's checkpoint.

    reason: why the checkpoint was made. batch: the last finished batch, or None. unfinished: batches that began and did not finish; they are
    repeated. positions: by input; an input that was never read has none. tables: by input, the id of the streamed Delta table.
    """

    flow: str
    identity: str
    reason: str | None
    made_at: datetime | None
    batch: int | None
    finished_at: datetime | None
    unfinished: tuple[int, ...]
    positions: Mapping[str, StreamPosition]
    tables: Mapping[str, str]


def read_flow_progress(folder: str, flow: str) -> FlowProgress | None:
    """Returns a flow's progress from the folder of its checkpoints, or None if it has none. Raises UsageError for another flow's folder."""
    memory = checkpoints.read_flow_memory(folder, flow)
    if memory is None:
        return None
    identity, inputs = str(memory["identity"]), memory.get("inputs")
    place = locate(folder) / identity
    tables = {str(name): str(table) for name, table in inputs.items()} if isinstance(inputs, dict) else {}
    begun, done = batches.list_batch_numbers(place / "offsets"), batches.list_batch_numbers(place / "commits")
    last = max(done, default=None)
    streamed = read_stream_positions(str(place), last, tables) if last is not None and last in begun else {}
    reached = move_past_followed(streamed, checkpoints.read_followed_versions(memory))
    finished = _modification_time(place / "commits" / str(last)) if last is not None else None
    return FlowProgress(
        flow=flow,
        identity=identity,
        reason=str(memory["reason"]) if memory.get("reason") else None,
        made_at=_modification_time(place / "metadata") or _modification_time(locate(folder) / "flow.json"),
        batch=last,
        finished_at=finished if reached == streamed else _modification_time(locate(folder) / "flow.json"),
        unfinished=tuple(sorted(begun - done)) if last is None else tuple(sorted(batch for batch in begun if batch > last)),
        positions=reached,
        tables=tables,
    )


def _modification_time(file: Location) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def read_stream_positions(checkpoint: str, batch: int, tables: Mapping[str, str]) -> dict[str, StreamPosition]:
    """Returns, by input, where a stream stands when a batch is done. checkpoint: its path. tables: the ids of its inputs by name."""
    ends = batches.read_batch_offsets(checkpoint, batch, tables)
    return {name: StreamPosition(version, max(index + 1, 0), snapshot) for name, version, index, snapshot in ends}


def move_past_followed(streamed: Mapping[str, StreamPosition], followed: Mapping[str, int]) -> dict[str, StreamPosition]:
    """Returns where a flow stands if it has also taken these versions without its stream (`checkpoints.record_followed_versions`)."""
    ahead = {
        name: StreamPosition(version + 1)
        for name, version in followed.items()
        if name not in streamed or streamed[name].version <= version
    }
    return {**streamed, **ahead}


@dataclass(frozen=True)
class TableChange:
    """A version that changed rows. at: when it was committed (UTC). files: those that a stream has to read, relative to the table."""

    version: int
    at: datetime | None
    files: tuple[str, ...]
    bytes: int


class StreamChangesLost(Exception):
    """The log, or a file that it names, is gone, so a stream cannot resume from the position."""


def list_changes_since(path: str, position: StreamPosition, feed: bool = False) -> list[TableChange]:
    """Returns the versions from a position on that changed rows, oldest first. feed: by the change data feed. Raises StreamChangesLost."""
    latest = log.latest_table_version(path)
    if latest is None:
        return []
    return [
        change
        for version in range(position.version, latest + 1)
        if (change := read_version_change(path, version, position, feed))
    ]


def read_appended_rows(path: str, changes: list[TableChange], columns: list[str]) -> list[Row]:
    """Returns the rows that these versions appended to a table. Meant for small tables. Raises StreamChangesLost."""
    found: list[Row] = []
    for file in (file for change in changes for file in change.files):
        try:
            with open_to_read(locate(path) / file) as content:
                found += pq.ParquetFile(content).read(columns=columns, use_threads=False).to_pylist()
        except FileNotFoundError:
            raise StreamChangesLost(file) from None
    return found


def read_version_change(path: str, version: int, position: StreamPosition, feed: bool) -> TableChange | None:
    """Returns what a version has for a stream at a position, or None if nothing. feed: by the change data feed. Raises StreamChangesLost."""
    at: datetime | None = None
    changed: list[tuple[str, int]] = []
    fed: list[tuple[str, int]] = []
    for kind, action in read_commit_actions(path, version):
        if kind == "commitInfo" and "timestamp" in action:
            at = datetime.fromtimestamp(action["timestamp"] / 1000, UTC)
        elif kind == "cdc":
            fed.append(_file_and_size(action))
        elif kind in (("add", "remove") if feed else ("add",)) and action.get("dataChange"):
            changed.append(_file_and_size(action))
    # If a version has change files, they alone are the feed.
    files = fed if feed and fed else changed
    left = files[position.taken :] if version == position.version and not position.snapshot else files
    if not left:
        return None
    if feed and any(not (locate(path) / name).exists() for name, _ in left):
        raise StreamChangesLost(f"a file of version {version}")
    return TableChange(version, at, tuple(name for name, _ in left), sum(size for _, size in left))


def read_commit_actions(path: str, version: int) -> Iterator[tuple[str, Row]]:
    """Returns the actions of a commit, each with its kind. Raises StreamChangesLost."""
    try:
        content = (locate(path) / LOG / f"{version:020d}.json").read_bytes()
    except FileNotFoundError:
        raise StreamChangesLost(f"version {version}") from None
    for line in split_commit_lines(content):
        yield from json.loads(line).items()


def _file_and_size(action: Row) -> tuple[str, int]:
    return unquote(str(action["path"])), int(action.get("size") or 0)
