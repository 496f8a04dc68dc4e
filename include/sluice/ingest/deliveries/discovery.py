"""Discovery: what is new in a landing folder becomes deliveries.

A run with nothing new lists the folder once and reads a few columns of the deliveries table once, however many files are known; only
new files are opened.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Protocol, TypeVar

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.errors import SluiceError, UsageError
from sluice.ingest import ledger
from sluice.ingest.deliveries import absence, dates, groups
from sluice.ingest.deliveries.known import (
    CLEANED,
    EXISTING,
    GONE,
    IGNORED,
    RETURNED,
    TAKEN,
    UNOPENED,
    KnownContent,
    KnownFiles,
    LastSeenFile,
    read_known_files,
)
from sluice.ingest.deliveries.listing import DELIVERED, LandedFile, list_ready_files, read_file_size_and_time, resolve_landed_path
from sluice.ingest.topics.offset_ranges import OffsetRange

__all__ = [
    "CLEANED",
    "DELIVERED",
    "EXISTING",
    "GONE",
    "IGNORED",
    "RETURNED",
    "TAKEN",
    "UNOPENED",
    "Arrival",
    "KnownFiles",
    "LandedFile",
    "SourceChanges",
    "discover_deliveries",
    "find_arrivals",
    "find_source_changes",
    "list_ready_files",
    "preview_discovery",
    "read_file_size_and_time",
    "read_known_files",
]

YOUNG, LOOK_AGAIN = 1.0, 0.5
"""Seconds: a file modified less than YOUNG ago is looked at again after LOOK_AGAIN; while it changes it is left for the next run."""

Row = dict[str, object]
Looked = TypeVar("Looked")
_BACK = (GONE, CLEANED, UNOPENED)
"""After these a file that has the content that was known of it is not new."""


class Arrival(Protocol):
    """What came: a LandedFile, or what another kind of source delivers. size: in bytes, where that is known."""

    @property
    def file(self) -> str:
        """What the ledger calls it."""

    @property
    def size(self) -> int | None:
        """In bytes."""

    @property
    def modified_at(self) -> datetime | None:
        """When it was made, UTC."""

    @property
    def event(self) -> str:
        """What the ledger says of it: DELIVERED, or what it is instead."""


@dataclass(frozen=True)
class SourceChanges:
    """What a look at a source shows. came: in the order in which it gets its numbers; gone: files that are there no more.

    device: the one that its folder is on. warnings: what is to be told besides.
    """

    came: list[Arrival] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    device: int | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def is_new(self) -> bool:
        """Whether there is anything to note."""
        return bool(self.came or self.gone)


@functools.singledispatch
def find_arrivals(source: Source, landing: Path, known: KnownFiles, within: Interval | None) -> SourceChanges:
    """What came to a source and what is gone. By kind of source: register others.

    within: only what is of dates in this interval, and then nothing is said of what is gone. Raises UsageError where the landing folder
    is not there or has none of its files; that of a source which never had one is only waited for.
    """
    seen = known.of(source.name)
    folder = landing / source.path
    if not seen and landing.is_dir() and not folder.exists():
        return SourceChanges()
    if not source.include_existing_files and not seen:
        return SourceChanges(_list_existing_files(source, landing), device=_find_folder_device(folder))
    device = _find_folder_device(folder)
    moved = device is not None and device != known.devices.get(source.name, device)
    here = (
        {file.file: file for file in list_ready_files(source, landing)}
        if device is not None or not absence.expected_files(seen)
        else {}
    )
    absence.refuse_absent_folder(source, landing, seen, [name for name, file in here.items() if file.problem is None], moved)
    looked = (_classify_landed_file(source, file, known, moved) for file in here.values())
    fresh = sorted((file for file in looked if file is not None), key=lambda file: (file.modified, file.file))
    if within is not None:
        return SourceChanges(
            [file for file in fresh if dates.find_delivery_date(source, file.file, file.modified_at) in within], device=device
        )
    missing = [file for file in absence.expected_files(seen) if file not in here]
    # A file that the source does not ask for any more, or whose marker went, is still there.
    gone = [file for file in missing if absence.is_path_missing(resolve_landed_path(folder, file))]
    over = [
        file
        for file in known.unread_files(source.name)
        if file not in here and file not in gone and _is_no_longer_listed(folder, file)
    ]
    told = absence.vanished_files_warning(folder, len(gone), len(absence.expected_files(seen)))
    return SourceChanges([*fresh], sorted([*gone, *over]), device, [told] if told else [])


@find_arrivals.register
def _(source: KafkaSource, landing: Path, known: KnownFiles, within: Interval | None) -> SourceChanges:
    from sluice.ingest.topics import offsets  # its client is loaded only where topics are read

    return SourceChanges([*offsets.find_arrived_offset_ranges(source, known.deliveries, within)])


@functools.singledispatch
def delivery_row(arrival: Arrival) -> Row:
    """Columns of the deliveries table for something that came. By kind of arrival: register others. Raises FileNotFoundError if it went."""
    raise TypeError(f"{type(arrival).__name__} is no kind of arrival that the ledger knows.")


@delivery_row.register
def _(arrival: LandedFile) -> Row:
    size, at = (arrival.size, arrival.modified_at) if arrival.file else (None, None)
    row: Row = {"file": arrival.file, "event": arrival.event, "size": size, "modified_at": at, "sha256": arrival.sha256}
    if arrival.problem is not None:
        return {**row, "event": UNOPENED, "reason": arrival.problem}
    if arrival.event != DELIVERED:
        return row
    try:
        return {**row, "sha256": arrival.sha256 or _hash_regular_file(arrival.path)}
    except FileNotFoundError:
        raise
    except OSError as error:
        return {**row, "event": UNOPENED, "reason": f"the file cannot be opened: {error.strerror}"}


@delivery_row.register
def _(arrival: OffsetRange) -> Row:
    return arrival.row


def find_source_changes(source: Source, landing: Path, known: KnownFiles, within: Interval | None) -> SourceChanges:
    """What came to a source and what is gone. Arguments and errors as of `find_arrivals`; a UsageError, too, where the disk refuses a look."""
    try:
        return find_arrivals(source, landing, known, within)
    except OSError as error:
        raise UsageError(f"Source '{source.name}': {landing / source.path} cannot be looked at: {error.strerror}.") from None


def preview_discovery(source: Source, landing: Path, known: KnownFiles, within: Interval | None = None) -> SourceChanges:
    """What a discovery would find to take: what came, in order, and files that are gone. Arguments and errors as of `find_arrivals`."""
    found = find_source_changes(source, landing, known, within)
    return replace(found, came=[one for one in found.came if one.event == DELIVERED])


def discover_deliveries(
    sources: Sequence[Source],
    landing: Path,
    deliveries: str,
    run: str,
    within: Interval | None = None,
    first: int = 1,
    refused: dict[str, SluiceError] | None = None,
    warnings: dict[str, list[str]] | None = None,
) -> int:
    """Give each new or changed file, and each that is there no more, the next delivery number. Returns how many there are.

    A file that cannot be opened is noted once. It is no delivery until it can be: each discovery tries.

    landing: the pipeline's landing folder. deliveries: the table. within: only files that are there, of dates in this interval.
    first: the number of the first delivery ever. refused: where given, takes the error of each source that cannot be looked at, and the
    others are; else it is raised. warnings: where given, takes what else there is to tell, by source.
    Each commit holds what one micro-batch of each source takes. To be called under the pipeline's lease: the numbers increase.
    """
    ledger.create_delivery_ledger_table(deliveries, ledger.DELIVERIES)
    known = read_known_files(deliveries)
    found = _find_changes_by_source(sources, landing, known, within, refused)
    moving = _find_files_being_written([one for looked in found.values() for one in looked.came if isinstance(one, LandedFile)])
    noted: list[Row] = []
    batches: list[list[list[Row]]] = []
    for source in (source for source in sources if source.name in found):
        looked = found[source.name]
        told = (_new_delivery_row(source, one, looked, known) for one in looked.came if one not in moving)
        rows = [row for row in told if row is not None]
        rows += [{"source": source.name, "file": file, "event": GONE, "size": None} for file in looked.gone]
        if warnings is not None and looked.warnings:
            warnings[source.name] = looked.warnings
        # In one commit: half of what was there before, and the rest would count as new.
        noted += [row for row in rows if row["event"] not in TAKEN]
        taken = [row for row in rows if row["event"] in TAKEN]
        batches.append(
            groups.group_into_micro_batches(source, taken, lambda row: row["size"] if isinstance(row["size"], int) else None)
        )
    nothing: list[Row] = []
    commits = [noted, *([row for group in together for row in group] for together in zip_longest(*batches, fillvalue=nothing))]
    return ledger.append_numbered_deliveries(deliveries, commits, max(known.last, first - 1), run)


def _find_changes_by_source(
    sources: Sequence[Source], landing: Path, known: KnownFiles, within: Interval | None, refused: dict[str, SluiceError] | None
) -> dict[str, SourceChanges]:
    found = {}
    for source in sources:
        try:
            found[source.name] = find_source_changes(source, landing, known, within)
        except SluiceError as error:
            if refused is None:
                raise
            refused[source.name] = error
    return found


def _new_delivery_row(source: Source, one: Arrival, looked: SourceChanges, known: KnownFiles) -> Row | None:
    """The row of something that came; None where the ledger has said it before, or where it went meanwhile."""
    try:
        row = {"source": source.name, "device": looked.device, **delivery_row(one)}
    except FileNotFoundError:
        return None
    is_told = row["event"] == UNOPENED and known.is_unread(known.of(source.name).get(one.file))
    return None if is_told else row


def _list_existing_files(source: Source, landing: Path) -> list[Arrival]:
    """What was there before the source's first discovery. One entry without a name says that there was nothing."""
    there: list[Arrival] = [file._replace(event=EXISTING) for file in list_ready_files(source, landing)]
    return there or [LandedFile("", "", 0, 0, EXISTING)]


