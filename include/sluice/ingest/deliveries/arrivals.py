"""Finds what came to a source and what is gone, by a comparison with the ledger, for each kind of source."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.delivery_rows import DeliveryRow
from sluice.ingest.deliveries import absence
from sluice.ingest.deliveries.folder_part import (
    FolderPart,
    FullListing,
    begin_full_listing,
    choose_folder_part,
    given_back_on_failure,
    warn_of_names_that_do_not_grow,
)
from sluice.ingest.deliveries.known_files import FolderComparison, KnownFiles, compare_with_known_files
from sluice.ingest.deliveries.landed_file import LandedFile, hash_regular_file, is_openable_file, resolve_landed_path
from sluice.ingest.deliveries.listing import explain_landing_error, find_folder_device, list_ready_files, require_landing_folder
from sluice.ingest.deliveries.object_events import ReceivedEvents
from sluice.ingest.deliveries.seen_files import KnownContent, LastSeenFile
from sluice.ingest.files import paths
from sluice.ingest.topics.offset_ranges import OffsetRange
from sluice.locations import Location, is_on_disk
from sluice.record_states import CLEANED, DELIVERED, EXISTING, IGNORED, RETURNED, UNOPENED, VANISHED

_BACK = (VANISHED, CLEANED, UNOPENED)
"""After these events, a file that has its known content again is not new."""
_NOTHING_EXISTED = LandedFile("", "", 0, 0, EXISTING)
"""What a first discovery records that found nothing, of a source that does not include existing files and of one without a topic."""


class Arrival(Protocol):
    """Something that came: a LandedFile, or what another kind of source delivers. size: in bytes, if known."""

    @property
    def file(self) -> str:
        """Its name in the ledger."""

    @property
    def size(self) -> int | None:
        """Its size in bytes."""

    @property
    def modified_at(self) -> datetime | None:
        """When it was made, in UTC."""

    @property
    def event(self) -> str:
        """Its event in the ledger: DELIVERED, or another."""


@dataclass(frozen=True)
class Look:
    """The options of a look at a source. within: only deliveries of dates in this interval. in_full: leave nothing out, whatever the source declares.

    takes: the findings will be recorded, so events may be taken from their address.
    """

    within: Interval | None = None
    in_full: bool = False
    takes: bool = False


@dataclass(frozen=True)
class SourceChanges:
    """The findings of a look at a source.

    came: what came, in the order of its numbers. gone: files that do not exist any more. device: the device that the folder is on. warnings:
    further reports. full_listing: to be recorded once all of this is in the ledger; `events` are acknowledged then too. left_out: what the
    look left out, "" if nothing.
    """

    came: list[Arrival] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    device: int | None = None
    warnings: list[str] = field(default_factory=list)
    full_listing: FullListing | None = None
    events: ReceivedEvents | None = None
    left_out: str = ""

    @property
    def is_new(self) -> bool:
        """Whether there is anything to record in the ledger."""
        return bool(self.came or self.gone)


def find_arrived_files(source: Source, landing: Location, known: KnownFiles, look: Look) -> SourceChanges:
    """Returns what came to a landing folder and what is gone from it.

    A look within an interval does not report missing files. Raises UsageError if the landing folder is missing or has none of its files. If a
    source never had a folder, Sluice waits for it.
    """
    seen = known.files_of_source(source.name)
    folder = landing / source.path
    if _never_had_folder(source, known) and landing.is_dir() and not folder.exists():
        # Nothing existed before the first discovery, so that the files that come with the folder are new.
        is_first = not source.include_existing_files and not seen and look.within is None
        return SourceChanges([_NOTHING_EXISTED] if is_first else [])
    if not seen and not is_on_disk(folder):
        require_landing_folder(source, landing, landing)
    part = None if look.within or look.in_full else choose_folder_part(source, landing, known, look.takes)
    if part is not None and part.files is not None:
        return _find_changes_in_part(source, known, part, find_folder_device(folder))
    full_listing = None if look.within else begin_full_listing(source, folder)
    if not source.include_existing_files and not seen:
        existing = _list_existing_files(source, landing)
        return SourceChanges(existing, device=find_folder_device(folder), full_listing=full_listing)
    device = find_folder_device(folder)
    moved = device is not None and device != known.devices.get(source.name, device)
    is_listed = device is not None or next(seen.expected_files(), None) is None
    looked = compare_with_known_files(source.name, list_ready_files(source, landing) if is_listed else (), known)
    absence.refuse_absent_folder(source, landing, seen, looked.alive, moved)
    fresh = _judge_files(source, looked, known, moved)
    if look.within is not None:
        inside = [file for file in fresh if paths.find_delivery_date(source, file.file, file.modified_at) in look.within]
        return SourceChanges([*inside], device=device)
    # A file that the source no longer asks for, or whose marker is gone, still exists.
    missing = seen.expected_files(looked.listed)
    gone = [file for file in missing if absence.is_path_missing(resolve_landed_path(folder, file, seen))]
    unread = known.unread_files(source.name, looked.listed)
    over = [file for file in unread if file not in gone and _is_no_longer_listed(resolve_landed_path(folder, file, seen))]
    told = [
        absence.vanished_files_warning(folder, len(gone), seen),
        None if full_listing is None else warn_of_names_that_do_not_grow(source, seen, fresh),
        *(part.warnings if part else ()),
    ]
    warnings = [one for one in told if one]
    return SourceChanges(
        [*fresh], sorted([*gone, *over]), device, warnings, full_listing=full_listing, events=part.events if part else None
    )


def _never_had_folder(source: Source, known: KnownFiles) -> bool:
    """Whether the ledger knows no file of a source, nor a device that its folder was on."""
    return known.files_of_source(source.name).find_greatest_name() is None and source.name not in known.devices


def _find_changes_in_part(source: Source, known: KnownFiles, part: FolderPart, device: int | None) -> SourceChanges:
    """Returns what came and what is gone, as far as a part of a folder shows it."""
    with given_back_on_failure(part.events):
        fresh = _judge_files(source, compare_with_known_files(source.name, part.files or (), known), known, moved=False)
    return SourceChanges([*fresh], sorted(part.gone), device, [*part.warnings], events=part.events, left_out=part.left_out)


def _judge_files(source: Source, looked: FolderComparison, known: KnownFiles, moved: bool) -> list[LandedFile]:
    """Returns what must be recorded about files, in the order of their numbers."""
    judged = (_classify_landed_file(source, file, last, known, moved) for file, last in looked.changed)
    return sorted((file for file in judged if file is not None), key=lambda file: (file.modified, file.file))


def find_arrived_offsets(source: KafkaSource, landing: Location, known: KnownFiles, look: Look) -> SourceChanges:
    """Returns what came to topics. Errors are those of `find_arrived_offset_ranges`."""
    from sluice.ingest.topics import offsets  # its client is loaded only if topics are read

    was_looked_at = len(known.files_of_source(source.name)) > 0
    came = offsets.find_arrived_offset_ranges(source, known.deliveries, look.within, was_looked_at)
    # Otherwise the next run would be the first, and skip what the first topic has by then if it starts at the latest offsets.
    is_first = not came and not was_looked_at and look.within is None
    return SourceChanges([_NOTHING_EXISTED] if is_first else [*came])


@functools.singledispatch
def delivery_row(arrival: Arrival) -> DeliveryRow:
    """Returns columns of the deliveries table for an arrival; other kinds of arrival are registered. Raises FileNotFoundError if it is gone."""
    raise TypeError(f"{type(arrival).__name__} is no kind of arrival that the ledger knows.")


@delivery_row.register
def _(arrival: LandedFile) -> DeliveryRow:
    size, at = (arrival.size, arrival.modified_at) if arrival.file else (None, None)
    row: DeliveryRow = {"file": arrival.file, "event": arrival.event, "size": size, "modified_at": at, "etag": arrival.etag}
    row["sha256"] = arrival.sha256
    if arrival.problem is not None:
        return {**row, "event": UNOPENED, "reason": arrival.problem}
    if arrival.event != DELIVERED:
        return row
    try:
        return {**row, "sha256": arrival.sha256 or hash_regular_file(arrival.path)}
    except FileNotFoundError:
        raise
    except OSError as error:
        return {**row, "event": UNOPENED, "reason": f"the file cannot be opened: {error.strerror}"}


@delivery_row.register
def _(arrival: OffsetRange) -> DeliveryRow:
    return arrival.row


def find_source_changes(source: Source, landing: Location, known: KnownFiles, look: Look) -> SourceChanges:
    """Returns what came to a source and what is gone. Arguments and errors are those of `find_arrived_files`; also SluiceError if the disk fails."""
    try:
        return source.kind.find_arrivals(source, landing, known, look)
    except OSError as error:
        raise explain_landing_error(f"Source '{source.name}': {landing / source.path} cannot be looked at", error) from None


def _list_existing_files(source: Source, landing: Location) -> list[Arrival]:
    """Returns what existed before the source's first discovery. One entry without a name means that there was nothing."""
    there: list[Arrival] = [file._replace(event=EXISTING) for file in list_ready_files(source, landing)]
    return there or [_NOTHING_EXISTED]


