"""Events in files of a folder below the pipeline's landing folder, on a disk or a store: one message per file or per line.

Files are removed once their objects are recorded. A file about something else is moved to the folder `_strange` beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from sluice.ingest.deliveries.object_events import MOST_EVENTS, NoEvents, ReceivedEvents, read_object_names
from sluice.locations import Location
from sluice.stores.store_location import StoreLocation

STRANGE = "_strange"
"""The folder for files that are about something else."""


@dataclass(frozen=True)
class FiledEvents(ReceivedEvents):
    """files: those about the source's objects, each with its content. others: the strange ones."""

    files: tuple[Location, ...]
    others: tuple[Location, ...]

    def acknowledge(self) -> None:
        """Remove the files, and move the strange ones aside."""
        with _raise_no_events():
            for file in self.files:
                file.unlink(missing_ok=True)
            for file in self.others:
                aside = file.parent / STRANGE
                aside.mkdir(exist_ok=True)
                file.rename(aside / file.name)

    def give_back(self) -> None:
        """Do nothing: all files still exist."""


def receive_events(address: str, folder: StoreLocation, landing: Location) -> FiledEvents:
    """Reads the files of a folder, folder://FOLDER. Raises NoEvents."""
    ours: list[Location] = []
    others: list[Location] = []
    names: set[str] = set()
    with _raise_no_events():
        waiting = _list_event_files(address, landing)
        for file in islice(waiting, MOST_EVENTS):
            found = _read_names(file.read_bytes(), folder)
            (others if found is None else ours).append(file)
            names.update(found or ())
        is_all = next(waiting, None) is None
    return FiledEvents(frozenset(names), len(others), is_all, tuple(ours), tuple(others))


def count_events(address: str, landing: Location) -> int:
    """Returns how many files wait, up to the number that one discovery takes. Raises NoEvents."""
    with _raise_no_events():
        return sum(1 for _ in islice(_list_event_files(address, landing), MOST_EVENTS))


def _list_event_files(address: str, landing: Location) -> Iterator[Location]:
    """The files directly in the folder, by name; empty if there is no such folder. Leaves out names that begin with a dot or an underscore."""
    try:
        found = sorted((landing / address.removeprefix("folder://")).iterdir())
    except FileNotFoundError:
        return iter(())
    return (file for file in found if not file.name.startswith((".", "_")) and file.is_file())


def _read_names(content: bytes, folder: StoreLocation) -> list[str] | None:
    whole = read_object_names(content, folder)
    if whole is not None:
        return whole
    lines = [read_object_names(line, folder) for line in content.splitlines() if line.strip()]
    told = [names for names in lines if names is not None]
    return [name for names in told for name in names] if lines and len(told) == len(lines) else None


@contextmanager
def _raise_no_events() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoEvents(f"the folder of events cannot be looked at: {error.strerror}") from None