def _classify_landed_file(source: Source, file: LandedFile, known: KnownFiles, moved: bool) -> LandedFile | None:
    """What there is to note of a file that is there; None: nothing. moved: its folder is on another device than before."""
    last = known.of(source.name).get(file.file)
    if last is None:
        return file
    unread = known.is_unread(last)
    if file.problem is not None:
        return None if unread else file
    if unread and (last.event == UNOPENED or _matches_known_file(last, file)):
        if not _is_openable_file(file.path):
            return None
    elif last.event != GONE and _matches_known_file(last, file):
        return None
    if (moved or last.event in _BACK) and (again := _recognize_returned_file(file, last.content, known)) is not None:
        return again
    if source.allow_overwrites or not known.was_read(source.name, file.file):
        return file
    # What was missed has not been read: then the change is what there is of it.
    return file._replace(event=IGNORED)


def _matches_known_file(last: LastSeenFile | KnownContent, file: LandedFile) -> bool:
    return (last.size, last.modified) == (file.size, file.modified)


def _recognize_returned_file(file: LandedFile, content: KnownContent | None, known: KnownFiles) -> LandedFile | None:
    """The file, where it has the latest content that is known of its name and that was not missed; else None."""
    if content is None or known.is_missed(content.delivery):
        return None
    if content.sha256 is None:
        return file._replace(event=RETURNED) if _matches_known_file(content, file) else None
    try:
        same = content.size in (None, file.size) and _hash_regular_file(file.path) == content.sha256
    except OSError:
        return None
    return file._replace(event=RETURNED, sha256=content.sha256) if same else None