def _classify_landed_file(
    source: Source, file: LandedFile, last: LastSeenFile | None, known: KnownFiles, moved: bool
) -> LandedFile | None:
    """Returns what must be recorded about an existing file, or None. last: what is known of it.

    moved: whether its folder is on another device than before.
    """
    if last is None:
        return file
    unread = known.is_unread(last)
    if file.problem is not None:
        return None if unread else file
    if unread and (last.event == UNOPENED or last.state.is_same(file.state)):
        if not is_openable_file(file.path):
            return None
    elif last.event != VANISHED and last.state.is_same(file.state):
        return None
    if (moved or last.event in _BACK) and (again := _recognize_returned_file(file, last.content, known)) is not None:
        return again
    if source.allow_overwrites or not known.was_read(source.name, file.file):
        return file
    # A missed delivery was never read, so only the changed file is left of it.
    return file._replace(event=IGNORED)


def _recognize_returned_file(file: LandedFile, content: KnownContent | None, known: KnownFiles) -> LandedFile | None:
    """Returns the file if it has the latest known content of its name and that was not missed. Otherwise None.

    Asks for the content, not for the state: a file that comes back, or whose disk is another one, may have another time.
    """
    if content is None or known.is_missed(content.delivery):
        return None
    if content.sha256 is None:
        return file._replace(event=RETURNED) if content.state.is_same(file.state) else None
    try:
        same = content.size in (None, file.size) and hash_regular_file(file.path) == content.sha256
    except OSError:
        return None
    return file._replace(event=RETURNED, sha256=content.sha256) if same else None


def _is_no_longer_listed(path: Location) -> bool:
    """Whether a missed file is really no longer listed: it is gone, or the source no longer reads it. False if its folder could not be read."""
    try:
        path.lstat()
    except OSError:
        return absence.is_path_missing(path)
    return True
