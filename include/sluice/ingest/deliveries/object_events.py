"""Reads a store's events: finds the objects that each message is about, and acknowledges the messages in the end.

Events may come twice, late, in any order, about objects that are gone, or not at all. So they only say which names to examine.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from sluice.declare.ingest.new_objects import find_event_address_kind
from sluice.declare.ingest.source import Source
from sluice.locations import Location
from sluice.stores.store_location import StoreLocation

MOST_EVENTS = 10_000
"""The most messages that one discovery takes. If more wait, listing all objects costs less than asking for each."""


class NoEvents(Exception):
    """The address of events does not answer. The message says what went wrong, and quotes nothing of what was sent."""


@dataclass(frozen=True)
class ReceivedEvents(ABC):
    """Messages that were taken from an address, and stay there until their objects are recorded.

    names: of objects below the source's folder, each once. strange: how many messages are about something else, or cannot be read; they are
    left there. is_all: whether nothing more waited.
    """

    names: frozenset[str]
    strange: int
    is_all: bool

    @abstractmethod
    def acknowledge(self) -> None:
        """Remove the messages whose objects are recorded. Raises NoEvents; the messages then come again."""

    @abstractmethod
    def give_back(self) -> None:
        """Leave all messages there for the next discovery. Raises NoEvents."""


def receive_events(source: Source, folder: StoreLocation, landing: Location) -> ReceivedEvents:
    """Takes the events of a source that has an address for them. Raises NoEvents."""
    address = str(source.events)
    return find_event_address_kind(address).receive_events(address, folder, landing)


def count_events(source: Source, landing: Location) -> int:
    """Returns about how many messages wait for a source, without taking any. Raises NoEvents."""
    address = str(source.events)
    return find_event_address_kind(address).count_events(address, landing)


def read_object_names(body: str | bytes, folder: StoreLocation) -> list[str] | None:
    """Returns the names below a folder that a message is about; [] if it is a store's trial message. None: it is about something else.

    It knows S3's own form, the same in a message of SNS, and EventBridge's.
    """
    try:
        found = [_find_object_key(one, folder) for one in _list_events(json.loads(body))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if any(key is None for key in found):
        return None
    prefix = f"{folder.object_key}/"
    names = [key[len(prefix) :] for key in found if key is not None and key.startswith(prefix) and key != prefix]
    return names if names or not found else None


def _list_events(said: Any) -> Iterator[Mapping[str, Any]]:
    if said.get("Type") == "Notification" and "Message" in said:
        said = json.loads(said["Message"])
    if said.get("Event") == "s3:TestEvent":
        return
    yield from said.get("Records", [said])


def _find_object_key(event: Mapping[str, Any], folder: StoreLocation) -> str | None:
    """Returns the key of the object that an event is about; None if that is in another bucket. Raises KeyError for an event of another kind."""
    of_bridge = event.get("source") == "aws.s3"
    if not of_bridge and not str(event["eventSource"]).endswith(":s3"):
        raise KeyError("eventSource")
    about = event["detail"] if of_bridge else event["s3"]
    key = str(about["object"]["key"])
    return (key if of_bridge else unquote_plus(key)) if about["bucket"]["name"] == folder.bucket_url.partition("://")[2] else None
