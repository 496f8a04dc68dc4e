"""What the deliveries table knows about each file, read once per run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sluice.file_events import CLEANED, DELIVERED, EXISTING, RETURNED, SAME_DELIVERY, UNOPENED, carry_current_content
from sluice.ingest import ledger
from sluice.ingest.deliveries.landed_file import FileState

_CONTENT = (DELIVERED, EXISTING)
"""The events after which a file's content is known."""
_COLUMNS = ["delivery", "source", "file", "event", "size", "modified_at", "sha256", "device", "etag"]
_AS_IT_IS = ("size", "modified_at", "sha256", "etag")
_NOT_READ = frozenset({ledger.MISSED, ledger.VANISHED})


class KnownContent(NamedTuple):
    """The latest known content of a file's name, whether or not the file exists. modified: microseconds since 1970.

    delivery: the number with which it came. event: how it came. sha256: None for a link, and for files from before the first discovery.
    """

    delivery: int
    event: str
    size: int | None
    modified: int | None
    sha256: str | None
    etag: str | None = None

    @property
    def state(self) -> FileState:
        """By what a file is known to have it still."""
        return FileState(self.size, self.modified, self.etag)


class LastSeenFile(NamedTuple):
    """The last that is known about a file. modified: microseconds since 1970. content: its content now, or when it last existed."""

    delivery: int
    event: str
    size: int | None
    modified: int | None
    content: KnownContent | None = None
    etag: str | None = None

    @property
    def state(self) -> FileState:
        """By what it is known to be unchanged."""
        return FileState(self.size, self.modified, self.etag)


@dataclass(frozen=True)
class KnownFiles:
    """What is known about files, by source. last: the greatest delivery number. outcomes, deliveries: the paths of the tables with the rest.

    devices: the device of each source's folder at its last delivery.
    """

    last: int = 0
    outcomes: str = ""
    by_source: dict[str, dict[str, LastSeenFile]] = field(default_factory=dict)
    deliveries: str = ""
    devices: dict[str, int] = field(default_factory=dict)

    def files_of_source(self, source: str) -> dict[str, LastSeenFile]:
        """Returns what is known about a source's files, by their names."""
        return self.by_source.get(source, {})

    def was_read(self, source: str, file: str) -> bool:
        """Whether any delivery of the file has an outcome other than missed."""
        return (source, file) in self._read_files

    def is_missed(self, delivery: int) -> bool:
        """Whether the last outcome of a delivery is missed."""
        return delivery in self._missed

    def is_unread(self, last: LastSeenFile | None) -> bool:
        """Whether nothing of the file's present content was read, because it could not be opened or had changed when it was to be read."""
        return last is not None and (last.event == UNOPENED or (last.event == DELIVERED and self.is_missed(last.delivery)))

    def unread_files(self, source: str) -> list[str]:
        """Returns the missed files of a source. The next run tries each of them again."""
        return sorted(file for file, last in self.files_of_source(source).items() if self.is_unread(last))

    @cached_property
    def _read_files(self) -> set[tuple[str, str]]:
        found = ledger.read_delivery_ledger_columns(self.outcomes, ["source", "file", "state"])
        rows = zip(*(found[name].to_pylist() for name in ("source", "file", "state")), strict=True)
        return {(source, file) for source, file, state in rows if state not in _NOT_READ}

    @cached_property
    def _missed(self) -> set[int]:
        return ledger.find_deliveries_in_state(self.outcomes, ledger.MISSED)


def read_known_files(deliveries: str, outcomes: str = "") -> KnownFiles:
    """Reads what the deliveries table at a path knows. outcomes: the path of the outcomes table, if it does not lie beside it."""
    beside = outcomes or f"{deliveries.rpartition('/')[0]}/outcomes"
    found = ledger.read_delivery_ledger_columns(deliveries, _COLUMNS)
    if not found.num_rows:
        return KnownFiles(0, beside, deliveries=deliveries)
    found = found.take(pc.sort_indices(found["delivery"]))
    by_source: defaultdict[str, dict[str, LastSeenFile]] = defaultdict(dict)
    devices: dict[str, int] = {}
    at = found["modified_at"].cast(pa.int64())
    names = ("delivery", "source", "file", "event", "size", "sha256", "device", "etag")
    values = [*(found[name].to_pylist() for name in names), at.to_pylist()]
    for number, source, file, event, size, sha256, device, etag, modified in zip(*values, strict=True):
        of_source = by_source[source]
        of_source[file] = _apply_delivery_row(of_source.get(file), KnownContent(number, event, size, modified, sha256, etag))
        if device is not None:
            devices[source] = device
    return KnownFiles(found["delivery"][-1].as_py(), beside, dict(by_source), deliveries, devices)


def _apply_delivery_row(before: LastSeenFile | None, told: KnownContent) -> LastSeenFile:
    """Returns what is known about a file after one more row of the deliveries table. before: what was known."""
    was = before.content if before else None
    if told.event in _CONTENT:
        return LastSeenFile(told.delivery, told.event, told.size, told.modified, told, told.etag)
    if before is None or told.event not in SAME_DELIVERY:
        return LastSeenFile(told.delivery, told.event, told.size, told.modified, was, told.etag)
    now = was._replace(size=told.size, modified=told.modified, sha256=told.sha256, etag=told.etag) if was else None
    if told.event == RETURNED and was is not None and before.event != CLEANED:
        return LastSeenFile(was.delivery, was.event, told.size, told.modified, now, told.etag)
    return LastSeenFile(before.delivery, before.event, told.size, told.modified, now, told.etag)


def read_current_deliveries(path: str) -> list[dict[str, Any]]:
    """Returns the rows of the deliveries table at a path, by number, each with the size, time and hash that its file has now.

    If a file was rewritten or returned, the row of its last delivery gets the new values; rows that only record this are left out.
    """
    found: list[dict[str, Any]] = ledger.read_delivery_ledger_rows(path)
    rows = ledger.sort_deliveries_by_number(found)
    carry_current_content(rows, _AS_IT_IS)
    return [row for row in rows if row["event"] not in SAME_DELIVERY]
