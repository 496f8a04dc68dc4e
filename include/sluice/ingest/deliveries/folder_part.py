"""Examines a part of a source's folder on a store: names after the greatest known one, or names from events.

Both also include missed files, so that each run tries them again. Only a full listing finds anything else; when a source's
folder had its last one is recorded here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

from sluice.declare.ingest.new_objects import find_full_listing_interval
from sluice.declare.ingest.source import Source
from sluice.durable_files import KeptFileDamaged, load_kept_object, write_json_durably
from sluice.ingest.deliveries.known_files import KnownFiles
from sluice.ingest.deliveries.landed_file import LandedFile
from sluice.ingest.deliveries.listing import find_named_objects, list_ready_files
from sluice.ingest.deliveries.object_events import NoEvents, ReceivedEvents, count_events, receive_events
from sluice.ingest.deliveries.seen_files import CONTENT, SeenFiles
from sluice.locations import Location, is_on_disk, locate
from sluice.own_records import FULL_LISTINGS
from sluice.printable import count_noun, match_number
from sluice.record_states import DELIVERED
from sluice.stores.store_location import StoreLocation

# Records when a source's folder was last listed in full, for sources that learn of new objects in another way in between.
#
# A small file beside the ledger has that time, with the folder and the pattern of names; if these change, the folder is listed in full again. It
# is written after all findings of the listing are in the ledger. Without it, or if it cannot be read, the next listing is a full one.


@dataclass(frozen=True)
class FullListing:
    """A listing that left nothing out. began: when (UTC). asked: the folder and the pattern of names."""

    began: datetime
    asked: str


def is_listed_in_part(source: Source, folder: Location) -> bool:
    """Whether some looks at a source list only a part of its folder."""
    return source.kind.in_files and not is_on_disk(folder) and find_full_listing_interval(source) is not None


def begin_full_listing(source: Source, folder: Location) -> FullListing | None:
    """Returns the record of a full listing that begins now, or None if every listing is full."""
    if not is_listed_in_part(source, folder):
        return None
    return FullListing(datetime.now(UTC), f"{folder} {source.pattern}")


def note_full_listing(deliveries: str, source: Source, listing: FullListing) -> None:
    """Records a full listing. deliveries: the ledger's table. Call it under the lease, once all its findings are in the ledger."""
    path = _locate_note(deliveries, source)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_durably(path, {"began": listing.began.isoformat(), "asked": listing.asked})


def find_next_full_listing(deliveries: str, source: Source, folder: Location) -> datetime | None:
    """Returns when the source's folder must be listed in full (UTC). None: now, or every listing is full."""
    every, asked = find_full_listing_interval(source), begin_full_listing(source, folder)
    if every is None or asked is None:
        return None
    try:
        said = load_kept_object(_locate_note(deliveries, source), "when a folder was listed in full", "Remove it.")
        last = FullListing(datetime.fromisoformat(said["began"]), said["asked"])
        # A clock that was set back must not delay the next one.
        is_due = last.asked != asked.asked or not last.began <= asked.began < last.began + every
    except (OSError, KeptFileDamaged, KeyError, TypeError, ValueError):
        return None
    return None if is_due else last.began + every


def find_ends_of_partial_listings(
    deliveries: str, sources: Iterable[Source], landing: Location, began: datetime
) -> list[datetime]:
    """Returns when sources that runs list only in part must be listed in full: if nothing comes, that is a reason to run.

    began: when the calling run began. For a source with events it is returned, since only their address knows what is new.
    """
    found = []
    for source in sources:
        if is_listed_in_part(source, landing / source.path):
            due = find_next_full_listing(deliveries, source, landing / source.path)
            found.append(began if source.events is not None or due is None else due)
    return found


def _locate_note(deliveries: str, source: Source) -> Location:
    return locate(deliveries).parent / FULL_LISTINGS.name / f"{source.name}.json"


_STRANGE_BEFORE: dict[str, int] = {}
"""How many messages about other things this process has left, by address of events."""


@dataclass(frozen=True)
class FolderPart:
    """The examined part of a folder. files: the existing ones; None: the folder must be listed in full after all.

    gone: names of known files that no longer exist. events: those that named files. left_out: what the look leaves out.
    """

    files: Iterable[LandedFile] | None = None
    gone: Sequence[str] = ()
    events: ReceivedEvents | None = None
    warnings: tuple[str, ...] = ()
    left_out: str = ""


