"""Discovery: new files in a landing folder become deliveries, in groups that micro-batches take within the limits of the source.

A run with nothing new lists the folder once and reads a few columns of the deliveries table once, however many files are known. Only new
files are opened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeVar

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.delivery_rows import DeliveryRow
from sluice.errors import SluiceError
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.arrivals import Arrival, Look, SourceChanges, delivery_row, find_source_changes
from sluice.ingest.deliveries.folder_part import given_back_on_failure, note_full_listing
from sluice.ingest.deliveries.known_files import KnownFiles, read_known_files
from sluice.ingest.deliveries.landed_file import LandedFile
from sluice.ingest.deliveries.listing import find_files_being_written
from sluice.ingest.deliveries.object_events import NoEvents
from sluice.ingest.topics.offset_ranges import parse_offset_range
from sluice.locations import Location
from sluice.record_states import DELIVERED, TAKEN, UNOPENED, VANISHED
from sluice.record_tables import create_record_table
from sluice.work_progress import count_work

Item = TypeVar("Item", bound=Mapping[str, Any])


def preview_discovery(source: Source, landing: Location, known: KnownFiles, within: Interval | None = None) -> SourceChanges:
    """Returns what a discovery would find: arrivals, in order, and missing files. Arguments and errors are those of `find_source_changes`."""
    found = find_source_changes(source, landing, known, Look(within))
    return replace(found, came=[one for one in found.came if one.event == DELIVERED])


@dataclass(frozen=True)
class DiscoveryOptions:
    """The options of a discovery.

    within: only existing files of dates in this interval. first: the number of the first delivery ever. in_full: list every folder in full,
    whatever its source declares.
    """

    within: Interval | None = None
    first: int = 1
    in_full: bool = False


EVERYTHING_NEW = DiscoveryOptions()


@dataclass(frozen=True)
class Discovery:
    """What a discovery did. recorded: how many rows the ledger has got. refused: by source that could not be listed, why. warnings: by source."""

    recorded: int
    refused: Mapping[str, SluiceError]
    warnings: Mapping[str, Sequence[str]]

    def raise_first_refusal(self) -> Discovery:
        """Raises why the first source could not be listed, if there is one. Returns this discovery."""
        for error in self.refused.values():
            raise error
        return self


def discover_deliveries(
    sources: Sequence[Source], landing: Location, deliveries: str, run: str, options: DiscoveryOptions = EVERYTHING_NEW
) -> Discovery:
    """Gives the next delivery number to each new, changed or missing file. A source that cannot be listed keeps no other from it.

    A file that cannot be opened is recorded once. It becomes a delivery when it can be opened; each discovery tries.

    landing: the pipeline's landing folder. deliveries: the table.
    Each commit holds what one micro-batch of each source takes. Call it under the pipeline's lease: the numbers increase.
    """
    create_record_table(deliveries, delivery_tables.DELIVERIES)
    known = read_known_files(deliveries)
    look = Look(options.within, options.in_full, takes=options.within is None)
    found, refused = _find_changes_by_source(sources, landing, known, look)
    with given_back_on_failure(*(looked.events for looked in found.values())):
        count = _record_changes(sources, found, known, run, options.first)
    warnings = {
        source.name: [*found[source.name].warnings, *_settle_look(source, deliveries, found[source.name])]
        for source in sources
        if source.name in found
    }
    return Discovery(count, refused, {name: told for name, told in warnings.items() if told})


def _settle_look(source: Source, deliveries: str, looked: SourceChanges) -> list[str]:
    """Finishes a look once all its findings are in the ledger. Returns warnings."""
    if looked.full_listing is not None:
        note_full_listing(deliveries, source, looked.full_listing)
    try:
        if looked.events is not None:
            looked.events.acknowledge()
    except NoEvents as error:
        return [f"{error}: events of source '{source.name}' will come again"]
    return []


def _record_changes(
    sources: Sequence[Source], found: Mapping[str, SourceChanges], known: KnownFiles, run: str, first: int
) -> int:
    """Appends the findings to the ledger. Returns the number of rows."""
    moving = find_files_being_written([one for looked in found.values() for one in looked.came if isinstance(one, LandedFile)])
    noted: list[DeliveryRow] = []
    batches: list[list[list[DeliveryRow]]] = []
    for source in (source for source in sources if source.name in found):
        looked = found[source.name]
        rows = _describe_arrivals(source, [one for one in looked.came if one not in moving], looked, known)
        rows += [{"source": source.name, "file": file, "event": VANISHED, "size": None} for file in looked.gone]
        # In one commit: if only half of the existing files were recorded, the rest would count as new.
        noted += [row for row in rows if row["event"] not in TAKEN]
        taken = [row for row in rows if row["event"] in TAKEN]
        batches.append(group_into_micro_batches(source, taken))
    nothing: list[DeliveryRow] = []
    commits = [noted, *([row for group in together for row in group] for together in zip_longest(*batches, fillvalue=nothing))]
    return delivery_tables.append_numbered_deliveries(known.deliveries, commits, max(known.last, first - 1), run)


def _find_changes_by_source(
    sources: Sequence[Source], landing: Location, known: KnownFiles, look: Look
) -> tuple[dict[str, SourceChanges], dict[str, SluiceError]]:
    """Returns the changes of the sources that can be listed, and the errors of the others."""
    found, refused = {}, {}
    for source in sources:
        try:
            found[source.name] = find_source_changes(source, landing, known, look)
        except SluiceError as error:
            refused[source.name] = error
    return found, refused


def _describe_arrivals(source: Source, came: Sequence[Arrival], looked: SourceChanges, known: KnownFiles) -> list[DeliveryRow]:
    """Returns the rows of what came. Each new file is opened for this."""
    rows = []
    with count_work(f"new files of {source.name} looked at", len(came), sum(one.size or 0 for one in came)) as work:
        for one in came:
            row = _new_delivery_row(source, one, looked, known)
            rows += [] if row is None else [row]
            work.advance(size=one.size or 0)
    return rows


def _new_delivery_row(source: Source, one: Arrival, looked: SourceChanges, known: KnownFiles) -> DeliveryRow | None:
    """Returns the row of something that came, or None if the ledger already has it or it is gone by now."""
    try:
        row: DeliveryRow = {"source": source.name, "device": looked.device, **delivery_row(one)}
    except FileNotFoundError:
        return None
    is_told = row["event"] == UNOPENED and known.is_unread(known.files_of_source(source.name).get(one.file))
    return None if is_told else row


MOST_BYTES = 1 << 30
"""The most bytes of files in a micro-batch of an increment if the source sets no limit; at least one file is taken. Its records are on the
disk twice until it is committed."""


def group_into_micro_batches(source: Source, rows: Sequence[Item]) -> list[list[Item]]:
    """Groups rows of deliveries in order, within the source's limits, at least one in each group."""
    return source.kind.group_deliveries(source, rows)


def group_files_by_size(source: Source, rows: Sequence[Item]) -> list[list[Item]]:
    """Groups files by the limits on files and bytes."""
    most_bytes = source.max_bytes_per_trigger if isinstance(source.max_bytes_per_trigger, int) else MOST_BYTES
    return _group_within_limits(rows, source.max_files_per_trigger, most_bytes, lambda row: int(row["size"] or 0))


def group_offset_ranges(source: KafkaSource, rows: Sequence[Item]) -> list[list[Item]]:
    """Groups ranges of offsets by the limit on offsets."""
    return _group_within_limits(
        rows, sys.maxsize, source.max_offsets_per_trigger, lambda row: parse_offset_range(row["file"]).offsets
    )


def _group_within_limits(
    items: Iterable[Item], most_items: int, most_together: int | None, size: Callable[[Item], int]
) -> list[list[Item]]:
    found: list[list[Item]] = []
    room = 0
    for item in items:
        needed = size(item)
        if not found or len(found[-1]) >= most_items or (most_together is not None and needed > room):
            found.append([])
            room = most_together or 0
        found[-1].append(item)
        room -= needed
    return found
