"""Which files of a table no version within its retention needs: by its log alone, without a JVM and without walking the table's folder.

It reads the commits since the last VACUUM backwards: what each removed, and the files of the change feed that it wrote. What an aborted
write left is in no commit, so every four weeks the folder is walked: a full VACUUM, which Delta on Spark does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from sluice.delta_log import LOG, list_log_versions, split_commit_lines
from sluice.lake.commit_history import SLUICE
from sluice.lake.file_statistics import list_file_values
from sluice.lake.log import has_commit_times, has_plain_reader_protocol, parse_interval_length
from sluice.locations import Location, is_on_disk, locate
from sluice.open_tables import open_checked_table
from sluice.printable import count_noun, format_size, match_number
from sluice.table_properties import REMOVED_UNTIL, RETENTION, VACUUMED_VERSION, WAITING_FROM, WALKED_AT

START, END = "VACUUM START", "VACUUM END"

WALKED_EVERY = timedelta(days=28)
"""Shorter than the time for which a log is kept (30 days), so that the log still records the last walk when the next is due."""
WALKED_INSTEAD = timedelta(days=7)
"""How often the folder is walked if the log does not know all files; `WALKED_AT_ONCE` applies if they may not stay."""
WALKED_AT_ONCE = timedelta(days=1)
WORTH_SHARE = 0.1
"""VACUUM is worth its two commits if this share of a table's bytes can go."""
WORTH_WAIT = timedelta(days=7)
"""VACUUM is due in any case if a file could have gone this long ago."""

_CLOCKS_DIFFER = timedelta(hours=1)
"""How much the clocks of two writers may differ."""
_ELSEWHERE = re.compile(r"/|[A-Za-z][\w+.-]*:|(.*/)?\.\.(/|\Z)")
"""Matches the path of a file that lies in another table, as those of a shallow clone do, or that leads out of this one."""
_TELLS_NOTHING = b'{"add":'
_AT_ONCE = 16
"""The most commits that are requested from a store in parallel."""
_ENGINE_OF_SPARK = "Apache-Spark"


@dataclass(frozen=True)
class RemovedFile:
    """A file that left a table, or that held changes. path: as in the log. bytes: 0 if the log does not say. at: UTC. version: that removed it."""

    path: str
    bytes: int
    at: datetime
    version: int


@dataclass(frozen=True)
class FileInventory:
    """What the log says about files that are no longer part of the table and are not vacuumed yet, oldest first.

    version: up to which the log was read; a later version may need such a file again. expired: those that outlived the retention. waiting: the
    others. table_bytes: the size of that version. walked_at: when the folder was last walked, or the table was created; None if the log does not
    say. changed_since_walk: whether anything was committed since. unknown: why the log does not know all files; None if it does.
    """

    version: int
    expired: Sequence[RemovedFile]
    waiting: Sequence[RemovedFile]
    table_bytes: int
    keep: timedelta
    walked_at: datetime | None = None
    changed_since_walk: bool = True
    unknown: str | None = None

    @property
    def expired_bytes(self) -> int:
        """The bytes of the files that may go."""
        return sum(file.bytes for file in self.expired)


@dataclass(frozen=True)
class VacuumDecision:
    """Whether files of a table are to be removed now, and why or why not.

    in_full: whether the folder is walked. due: when the passing of time alone makes the decision yes; None if it never does. held: what keeps
    files that would go otherwise, in words; the decision is then no.
    """

    needed: bool
    why: str
    inventory: FileInventory
    in_full: bool = False
    due: datetime | None = None
    held: str | None = None


def decide_vacuum(path: str, now: datetime, at_once: bool) -> VacuumDecision:
    """Decides whether a table is to be vacuumed at `now` (UTC). at_once: as soon as one file may go, because the table holds people.

    Raises DamagedLog, and TableNotFoundError if there is no table.
    """
    found = read_file_inventory(path, now)
    due = _find_due_time(found, now, at_once)
    if (walk := _find_walk_time(found, now, at_once)) is not None and walk <= now:
        why = f"in full, as {_describe_last_walk(found, now)}" + (f": {found.unknown}" if found.unknown else "")
        return VacuumDecision(True, why, found, True, now)
    if found.unknown:
        return VacuumDecision(False, f"{found.unknown}; it is walked again{_format_day(walk)}", found, due=due)
    if not found.expired:
        return VacuumDecision(False, _describe_waiting_files(found), found, due=due)
    size, late = found.expired_bytes, now - found.expired[0].at - found.keep
    total = size + found.table_bytes
    said = f"{count_noun(len(found.expired), 'file')}, {format_size(size)} of {format_size(total)}, can go"
    if at_once or late >= WORTH_WAIT or size >= WORTH_SHARE * total:
        return VacuumDecision(True, said, found, due=now)
    why = (
        f"{said}; worth it from {WORTH_SHARE:.0%} on, or {count_noun(WORTH_WAIT.days, 'day')} "
        f"after the first could go, {count_noun(late.days, 'day')} ago"
    )
    return VacuumDecision(False, why, found, due=due)


