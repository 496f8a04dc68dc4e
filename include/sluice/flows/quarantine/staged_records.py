"""Writes quarantined records and files to files again, for the reader that refused them; they are below the lake only while it reads them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sluice.declare.ingest.source import Source
from sluice.ingest.formats import csv_rows
from sluice.ingest.reading.examination import Delivery, ExaminedDelivery
from sluice.lake.workspace import Workspace
from sluice.locations import Location, is_on_disk, locate, remove_folder
from sluice.quality.quarantine import QuarantinedRow
from sluice.record_states import DELIVERED, INGESTED


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record in quarantine. file: the one that it came in, as in the ledger. text, header: the record and its CSV file's header as delivered."""

    delivery: int
    row: int
    file: str
    text: str
    header: str | None = None


@dataclass
class StagedFiles:
    """Files of records. records: each record by the number of its file and its number in the file."""

    examined: list[ExaminedDelivery] = field(default_factory=list)
    records: dict[tuple[int, int], QuarantinedRecord] = field(default_factory=dict)


@contextmanager
def open_staging_folder(workspace: Workspace) -> Iterator[Location]:
    """Opens an empty folder that is removed afterwards. What a killed run left in it goes too: it is personal data once more.

    Files are read from a disk: for a lake on a store the folder lies below the session's local files.
    """
    path = workspace.staging
    if not is_on_disk(path):
        path = locate(str(workspace.session.sparkContext._temp_dir)) / path.name
    remove_folder(path)
    path.mkdir(parents=True, mode=0o700)
    try:
        yield path
    finally:
        remove_folder(path)


def stage_records(source: Source, records: Sequence[QuarantinedRecord], folder: Location) -> StagedFiles:
    """Writes records to files. The JSON lines of a delivery become one file; in other formats each record is a file of its own.

    So no record can swallow the next one. A record that cannot be written in the source's encoding is left out.
    """
    staged, dialect = StagedFiles(), source.row_dialect
    for file, together in _group_records_into_files(source, records):
        number = len(staged.examined)
        head = csv_rows.format_csv_file_start(dialect, together[0].header) if dialect else ""
        try:
            content = (head + "".join(f"{record.text}\n" for record in together)).encode(source.encoding)
        except UnicodeEncodeError:
            continue
        path = folder / str(number)
        path.write_bytes(content)
        delivery = Delivery(number, source.name, file, DELIVERED, path, None, None, None)
        header = csv_rows.parse_csv_header(dialect, head) if dialect else ()
        staged.examined.append(ExaminedDelivery(delivery, INGESTED, header=header, text_bytes=len(content)))
        staged.records |= {(number, row): record for row, record in enumerate(together)}
    return staged


def stage_file(delivery: Delivery, content: bytes, folder: Location) -> Delivery:
    """Stages a delivery whose file is gone or changed, with its bytes from quarantine."""
    path = folder / str(delivery.number) / locate(delivery.file).name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    staged = replace(delivery, path=path, size=len(content), etag=None)
    if staged.state.modified is not None:
        os.utime(path, ns=(0, staged.state.modified * 1000))
    return staged


def quarantine_entry_of_record(record: QuarantinedRecord) -> QuarantinedRow:
    """Returns the entry that names the record in quarantine."""
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
