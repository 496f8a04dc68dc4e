"""Quarantined records and files as files again, for the same reader that refused them: below the lake, and only as long as it reads."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sluice.declare.ingest.source import Source
from sluice.ingest.deliveries.listing import DELIVERED
from sluice.ingest.ledger import INGESTED
from sluice.ingest.reading.delivery import Delivery, ExaminedDelivery
from sluice.lake.workspace import Workspace
from sluice.quality.quarantine import Entry


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record in quarantine. file: that it came in, as in the ledger; text: as delivered; header: of its CSV file, as delivered."""

    delivery: int
    row: int
    file: str
    text: str
    header: str | None = None


@dataclass
class StagedFiles:
    """Files of records. places: by number of the file and of the record in it, which record it is."""

    examined: list[ExaminedDelivery] = field(default_factory=list)
    places: dict[tuple[int, int], QuarantinedRecord] = field(default_factory=dict)


@contextmanager
def open_staging_folder(workspace: Workspace) -> Iterator[Path]:
    """A folder that is empty, and gone afterwards. What a killed run left in it goes too: it is personal data at a second place."""
    path = Path(workspace.places.bookkeeping("staging"))
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True, mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def stage_records(source: Source, records: Sequence[QuarantinedRecord], place: Path) -> StagedFiles:
    """Write records to files. JSON lines of a delivery are one file, a line each; of other formats each record is a file of its own.

    So no record can swallow the next one. A record that the source's encoding has no characters for is left out.
    """
    staged = StagedFiles()
    for file, together in _group_records_into_files(source, records):
        number = len(staged.examined)
        head = f"{together[0].header}\n" if source.format == "csv" and source.header else ""
        try:
            content = (head + "".join(f"{record.text}\n" for record in together)).encode(source.encoding)
        except UnicodeEncodeError:
            continue
        path = place / str(number)
        path.write_bytes(content)
        delivery = Delivery(number, source.name, file, DELIVERED, path, None, None, None)
        header = tuple(head.strip("\n").split(source.delimiter)) if head else ()
        staged.examined.append(ExaminedDelivery(delivery, INGESTED, header=header, text_bytes=len(content)))
        staged.places |= {(number, row): record for row, record in enumerate(together)}
    return staged


def stage_file(delivery: Delivery, content: bytes, place: Path) -> Delivery:
    """A delivery whose file is gone or changed, with its bytes from quarantine instead."""
    path = place / str(delivery.number) / Path(delivery.file).name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    at = delivery.modified_at
    if at is not None:
        os.utime(path, ns=(0, int(at.timestamp()) * 10**9 + at.microsecond * 1000))
    return Delivery(delivery.number, delivery.source, delivery.file, delivery.event, path, len(content), at, delivery.sha256)


def quarantine_entry_of_record(record: QuarantinedRecord) -> Entry:
    """The record as it is named in quarantine."""
    return record.delivery, record.row


def _group_records_into_files(
    source: Source, records: Sequence[QuarantinedRecord]
) -> Iterator[tuple[str, list[QuarantinedRecord]]]:
    if source.format != "json" or source.multi_line:
        yield from ((record.file, [record]) for record in records)
        return
    by_delivery: defaultdict[int, list[QuarantinedRecord]] = defaultdict(list)
    for record in records:
        by_delivery[record.delivery].append(record)
    yield from ((together[0].file, together) for together in by_delivery.values())