def _describe_last_walk(found: FileInventory, now: datetime) -> str:
    if found.walked_at is None:
        return "longer ago than the log goes back the last time"
    if found.walked_at > now:
        return "the last time was by a clock that was ahead"
    return f"{count_noun((now - found.walked_at).days, 'day')} ago the last time"


def _describe_waiting_files(found: FileInventory) -> str:
    if not found.waiting:
        return "no file was removed from the table since the last time"
    size = format_size(sum(file.bytes for file in found.waiting))
    first = found.waiting[0].at + found.keep
    return (
        f"{count_noun(len(found.waiting), 'file')}, {size}, {match_number(len(found.waiting), 'is', 'are')} "
        f"within the retention; the first can go at {first:%Y-%m-%d %H:%M} UTC"
    )


def _find_walk_time(found: FileInventory, now: datetime, at_once: bool) -> datetime | None:
    """Returns when the folder is to be walked. None: there is no need as long as nothing is committed."""
    if not found.changed_since_walk:
        return None
    every = WALKED_EVERY if not found.unknown else WALKED_AT_ONCE if at_once else WALKED_INSTEAD
    if found.walked_at is None or found.walked_at > now + _CLOCKS_DIFFER:  # or by a clock that was ahead: nobody knows how far
        return now
    return found.walked_at + every


def _find_due_time(found: FileInventory, now: datetime, at_once: bool) -> datetime | None:
    """Returns when the passing of time alone makes the decision yes."""
    walk = _find_walk_time(found, now, at_once)
    times = [walk] if walk else []
    gone, every = 0, [] if found.unknown else [*found.expired, *found.waiting]
    if every:
        times.append(every[0].at + found.keep + WORTH_WAIT)
    for file in every:
        gone += file.bytes
        if at_once or gone >= WORTH_SHARE * (gone + found.table_bytes):
            times.append(file.at + found.keep)
            break
    return max(now, min(times)) if times else None


def _format_day(at: datetime | None) -> str:
    return f" on {at:%Y-%m-%d}" if at else " when something is committed"


def read_file_inventory(path: str, now: datetime) -> FileInventory:
    """Returns what the log says about files that the table does not need any more, at `now` (UTC). Errors are those of `decide_vacuum`."""
    table = open_checked_table(path)
    keep = parse_interval_length(str(table.metadata().configuration.get(RETENTION) or "interval 7 days"))
    reading = _LogReading({form for name in list_file_values(table, "path") for form in _list_spellings(name)})
    if not has_plain_reader_protocol(table):
        reading.unknown = "its log names files in a way that is not known here"
    if has_commit_times(table):
        reading.unknown = "its commits hold times that only Spark writes"
    reading.read_commits(locate(path) / LOG, table)
    gone = sorted(reading.removed.values(), key=lambda file: file.at)
    return FileInventory(
        version=table.version(),
        expired=[file for file in gone if file.at + keep <= now],
        waiting=[file for file in gone if file.at + keep > now],
        table_bytes=sum(list_file_values(table, "size_bytes")),
        keep=keep,
        walked_at=reading.walked_at,
        changed_since_walk=reading.changed,
        unknown=reading.unknown,
    )


