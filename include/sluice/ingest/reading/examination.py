"""Examines a delivered file before its records are read: is it still the one that was discovered, and can it be read as its source says?

It reads every byte once, in parts: for the hash, the compression and the encoding. A file that cannot be read goes to quarantine whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from sluice.declare.ingest.source import Source
from sluice.ingest import formats
from sluice.ingest.deliveries.landed_file import FileState, is_file_in_state
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import UnreadableFile
from sluice.locations import Location
from sluice.record_states import INGESTED, MISSED, QUARANTINED, VANISHED
from sluice.work_progress import count_work

CHANGED = "the file was changed after it was discovered; the change is a delivery of its own"


def examine_deliveries(source: Source, deliveries: list[Delivery]) -> list[ExaminedDelivery]:
    """Examines each delivery. No file raises an error: its reason says what is wrong with it, without any of its content.

    Raises UnreachableBroker if a topic's broker does not answer.
    """
    return source.kind.examine_deliveries(source, deliveries)


def examine_unread_deliveries(source: Source, deliveries: list[Delivery], judged: Container[int] = ()) -> list[ExaminedDelivery]:
    """Does what `examine_deliveries` does for deliveries that bronze has nothing of yet. judged: those that nevertheless have an outcome.

    Raises LostOffsets if a topic has lost some of them, unless the source goes on without them.
    """
    return source.kind.examine_unread_deliveries(source, deliveries, judged)


def examine_unread_files(source: Source, deliveries: list[Delivery], judged: Container[int]) -> list[ExaminedDelivery]:
    """Examines files of which bronze has nothing like all others."""
    return examine_files(source, deliveries)


def examine_files(source: Source, deliveries: list[Delivery]) -> list[ExaminedDelivery]:
    """Examines files, several at once."""
    found = []
    total_bytes = sum(delivery.size or 0 for delivery in deliveries)
    with count_work("files examined", len(deliveries), total_bytes) as work, ThreadPoolExecutor(max_workers=4) as pool:
        for one in pool.map(lambda delivery: _examine_delivery(source, delivery), deliveries):
            found.append(one)
            work.advance(size=one.delivery.size or 0)
    return found


def _examine_delivery(source: Source, delivery: Delivery) -> ExaminedDelivery:
    if delivery.event == VANISHED:
        return ExaminedDelivery(delivery, VANISHED)
    try:
        if delivery.path.is_symlink():
            return ExaminedDelivery(delivery, QUARANTINED, delivered_bytes.LINK)
        if not is_file_in_state(delivery.path, delivery.state):
            return ExaminedDelivery(delivery, MISSED, CHANGED)
        found = _examine_content(source, delivery)
        # A file that is written to while it is examined is neither what it was nor what it will be.
        return found if is_file_in_state(delivery.path, delivery.state) else ExaminedDelivery(delivery, MISSED, CHANGED)
    except FileNotFoundError:
        return ExaminedDelivery(delivery, MISSED, "the file was gone before it could be read")
    except OSError as error:
        return ExaminedDelivery(delivery, MISSED, f"the file could not be opened: {error.strerror}")


def _examine_content(source: Source, delivery: Delivery) -> ExaminedDelivery:
    digest = hashlib.sha256()
    try:
        found = formats.examine_file_content(source, delivery.path, digest.update)
    except UnreadableFile as reason:
        return ExaminedDelivery(delivery, QUARANTINED, str(reason))
    if delivery.sha256 is not None and digest.hexdigest() != delivery.sha256:
        return ExaminedDelivery(delivery, MISSED, CHANGED)
    return ExaminedDelivery(
        delivery, INGESTED, header=found.header, empty=found.empty, text_bytes=found.text_bytes, cuts=found.cuts
    )


@dataclass(frozen=True)
class Delivery:
    """A row of the deliveries table, with the path of its file.

    size: None if there is no file that others may change: a range of offsets, or a file that Sluice wrote to read it again. A delivery that
    was restored from its outcome lacks it, too, if its file was another one by then.
    """

    number: int
    source: str
    file: str
    event: str
    path: Location
    size: int | None
    modified_at: datetime | None
    sha256: str | None
    etag: str | None = None

    @property
    def state(self) -> FileState:
        """The state in which its file was discovered."""
        return FileState.of_delivery(self.size, self.modified_at, self.etag)


@dataclass(frozen=True)
class ExaminedDelivery:
    """What the examination found. state: as in outcomes. empty: whether it has no record. header: that of a CSV file, as delivered.

    text_bytes: the file's decompressed size, for Parquet its size in memory; 0 if it was not read to its end. cuts: as in `ExaminedContent`.
    """

    delivery: Delivery
    state: str
    reason: str | None = None
    header: tuple[str, ...] = ()
    empty: bool = field(default=False)
    text_bytes: int = 0
    cuts: tuple[int, ...] = ()
