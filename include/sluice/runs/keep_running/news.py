"""Finds what is new for each flow since it last looked, by the tables' logs and the landing folders, without Spark.

A process that is kept running calls this all the time. So it reads nothing of a table whose log folder has not changed, and only new rows of
the delivery ledger.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.windowed import HEARTBEATS
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import parse_duration
from sluice.delta_log import LOG
from sluice.erasure import request_record, searched_tables
from sluice.errors import SluiceError
from sluice.flows.progress import positions
from sluice.flows.progress.positions import StreamPosition
from sluice.ingest.deliveries import arrivals
from sluice.ingest.deliveries.arrivals import Look
from sluice.ingest.deliveries.folder_part import may_have_news
from sluice.ingest.deliveries.known_files import KnownFiles, read_known_files
from sluice.lake import log
from sluice.lake.workspace import Workspace
from sluice.locations import Location, locate
from sluice.stores.store_location import StoreLocation

Item = Source | Dataset[Any]
Marks = tuple[str | None, ...]
StoreState = tuple[tuple[str, str], ...]
"""The names and tags of all objects below."""
_TICK = 0.1
"""A folder that changed fewer than this many seconds ago may change again without getting another time."""


class FolderState(NamedTuple):
    """A folder on a disk: its inode, and when a name in it last changed, in nanoseconds."""

    inode: int
    modified: int


class FlowNews:
    """What the flows of a pipeline have seen. Only the process that holds the lease uses it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._logs: dict[str, tuple[FolderState | None, str | None]] = {}
        self._taken: dict[str, Marks] = {}
        self._looked: dict[str, Marks] = {}
        self._quiet_since: dict[str, float] = {}
        self._closing: set[str] = set()
        self._known: tuple[Marks, KnownFiles] | None = None
        self._requests: FolderState | StoreState | None = None

    def waits(self, item: Item) -> bool:
        """Whether a flow's inputs have anything that it has not taken. True for a flow that never took anything."""
        now, before = self._standing(item), self._taken.get(item.name)
        self._looked[item.name] = now
        if before is not None and now != before and item.folded_source and not self._concerned(item, before, now):
            self._taken[item.name] = before = now
        if now != before:
            self._quiet_since[item.name] = time.monotonic()
            self._closing.discard(item.name)
            return True
        return self._is_to_close(item)

    def took(self, name: str) -> None:
        """Records that a flow has taken what was last found to wait for it."""
        if name in self._looked:
            self._taken[name] = self._looked[name]
        if name in self._closing:
            self._closing.remove(name)
            del self._quiet_since[name]

    def up_to_date(self) -> list[Item]:
        """Returns the flows for which nothing waits."""
        return [item for item in self._workspace.graph if self._standing(item) == self._taken.get(item.name)]

    def leave_out(self, items: list[Item]) -> None:
        """Records that the latest commits have no row that is new to these flows."""
        for item in items:
            self._taken[item.name] = self._standing(item)

    def forget(self) -> None:
        """Makes every flow look again."""
        self._taken.clear()

    def arrived(self, sources: list[Source]) -> bool:
        """Whether a discovery would record anything of these sources, or could not list one."""
        known = self._of_ledger()
        landing = self._workspace.landing
        try:
            for source in sources:
                told = may_have_news(source, landing, known)
                if told or (told is None and arrivals.find_source_changes(source, landing, known, Look()).is_new):
                    return True
            return False
        except SluiceError:
            return True  # the discovery will report it

    def deletions_wait(self) -> bool:
        """Whether an erasure request waits, or may be among what was delivered."""
        if searched_tables.has_unseen_request_rows(self._workspace.lake):
            return True
        folder = self._workspace.records.erasure_requests
        state = _list_store_state(folder) if isinstance(folder, StoreLocation) else _read_folder_state(folder)
        if state is None or state == self._requests:
            return False
        waiting = bool(request_record.list_waiting_requests(self._workspace.records))
        if not waiting and not _is_recent_state(state):
            self._requests = state
        return waiting

    def _standing(self, item: Item) -> Marks:
        streamed = self._workspace.streamed_tables(item)
        # Rows that a stream with state wrote itself are not new to it.
        return tuple(self._mark(path) for name, path in streamed.items() if name != HEARTBEATS)

    def _concerned(self, item: Item, before: Marks, now: Marks) -> bool:
        """Whether rows that were appended to the ledger since belong to the sources that the flow takes."""
        graph, workspace = self._workspace.graph, self._workspace
        (path,) = workspace.streamed_tables(item).values()
        names = {item.name} if item.name in graph.sources else {one.name for one in graph.feeding(item.reads[0])}
        (was,), (is_now,) = before, now
        if was is None or is_now is None or was.rpartition(":")[0] != is_now.rpartition(":")[0]:
            return True
        try:
            appended = positions.list_changes_since(path, StreamPosition(int(was.rpartition(":")[2]) + 1))
            return any(row["source"] in names for row in positions.read_appended_rows(path, appended, ["source"]))
        except positions.StreamChangesLost:
            return True

    def _is_to_close(self, item: Item) -> bool:
        """Whether a stream has been quiet long enough to close its windows. True only once, until the stream has run."""
        if item.closes_when_idle is None or item.name not in self._quiet_since:
            return False
        if time.monotonic() - self._quiet_since[item.name] < parse_duration(item.closes_when_idle).total_seconds():
            return False
        self._closing.add(item.name)
        return True

    def _of_ledger(self) -> KnownFiles:
        marks = (self._mark(self._workspace.deliveries), self._mark(self._workspace.outcomes))
        if self._known is None or self._known[0] != marks:
            self._known = (marks, read_known_files(self._workspace.deliveries))
        return self._known[1]

    def _mark(self, path: str) -> str | None:
        state = _read_folder_state(locate(path) / LOG)
        known = self._logs.get(path)
        if known is None or state is None or known[0] != state:
            known = self._logs[path] = (None if _is_recent_state(state) else state, log.table_change_mark(path))
        return known[1]


def _list_store_state(folder: StoreLocation) -> StoreState | None:
    """Returns what changes when an object below is written or removed, or None if there is none. A store has no folder that would say it."""
    return tuple((name, found.tag) for name, found in folder.list_named_objects()) or None


def _read_folder_state(folder: Location) -> FolderState | None:
    """Returns what changes when names in a folder on a disk change, or None if the folder does not exist, as on a store."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return FolderState(found.st_ino, found.st_mtime_ns)


def _is_recent_state(state: FolderState | StoreState | None) -> bool:
    return isinstance(state, FolderState) and time.time() - state.modified / 1e9 < _TICK