@dataclass
class _LogReading:
    """What is known so far while a log is read backwards. current: the files of the latest version.

    until: files removed before this are gone, if a version up to `vacuumed` removed them. waiting_from: no version before this removed a file
    that is still there. Both versions are None if the last VACUUM did not record them; the commits' times alone decide then.
    """

    current: set[str]
    removed: dict[str, RemovedFile] = field(default_factory=dict)
    until: datetime | None = None
    vacuumed: int | None = None
    waiting_from: int | None = None
    walked_at: datetime | None = None
    changed: bool = False
    unknown: str | None = None
    _ended: datetime | None = None

    def read_commits(self, folder: Location, table: DeltaTable) -> None:
        """Reads back to a VACUUM that removed everything older, or the whole log if there was none."""
        commits, _ = list_log_versions(folder)
        at = datetime.now(UTC)
        newest = [version for version in sorted(commits, reverse=True) if version <= table.version()]
        read = _read_commits_in_turn([commits[version] for version in newest])
        for version, (info, actions) in zip(newest, read, strict=True):
            at = _instant_of(info["timestamp"]) if "timestamp" in info else at
            self._note_vacuum(info, at)
            for kind, action in actions:
                self._note_file(kind, action, at, version)
            if self._is_all_before_gone(version, at):
                return
        if min(commits, default=0) > 0:
            self.unknown = self.unknown or "its log does not go back far enough"
        elif self.walked_at is None:
            self.walked_at = at  # a table that was just created has nothing left behind

    def _is_all_before_gone(self, version: int, at: datetime) -> bool:
        """Whether earlier versions than this one removed no file that is still there."""
        if self.until is None:
            return False
        # One commit by a machine whose clock is far behind must not end the search.
        return version <= self.waiting_from if self.waiting_from is not None else at + _CLOCKS_DIFFER < self.until

    def _note_vacuum(self, info: Mapping[str, Any], at: datetime) -> None:
        operation, said = str(info.get("operation")), info.get("operationParameters") or {}
        if operation not in (START, END):
            self.changed = self.changed or self.until is None
        elif self.until is not None:
            return
        elif operation == END and REMOVED_UNTIL in info:
            self.until = _instant_of(info[REMOVED_UNTIL])
            self.vacuumed, self.waiting_from = info.get(VACUUMED_VERSION), info.get(WAITING_FROM)
            self.walked_at = _instant_of(info[WALKED_AT]) if WALKED_AT in info else None
            # A VACUUM by inventory: commits between the walk and this one are not read any more.
            self.changed = self.changed or info.get("engineInfo") == SLUICE
        elif operation == END and str(info.get("engineInfo")).startswith(_ENGINE_OF_SPARK):
            self._ended = at if said.get("status") == "COMPLETED" else None
        elif operation == START and self._ended is not None:
            self.until, self.walked_at = at - timedelta(milliseconds=int(said.get("defaultRetentionMillis") or 0)), at

    def _note_file(self, kind: str, action: Mapping[str, Any], at: datetime, version: int) -> None:
        """Notes a file. One that was removed twice counts from the last time, and one that came back does not count."""
        path = str(action["path"])
        if self.unknown:
            return
        if kind == "remove" and "deletionTimestamp" in action:
            at = _instant_of(action["deletionTimestamp"])
        if not self.current.isdisjoint(_list_spellings(path)) or path in self.removed or lies_in_another_table(path):
            return
        if self.until is not None and at <= self.until and (self.vacuumed is None or version <= self.vacuumed):
            return
        self.removed[path] = RemovedFile(path, int(action.get("size") or 0), at, version)


def _read_commits_in_turn(files: Sequence[Location]) -> Iterator[tuple[Mapping[str, Any], list[tuple[str, Mapping[str, Any]]]]]:
    """Yields what each commit says, in this order, as `_read_commit` does.

    On a store each commit is one request. The first few usually suffice, so the number of parallel requests starts low and grows up to `_AT_ONCE`.
    """
    if not files or is_on_disk(files[0]):
        yield from map(_read_commit, files)
        return
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        begin, many = 0, 1
        while begin < len(files):
            yield from threads.map(_read_commit, files[begin : begin + many])
            begin, many = begin + many, min(2 * many, _AT_ONCE)


def _read_commit(file: Location) -> tuple[Mapping[str, Any], list[tuple[str, Mapping[str, Any]]]]:
    """Returns what a commit says about itself, and the files that it removed or that hold its changes."""
    info: Mapping[str, Any] = {}
    files: list[tuple[str, Mapping[str, Any]]] = []
    for line in split_commit_lines(file.read_bytes()):
        if not line.startswith(_TELLS_NOTHING):
            for kind, action in json.loads(line).items():
                if kind == "commitInfo":
                    info = action
                elif kind in ("remove", "cdc"):
                    files.append((kind, action))
    return info, files


def _instant_of(milliseconds: object) -> datetime:
    return datetime.fromtimestamp(int(str(milliseconds)) / 1000, UTC)


def lies_in_another_table(name: str) -> bool:
    """Whether a file of the log lies in another table, as those of a shallow clone do, or leads out of this one."""
    return _ELSEWHERE.match(name) is not None


def list_possible_locations(root: Location, name: str) -> list[Location]:
    """Returns where a file of the log may lie below a table's folder: names of partitions are escaped once or twice in the log."""
    return [root / spelling for spelling in _list_spellings(name)]


def _list_spellings(name: str) -> list[str]:
    return list(dict.fromkeys((unquote(name), name, unquote(unquote(name)))))
