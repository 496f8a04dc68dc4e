"""Records when a source's folder was last listed in full, for sources that learn of new objects in another way in between.

A small file beside the ledger has that time, with the folder and the pattern of names; if these change, the folder is listed in full again. It
is written after all findings of the listing are in the ledger. Without it, or if it cannot be read, the next listing is a full one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sluice.declare.ingest.new_objects import find_full_listing_interval
from sluice.declare.ingest.source import Source
from sluice.durable_files import KeptFileDamaged, load_kept_object, write_json_durably
from sluice.locations import Location, is_on_disk, locate

FULL_LISTINGS = "full_listings"
"""The folder beside the ledger."""


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

    began: when the calling run began. For a source with events it is returned, since only their place knows what is new.
    """
    found = []
    for source in sources:
        if is_listed_in_part(source, landing / source.path):
            due = find_next_full_listing(deliveries, source, landing / source.path)
            found.append(began if source.events is not None or due is None else due)
    return found


def _locate_note(deliveries: str, source: Source) -> Location:
    return locate(deliveries).parent / FULL_LISTINGS / f"{source.name}.json"
