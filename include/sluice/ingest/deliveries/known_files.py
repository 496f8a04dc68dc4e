"""What the deliveries table knows about each file, read once per run, and how files in a folder differ from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.delivery_rows import FILE_STATE
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.landed_file import LandedFile
from sluice.ingest.deliveries.seen_files import COLUMNS, CONTENT, NO_FILES, LastSeenFile, Marks, SeenFiles
from sluice.ingest.files.paths import find_delivery_date
from sluice.own_records import OUTCOMES, locate_record_beside
from sluice.record_states import DELIVERED, MISSED, SAME_DELIVERY, UNOPENED, VANISHED, carry_current_content
from sluice.work_progress import count_work

_READ = ("delivery", "source", "file", "event", "device", *FILE_STATE)
_NOT_READ = frozenset({MISSED, VANISHED})


@dataclass(frozen=True)
class KnownFiles:
    """What is known about files, by source. last: the greatest delivery number. outcomes, deliveries: the paths of the tables with the rest.

    devices: the device of each source's folder at its last delivery.
    """

    last: int = 0
    outcomes: str = ""
    by_source: dict[str, SeenFiles] = field(default_factory=dict)
    deliveries: str = ""
    devices: dict[str, int] = field(default_factory=dict)

    def files_of_source(self, source: str) -> SeenFiles:
        """Returns what is known about a source's files, by their names."""
        return self.by_source.get(source, NO_FILES)

    def was_read(self, source: str, file: str) -> bool:
        """Whether any delivery of the file has an outcome other than missed."""
        return (source, file) in self._read_files

    def is_missed(self, delivery: int) -> bool:
        """Whether the last outcome of a delivery is missed."""
        return delivery in self._missed

    def is_unread(self, last: LastSeenFile | None) -> bool:
        """Whether nothing of the file's current content was read, because it could not be opened or had changed before it was read."""
        return last is not None and (last.event == UNOPENED or (last.event == DELIVERED and self.is_missed(last.delivery)))

    def unread_files(self, source: str, listed: Marks | None = None) -> list[str]:
        """Returns the missed files of a source. The next run tries each of them again. listed: those with a mark are left out."""
        may_be = self.files_of_source(source).files_of_events((UNOPENED,), self._missed, listed)
        return sorted(file for file, last in may_be if self.is_unread(last))

    @cached_property
    def _read_files(self) -> set[tuple[str, str]]:
        found = delivery_tables.read_delivery_ledger_columns(self.outcomes, ["source", "file", "state"])
        rows = zip(*(found[name].to_pylist() for name in ("source", "file", "state")), strict=True)
        return {(source, file) for source, file, state in rows if state not in _NOT_READ}

    @cached_property
    def _missed(self) -> set[int]:
        return delivery_tables.find_deliveries_in_state(self.outcomes, MISSED)


def read_known_files(deliveries: str, outcomes: str = "") -> KnownFiles:
    """Reads what the deliveries table at a path knows. outcomes: the path of the outcomes table, if it does not lie beside it."""
    beside = outcomes or locate_record_beside(deliveries, OUTCOMES)
    rows, numbers, devices = _read_rows_by_source(deliveries)
    if not rows.num_rows:
        return KnownFiles(0, beside, deliveries=deliveries)
    last: int = pc.max(rows["delivery"]).as_py()
    by_source = {source: SeenFiles(rows, np.concatenate(of)) for source, of in numbers.items()}
    return KnownFiles(last, beside, by_source, deliveries, {source: device for source, (_, device) in devices.items()})


_Latest = dict[str, tuple[int, int]]
"""By source a delivery and the device of its folder."""