def choose_folder_part(source: Source, landing: Location, known: KnownFiles, takes: bool) -> FolderPart | None:
    """Returns the part of a source's folder to examine; None: all of it. takes: whether events may be taken; if not, they cannot be read.

    Raises SluiceError if the store does not answer.
    """
    folder = landing / source.path
    due = find_next_full_listing(known.deliveries, source, folder)
    greatest = known.files_of_source(source.name).find_greatest_name()
    if due is None or greatest is None or not isinstance(folder, StoreLocation) or (source.events is not None and not takes):
        return None
    if source.events is None:
        return _look_at_names(source, folder, landing, known, greatest, due, None)
    try:
        events = receive_events(source, folder, landing)
    except NoEvents as error:
        return FolderPart(warnings=(f"{error}: all of {folder} was listed instead",))
    _STRANGE_BEFORE[source.events] = events.strange
    if not events.is_all:
        return FolderPart(events=events)
    with given_back_on_failure(events):
        return _look_at_names(source, folder, landing, known, greatest, due, events)


def _look_at_names(
    source: Source,
    folder: StoreLocation,
    landing: Location,
    known: KnownFiles,
    greatest: str,
    due: datetime,
    events: ReceivedEvents | None,
) -> FolderPart:
    seen = known.files_of_source(source.name)
    asked = {greatest, *known.unread_files(source.name), *(events.names if events else ())}
    there = dict(find_named_objects(source, folder, sorted(asked)))
    if there.get(greatest, greatest) is None and seen[greatest].event in CONTENT:
        return FolderPart(events=events)  # perhaps nothing is left
    gone = [name for name, file in there.items() if file is None and _should_be_there(name, seen, known)]
    later = () if events else list_ready_files(source, landing, after=greatest)
    strange = events.strange if events else 0
    count = f"{count_noun(strange, 'message')} of {source.events}"
    told = f"{count} about something else, or that cannot be read: nothing was taken of that"
    return FolderPart(
        chain((file for file in there.values() if file is not None), later),
        gone,
        events,
        (told,) if strange else (),
        f"of {folder} only names after those that are known are listed before {due:%Y-%m-%d %H:%M} UTC",
    )


def _should_be_there(name: str, seen: SeenFiles, known: KnownFiles) -> bool:
    last = seen.get(name)
    return last is not None and (last.event in CONTENT or known.is_unread(last))


@contextmanager
def given_back_on_failure(*received: ReceivedEvents | None) -> Iterator[None]:
    """If the block fails, events become visible again at once instead of after a while."""
    try:
        yield
    except Exception:
        for events in received:
            with suppress(NoEvents):
                if events is not None:
                    events.give_back()
        raise


def warn_of_names_that_do_not_grow(source: Source, seen: SeenFiles, fresh: Iterable[LandedFile]) -> str | None:
    """Returns the warning for objects of a full listing that a listing of later names would have missed, or None. seen: what was known before."""
    greatest = seen.find_greatest_name()
    if not source.names_grow or greatest is None:
        return None
    late = sum(file.event == DELIVERED and file.file <= greatest for file in fresh)
    if not late:
        return None
    return (
        f"{count_noun(late, 'object')} of source '{source.name}' that a full listing found "
        f"{match_number(late, 'is', 'are')} overwritten, or their names do not come after those that "
        "were there before, as names_grow=True says: until a full listing nothing shows of such objects."
    )


def may_have_news(source: Source, landing: Location, known: KnownFiles) -> bool | None:
    """Whether a discovery may find something, as far as one can tell without it. None: only a look at the folder tells.

    True if the source is due for a full listing, or if more events wait than were left there as about other things.
    """
    folder = landing / source.path
    if not isinstance(folder, StoreLocation) or not (source.names_grow or source.events):
        return None
    if find_next_full_listing(known.deliveries, source, folder) is None:
        return True
    if source.events is None:
        return None
    try:
        return count_events(source, landing) > _STRANGE_BEFORE.get(source.events, 0) or bool(known.unread_files(source.name))
    except NoEvents:
        return True
