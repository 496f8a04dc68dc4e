"""Finds how far a flow has read, by its checkpoint, and what it has yet to read of its inputs, by their logs. Needs no JVM.

Until a flow has read a version of a table, the files of that version must stay, and VACUUM waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from sluice import delta_log
from sluice.declare.assembly.graph import Graph
from sluice.declare.pipeline import parse_duration
from sluice.delta_log import LOG, split_commit_lines
from sluice.flows.progress import batches, checkpoints
from sluice.flows.progress.flow_memory import read_flow_memory
from sluice.lake import commit_history, log
from sluice.lake.commit_history import WITHOUT_FILES, WITHOUT_ROWS
from sluice.lake.log import read_table_retention
from sluice.lake.pipeline_lake import FlowPaths, locate_streamed_tables
from sluice.lake.workspace import Workspace
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
    memory = read_flow_memory(folder, flow)
    if memory is None:
        return None
    checkpoint = memory.checkpoint
    begun, done = batches.list_batch_numbers(checkpoint / "offsets"), batches.list_batch_numbers(checkpoint / "commits")
    last = max(done, default=None)
    streamed = read_stream_positions(str(checkpoint), last, memory.inputs) if last is not None and last in begun else {}
    reached = move_past_followed(streamed, memory.followed)
    finished = _modification_time(checkpoint / "commits" / str(last)) if last is not None else None
    return FlowProgress(
        flow=flow,
        identity=memory.identity,
        reason=memory.reason,
        made_at=_modification_time(checkpoint / "metadata") or _modification_time(memory.file),
        batch=last,
        finished_at=finished if reached == streamed else _modification_time(memory.file),
        unfinished=tuple(sorted(begun - done)) if last is None else tuple(sorted(batch for batch in begun if batch > last)),
        positions=reached,
        tables=memory.inputs,
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


@dataclass(frozen=True)
class LaggingFlow:
    """A flow that has yet to read a version of its input.

    at: when that version was made (UTC). overdue: whether VACUUM has waited long enough. folder: the flow's checkpoints. waits: how long
    VACUUM waits, as declared.
    """

    flow: str
    version: int
    at: datetime | None
    folder: str = ""
    waits: str | None = None
    overdue: bool = False

    def __str__(self) -> str:
        """Returns a sentence for a report."""
        return f"the flow '{self.flow}' has not read version {self.version} yet; run it, and the files go with the next VACUUM"

    def let_go(self) -> str:
        """Makes the flow start over in its next run, and returns a sentence that says so. Call it under the lease, before the files are removed."""
        why = f"VACUUM waited {self.waits} for it to read version {self.version} of an input"
        checkpoints.reset_checkpoint(self.folder, self.flow, why)
        return f"the flow '{self.flow}' starts over with its next run: {why}"


def find_lagging_flows(workspace: Workspace, now: datetime) -> dict[str, list[LaggingFlow]]:
    """Returns, by table path, the flows that VACUUM would take files from: they have yet to read versions older than its retention."""
    return find_lagging_flows_at(workspace.paths, workspace.graph, now)


def find_lagging_flows_at(paths: FlowPaths, graph: Graph, now: datetime) -> dict[str, list[LaggingFlow]]:
    """Returns what `find_lagging_flows` does, without a Spark session."""
    found: dict[str, list[LaggingFlow]] = {}
    for declared in graph:
        flow, streamed = graph.flow_name(declared), locate_streamed_tables(paths, declared)
        folder = paths.checkpoints(flow)
        # The state of a stream cannot be made again from its inputs as they are now, so VACUUM waits for it.
        waits = None if declared.name in graph.streams else graph.pipeline.vacuum_waits
        for name, (version, whole) in _read_unread_versions(folder, flow).items():
            behind = _find_lag_past_retention(streamed[name], flow, version, whole, now) if name in streamed else None
            if behind is not None:
                overdue = waits is not None and behind.at is not None and behind.at + parse_duration(waits) <= now
                found.setdefault(streamed[name], []).append(replace(behind, folder=folder, waits=waits, overdue=overdue))
    return found


def _read_unread_versions(folder: str, flow: str) -> dict[str, tuple[int, bool]]:
    """Returns, by input, the first version that a flow has yet to take, and whether it was reading the whole table and did not finish."""
    memory = read_flow_memory(folder, flow)
    if memory is None or memory.reset:
        return {}  # it starts anew, from its inputs as they are then
    checkpoint = memory.checkpoint
    if batches.find_checkpoint_damage(checkpoint):
        return {}  # likewise
    done = bool(batches.list_batch_numbers(checkpoint / "commits"))
    unread = (
        batches.read_first_unread_versions(str(checkpoint), memory.inputs)
        if done
        else {name: end + 1 for name, end in batches.read_batch_end_versions(str(checkpoint), 0, memory.inputs).items()}
    )
    followed = memory.followed
    return {
        name: (max(version, followed.get(name, -1) + 1), not done and name not in followed) for name, version in unread.items()
    }


def _find_lag_past_retention(path: str, flow: str, version: int, whole: bool, now: datetime) -> LaggingFlow | None:
    if not delta_log.is_delta_table(path):
        return None
    keep = read_table_retention(path)
    passed_over = WITHOUT_FILES if whole else WITHOUT_ROWS
    waiting = [
        one
        for one in commit_history.read_commit_history(path)
        if one["version"] >= version and one["operation"] not in passed_over
    ]
    old = [one for one in waiting if one["at"] is not None and one["at"] + keep <= now]
    return LaggingFlow(flow, int(old[-1]["version"]), old[-1]["at"]) if old else None