def _read_rows_by_source(deliveries: str) -> tuple[pa.Table, dict[str, list[npt.NDArray[np.int64]]], _Latest]:
    """The rows in the columns of `SeenFiles`; by source the numbers of its rows, and its latest delivery with a device."""
    chunks: dict[str, list[pa.Array]] = {name: [] for name in ("file", *COLUMNS)}
    numbers: dict[str, list[npt.NDArray[np.int64]]] = {}
    devices: _Latest = {}
    read = 0
    for batch in delivery_tables.read_delivery_ledger_batches(deliveries, _READ):
        said = {name: batch[name] for name in batch.column_names}
        said["event"], said["modified"] = batch["event"].dictionary_encode(), batch["modified_at"].cast(pa.int64())
        for name, column in chunks.items():
            column += said[name].chunks
        for source in pc.unique(batch["source"]).to_pylist():
            of = pc.equal(batch["source"], source)
            numbers.setdefault(source, []).append(np.flatnonzero(of.to_numpy()) + read)
            _note_latest_device(devices, source, batch.select(["delivery", "device"]).filter(of))
        read += batch.num_rows
    # If joined, each column would exist twice for a while, and the allocator keeps its memory.
    columns = {name: pa.chunked_array(of or [pa.array([], pa.int64())]).unify_dictionaries() for name, of in chunks.items()}
    return pa.table(columns), numbers, devices


def _note_latest_device(devices: _Latest, source: str, rows: pa.Table) -> None:
    told = rows.filter(pc.is_valid(rows["device"]))
    if told.num_rows:
        latest = int(pc.index(told["delivery"], pc.max(told["delivery"])).as_py())
        found = (told["delivery"][latest].as_py(), told["device"][latest].as_py())
        devices[source] = max(found, devices.get(source, found))


def read_current_deliveries(path: str) -> list[dict[str, Any]]:
    """Returns the rows of the deliveries table at a path, by number, each with the size, time and hash that its file has now.

    If a file was rewritten or returned, the row of its last delivery gets the new values; rows that only record this are left out.
    """
    found: list[dict[str, Any]] = delivery_tables.read_delivery_ledger_rows(path)
    rows = delivery_tables.sort_deliveries_by_number(found)
    carry_current_content(rows, FILE_STATE)
    return [row for row in rows if row["event"] not in SAME_DELIVERY]


def select_deliveries_in_interval(source: Source, rows: Iterable[dict[str, Any]], interval: Interval) -> list[dict[str, Any]]:
    """Selects a source's deliveries of an interval: by the date in the file's path if the source declares one, otherwise by delivery time.

    rows: of the deliveries table, or of the delivery ledger, of any source.
    """
    ours = [row for row in rows if row["source"] == source.name and row["event"] == DELIVERED and row["modified_at"]]
    return [row for row in ours if find_delivery_date(source, row["file"], row["modified_at"]) in interval]


# Compares a source's folder with the ledger. It keeps one byte for each known and unchanged file.


@dataclass(frozen=True)
class FolderComparison:
    """How a source's folder differs from what is known of it.

    changed: the files that may need a row in the ledger, each with what is known of it. listed: which of the known files were found.
    alive: whether the folder has any readable file.
    """

    listed: Marks
    changed: list[tuple[LandedFile, LastSeenFile | None]] = field(default_factory=list)
    alive: bool = False


def compare_with_known_files(source: str, files: Iterable[LandedFile], known: KnownFiles) -> FolderComparison:
    """Compares files of a source's folder, in any order, with what is known of them. source: its name."""
    seen = known.files_of_source(source)
    listed, changed, alive = seen.mark_none(), [], False
    with count_work(f"files of {source} listed") as work:
        for file, last in seen.look_up_files(files, listed):
            alive = alive or file.problem is None
            if last is None or file.problem is not None or not _is_as_it_was_read(file, last, known):
                changed.append((file, last))
            work.advance()
    return FolderComparison(listed, changed, alive)


def _is_as_it_was_read(file: LandedFile, last: LastSeenFile, known: KnownFiles) -> bool:
    return last.event in CONTENT and last.state.is_same(file.state) and not known.is_unread(last)
