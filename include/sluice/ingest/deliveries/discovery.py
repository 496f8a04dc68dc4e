"""Discovery: what is new in a landing folder becomes deliveries.

A run with nothing new lists the folder once and reads a few columns of the deliveries table once, however many files are known; only
new files are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.errors import SluiceError
from sluice.ingest import ledger
from sluice.ingest.deliveries import groups
from sluice.ingest.deliveries.arrivals import Arrival, Row, SourceChanges, delivery_row, find_source_changes
from sluice.ingest.deliveries.known import (
    GONE,
    TAKEN,
    UNOPENED,
    KnownFiles,
    read_known_files,
)
from sluice.ingest.deliveries.listing import DELIVERED, LandedFile, find_files_being_written


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
    moving = find_files_being_written([one for looked in found.values() for one in looked.came if isinstance(one, LandedFile)])
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