def _is_no_longer_listed(folder: Path, file: str) -> bool:
    """Whether a file that is missed is not listed any more, and that not for want of a look: it is gone, or nobody asks for it."""
    path = resolve_landed_path(folder, file)
    try:
        path.lstat()
    except OSError:
        return absence.is_path_missing(path)
    return True


def _find_files_being_written(files: Iterable[LandedFile]) -> set[LandedFile]:
    """Those that are still being written: just modified, and another a moment later. One wait for all of them."""
    now = time.time()
    young = [file for file in files if file.event == DELIVERED and 0 <= now - file.modified / 1e6 < YOUNG]
    if not young:
        return set()
    time.sleep(LOOK_AGAIN)
    return {file for file in young if _find_size_and_mtime(file.path) != (file.size, file.modified)}


def _find_size_and_mtime(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns // 1000


def _find_folder_device(folder: Path) -> int | None:
    """The device that a folder is on; None where it is not there."""
    try:
        return folder.stat().st_dev
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_openable_file(path: str) -> bool:
    try:
        _inspect_regular_file(path, lambda descriptor: os.read(descriptor, 1))
    except OSError:
        return False
    return True


def _hash_regular_file(path: str) -> str | None:
    """None of a link, whose target is none of ours, and of what is no file. Raises OSError where it cannot be read."""

    def digest(descriptor: int) -> str:
        with open(descriptor, "rb", closefd=False) as file:  # a Path cannot refuse links
            return hashlib.file_digest(file, "sha256").hexdigest()

    return _inspect_regular_file(path, digest)


def _inspect_regular_file(path: str, look: Callable[[int], Looked]) -> Looked | None:
    """What a look at an open file says; None of a link and of what is no file. Raises OSError."""
    try:
        # Should it be a pipe by now: not to wait for who writes into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        return look(descriptor) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)
