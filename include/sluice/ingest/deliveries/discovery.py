"""Discovery: what is new in a landing folder becomes deliveries.

A run with nothing new lists the folder once and reads a few columns of the deliveries table once, however many files are known; only
new files are opened.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.errors import SluiceError
from sluice.ingest import ledger
from sluice.ingest.deliveries import dates, groups
from sluice.ingest.deliveries.known import CLEANED, EXISTING, GONE, IGNORED, TAKEN, Known, Seen, latest
from sluice.ingest.deliveries.listing import DELIVERED, LandedFile, listing, modified, path_of
from sluice.ingest.topics.offset_ranges import OffsetRange

__all__ = [
    "CLEANED",
    "DELIVERED",
    "EXISTING",
    "GONE",
    "IGNORED",
    "TAKEN",
    "Arrival",
    "Known",
    "LandedFile",
    "arrivals",
    "discover",
    "latest",
    "listing",
    "modified",
    "news",
]

YOUNG, LOOK_AGAIN = 1.0, 0.5
"""Seconds: a file modified less than YOUNG ago is looked at again after LOOK_AGAIN; while it changes it is left for the next run."""

Row = dict[str, object]


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


@functools.singledispatch
def arrivals(source: Source, landing: Path, known: Known, within: Interval | None) -> tuple[list[Arrival], list[str]]:
    """What came to a source, in the order in which it gets its numbers, and which files are gone. By kind of source: register others.

    within: only what is of dates in this interval, and then nothing is said of what is gone. Raises UsageError where the landing folder
    is not there; that of a source which never had one is only waited for.
    """
    seen = known.of(source.name)
    if not seen and landing.is_dir() and not (landing / source.path).exists():
        return [], []
    if not source.include_existing_files and not seen:
        return _existing(source, landing), []
    here = {file.file: file for file in listing(source, landing)}
    fresh = [_judged(source, file, known) for file in here.values() if _is_new(file, seen.get(file.file))]
    fresh.sort(key=lambda file: (file.modified, file.file))
    if within is not None:
        return [file for file in fresh if dates.of_file(source, file.file, file.modified_at) in within], []
    folder = landing / source.path
    missing = [file for file, last in seen.items() if file and last.event in (DELIVERED, EXISTING) and file not in here]
    # A file that the source does not ask for any more, or whose marker went, is still there.
    return [*fresh], sorted(file for file in missing if _is_gone(path_of(folder, file)))


@arrivals.register
def _(source: KafkaSource, landing: Path, known: Known, within: Interval | None) -> tuple[list[Arrival], list[str]]:
    from sluice.ingest.topics import offsets  # its client is loaded only where topics are read

    return [*offsets.arrivals(source, known.deliveries, within)], []


@functools.singledispatch
def row_of(arrival: Arrival) -> Row:
    """Columns of the deliveries table for something that came. By kind of arrival: register others."""
    raise TypeError(f"{type(arrival).__name__} is no kind of arrival that the ledger knows.")


@row_of.register
def _(arrival: LandedFile) -> Row:
    size, at = (arrival.size, arrival.modified_at) if arrival.file else (None, None)
    sha256 = _sha256(arrival.path) if arrival.event == DELIVERED else None
    return {"file": arrival.file, "event": arrival.event, "size": size, "modified_at": at, "sha256": sha256}


@row_of.register
def _(arrival: OffsetRange) -> Row:
    return arrival.row


def news(source: Source, landing: Path, known: Known, within: Interval | None = None) -> tuple[list[Arrival], list[str]]:
    """What a discovery would find to take: what came, in order, and files that are gone. Arguments and errors as of `arrivals`."""
    came, gone = arrivals(source, landing, known, within)
    return [one for one in came if one.event == DELIVERED], gone


def discover(
    sources: Sequence[Source],
    landing: Path,
    deliveries: str,
    run: str,
    within: Interval | None = None,
    first: int = 1,
    refused: dict[str, SluiceError] | None = None,
) -> int:
    """Give each new or changed file, and each that is there no more, the next delivery number. Returns how many there are.

    landing: the pipeline's landing folder. deliveries: the table. within: only files that are there, of dates in this interval.
    first: the number of the first delivery ever. refused: where given, takes the error of each source that cannot be looked at, and the
    others are; else it is raised.
    Each commit holds what one micro-batch of each source takes. To be called under the pipeline's lease: the numbers increase.
    """
    ledger.create(deliveries, ledger.DELIVERIES)
    known = latest(deliveries)
    found = _found(sources, landing, known, within, refused)
    moving = _moving([one for came, _ in found.values() for one in came if isinstance(one, LandedFile)])
    noted: list[Row] = []
    batches: list[list[list[Row]]] = []
    for source in (source for source in sources if source.name in found):
        came, gone = found[source.name]
        rows: list[Row] = [{"source": source.name, **row_of(one)} for one in came if one not in moving]
        rows += [{"source": source.name, "file": file, "event": GONE, "size": None} for file in gone]
        # In one commit: half of what was there before, and the rest would count as new.
        noted += [row for row in rows if row["event"] not in TAKEN]
        taken = [row for row in rows if row["event"] in TAKEN]
        batches.append(groups.of_source(source, taken, lambda row: row["size"] if isinstance(row["size"], int) else None))
    nothing: list[Row] = []
    commits = [noted, *([row for group in together for row in group] for together in zip_longest(*batches, fillvalue=nothing))]
    return ledger.append_numbered(deliveries, commits, max(known.last, first - 1), run)


def _found(
    sources: Sequence[Source], landing: Path, known: Known, within: Interval | None, refused: dict[str, SluiceError] | None
) -> dict[str, tuple[list[Arrival], list[str]]]:
    found = {}
    for source in sources:
        try:
            found[source.name] = arrivals(source, landing, known, within)
        except SluiceError as error:
            if refused is None:
                raise
            refused[source.name] = error
    return found


def _existing(source: Source, landing: Path) -> list[Arrival]:
    """What was there before the source's first discovery. One entry without a name says that there was nothing."""
    there: list[Arrival] = [file._replace(event=EXISTING) for file in listing(source, landing)]
    return there or [LandedFile("", "", 0, 0, EXISTING)]


def _judged(source: Source, file: LandedFile, known: Known) -> LandedFile:
    if source.allow_overwrites or file.file not in known.of(source.name):
        return file
    # What was missed has not been read: then the change is what there is of it.
    return file._replace(event=IGNORED) if known.was_read(source.name, file.file) else file


def _is_new(file: LandedFile, last: Seen | None) -> bool:
    return last is None or last.event == GONE or (last.size, last.modified) != (file.size, file.modified)


def _is_gone(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # its folder may not be looked into now
        return False
    return False


def _moving(files: Iterable[LandedFile]) -> set[LandedFile]:
    """Those that are still being written: just modified, and another a moment later. One wait for all of them."""
    now = time.time()
    young = [file for file in files if file.event == DELIVERED and 0 <= now - file.modified / 1e6 < YOUNG]
    if not young:
        return set()
    time.sleep(LOOK_AGAIN)
    return {file for file in young if _now(file.path) != (file.size, file.modified)}


def _now(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns // 1000


def _sha256(path: str) -> str | None:
    """None of what cannot be read, and of a link: its target is none of ours."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123  # a Path cannot refuse links
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
