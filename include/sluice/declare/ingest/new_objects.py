"""The ways in which a source on a store learns of new objects between two full listings, and the kinds of addresses at which events arrive."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sluice.declare.pipeline import is_interval, parse_duration
from sluice.errors import nearest_name_hint
from sluice.named_functions import NamedFunction

if TYPE_CHECKING:
    from sluice.declare.ingest.source import Source
    from sluice.ingest.deliveries.object_events import ReceivedEvents
    from sluice.locations import Location
    from sluice.stores.store_location import StoreLocation

_EVERY = "1 day"


@dataclass(frozen=True, kw_only=True)
class EventAddressKind:
    """A kind of address at which a store's events arrive. To add one, write an entry of `EVENT_ADDRESS_KINDS` and the two functions that it names.

    written: how the option `events` names such an address. pattern: what it must match as a whole. receive_events: (address, the source's
    folder, the pipeline's landing folder) takes the waiting events. count_events: (address, the pipeline's landing folder) estimates how
    many wait.
    """

    written: str
    pattern: re.Pattern[str]
    receive_events: NamedFunction[[str, StoreLocation, Location], ReceivedEvents]
    count_events: NamedFunction[[str, Location], int]


EVENT_ADDRESS_KINDS: Mapping[str, EventAddressKind] = {
    "sqs": EventAddressKind(
        written="sqs://QUEUE or sqs://ACCOUNT/QUEUE",
        pattern=re.compile(r"sqs://(\d{12}/)?[A-Za-z0-9_-]{1,80}(\.fifo)?"),
        receive_events=NamedFunction("sluice.ingest.deliveries.event_queue:receive_events"),
        count_events=NamedFunction("sluice.ingest.deliveries.event_queue:count_events"),
    ),
    "folder": EventAddressKind(
        written="folder://FOLDER, below <landing>/<pipeline>/",
        pattern=re.compile(r"folder://(?!\.)[^/\s]+(/(?!\.)[^/\s]+)*"),
        receive_events=NamedFunction("sluice.ingest.deliveries.event_folder:receive_events"),
        count_events=NamedFunction("sluice.ingest.deliveries.event_folder:count_events"),
    ),
}
"""By the scheme with which the option `events` begins."""


def find_event_address_kind(events: str) -> EventAddressKind:
    """Returns the kind of an address that was checked."""
    return EVENT_ADDRESS_KINDS[events.partition("://")[0]]


def find_full_listing_interval(source: Source) -> timedelta | None:
    """Returns how old a source's last full listing may be if it learns of new objects in another way. None if every listing is full."""
    if not source.names_grow and source.events is None:
        return None
    return parse_duration(source.full_listing_every or _EVERY)


def find_new_objects_mistake(source: Source) -> str | None:
    """Checks the options names_grow, events and full_listing_every."""
    said = [name for name in ("names_grow", "events") if getattr(source, name)]
    if len(said) > 1:
        return "names_grow or events says how new objects are found, not both."
    if source.full_listing_every is not None and not said:
        return "full_listing_every needs names_grow or events: without them every listing is a full one."
    if source.full_listing_every is not None and not is_interval(source.full_listing_every):
        return f"full_listing_every is an interval such as '{_EVERY}', not '{source.full_listing_every}'."
    if said and source.ready_marker is not None:
        return f"{said[0]} would miss a file that waits for its marker: leave out {said[0]} or ready_marker."
    return _find_event_address_mistake(source.events, source.path) if source.events is not None else None


def _find_event_address_mistake(events: str, path: str) -> str | None:
    scheme, _, folder = events.partition("://")
    written = "; ".join(kind.written for kind in EVENT_ADDRESS_KINDS.values())
    if scheme not in EVENT_ADDRESS_KINDS:
        return f"events names no kind of address in '{events}': {written}.{nearest_name_hint(scheme, EVENT_ADDRESS_KINDS)}"
    if EVENT_ADDRESS_KINDS[scheme].pattern.fullmatch(events) is None:
        return f"events is written {EVENT_ADDRESS_KINDS[scheme].written}, not '{events}'."
    if f"{folder}/".startswith(f"{path}/") or f"{path}/".startswith(f"{folder}/"):
        return f"events lie in '{folder}', and the source reads '{path}': neither may be in the other."
    return None
