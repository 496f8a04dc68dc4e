"""The ledger's knowledge about a source's files, kept in columns: an object for each of a million files would take a gigabyte.

Files are looked up by a hash of their names, a page at a time; the knowledge about one is put together on request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sluice.ingest.deliveries.landed_file import FileState, LandedFile, find_known_name
from sluice.record_states import CLEANED, DELIVERED, EXISTING, RETURNED, SAME_DELIVERY

CONTENT = (DELIVERED, EXISTING)
"""The events after which a file's content is known, and it should be in its folder."""
PAGE = 8192
"""How many files are looked up together."""

Marks: TypeAlias = npt.NDArray[np.bool_]
"""For each known file whether it was listed."""
Positions: TypeAlias = npt.NDArray[np.int64]
"""Positions of known files among all files of the source."""


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
        """The state that shows whether a file still has this content."""
        return FileState(self.size, self.modified, self.etag)


COLUMNS = KnownContent._fields
"""The columns of the deliveries table that are kept, besides the names of files."""


class LastSeenFile(NamedTuple):
    """The last known state of a file. modified: microseconds since 1970. content: its content now, or when it last existed."""

    delivery: int
    event: str
    size: int | None
    modified: int | None
    content: KnownContent | None = None
    etag: str | None = None

    @property
    def state(self) -> FileState:
        """The state that shows whether it changed."""
        return FileState(self.size, self.modified, self.etag)


def apply_delivery_row(before: LastSeenFile | None, told: KnownContent) -> LastSeenFile:
    """Returns what is known about a file after one more row of the deliveries table. before: what was known."""
    was = before.content if before else None
    if told.event in CONTENT:
        return LastSeenFile(told.delivery, told.event, told.size, told.modified, told, told.etag)
    if before is None or told.event not in SAME_DELIVERY:
        return LastSeenFile(told.delivery, told.event, told.size, told.modified, was, told.etag)
    now = was._replace(size=told.size, modified=told.modified, sha256=told.sha256, etag=told.etag) if was else None
    if told.event == RETURNED and was is not None and before.event != CLEANED:
        return LastSeenFile(was.delivery, was.event, told.size, told.modified, now, told.etag)
    return LastSeenFile(before.delivery, before.event, told.size, told.modified, now, told.etag)


def _hash_name(name: str, salt: str) -> int:
    return hash(salt + name)


class SeenFiles:
    """What is known about the files of one source, by their names. Beside its rows of the ledger it keeps 16 bytes a file and 4 a row."""

    def __init__(self, rows: pa.Table, chosen: npt.NDArray[np.int64] | None = None) -> None:
        """rows: the column `file` and `COLUMNS` of the deliveries table; modified in microseconds since 1970.

        chosen: the numbers of the source's rows, by default all.
        """
        self._rows = rows
        self._salt = ""
        chosen = np.arange(rows.num_rows) if chosen is None else chosen
        while not self._sort_rows(chosen):  # two names have the same hash: with another salt they will not
            self._salt += "\0"

    def _sort_rows(self, chosen: npt.NDArray[np.int64]) -> bool:
        """Sorts the rows by the hashes of their names, then by number. Returns whether each hash belongs to one name."""
        names = self._rows["file"].take(pa.array(chosen))
        hashes = np.empty(len(chosen), np.int64)
        for first in range(0, len(chosen), PAGE):
            page = names[first : first + PAGE].to_pylist()
            hashes[first : first + PAGE] = [_hash_name(name, self._salt) for name in page]
        order = np.lexsort((self._rows["delivery"].take(pa.array(chosen)).to_numpy(), hashes)).astype(np.int32)
        hashes = hashes[order]
        again = np.flatnonzero(hashes[1:] == hashes[:-1])
        if len(again) and not pc.all(pc.equal(names.take(order[again]), names.take(order[again + 1]))).as_py():
            return False
        starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1]))) if len(hashes) else np.empty(0, np.int64)
        self._order = chosen[order].astype(np.int32)
        self._hashes = hashes[starts]
        self._starts = np.append(starts, len(hashes)).astype(np.int32)
        return True

    def __len__(self) -> int:
        return len(self._hashes)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.items())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __getitem__(self, name: str) -> LastSeenFile:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str) -> LastSeenFile | None:
        """What is known about a file, or None."""
        return self._look_up([name], None)[0]

    def items(self) -> Iterator[tuple[str, LastSeenFile]]:
        """All files with what is known about them, in any order."""
        return self._read_files(np.arange(len(self)))

    def mark_none(self) -> Marks:
        """Marks of a listing that has listed nothing yet."""
        return np.zeros(len(self), np.bool_)

    def look_up_files(
        self, files: Iterable[LandedFile], listed: Marks | None = None
    ) -> Iterator[tuple[LandedFile, LastSeenFile | None]]:
        """Pairs files, by the names that are known, with what is known about them, a page at a time. listed: gets a mark for each that is known."""
        rest = iter(files)
        while listing := list(islice(rest, PAGE)):
            page = [
                file._replace(file=find_known_name(file.file, file.path, self)) if "\\" in file.file else file for file in listing
            ]
            yield from zip(page, self._look_up([file.file for file in page], listed), strict=True)

    def expected_files(self, listed: Marks | None = None) -> Iterator[str]:
        """The files that should be in the folder. listed: those with a mark are left out."""
        for name, last in self._read_files(self._find_last(CONTENT, listed)):
            if name and last.event in CONTENT:
                yield name

    def count_expected(self) -> int:
        """How many files should be in the folder."""
        return sum(1 for _ in self.expected_files())

    def find_greatest_name(self) -> str | None:
        """The name that comes last in the order of bytes, in which stores list; None if there is none."""
        if not len(self):
            return None
        found: str | None = pc.max(self._rows["file"].take(pa.array(self._order[self._starts[1:] - 1]))).as_py()
        return found or None

    def files_of_events(
        self, events: Collection[str], deliveries: Collection[int] = (), listed: Marks | None = None
    ) -> Iterator[tuple[str, LastSeenFile]]:
        """The files that are in one of these events, or came with one of these deliveries. listed: those with a mark are left out."""
        for name, last in self._read_files(self._find_last(events, listed, deliveries)):
            if last.event in events or last.delivery in deliveries:
                yield name, last

    def _find_last(self, events: Collection[str], listed: Marks | None, deliveries: Collection[int] = ()) -> Positions:
        """The positions of files whose last row has one of these events or numbers, or only says that they are unchanged."""
        if not len(self):
            return np.empty(0, np.int64)
        rows = pa.array(self._order[self._starts[1:] - 1])
        found = pc.is_in(self._rows["event"].take(rows), pa.array([*events, *SAME_DELIVERY])).to_numpy()
        if deliveries:
            found = found | np.isin(self._rows["delivery"].take(rows).to_numpy(), np.fromiter(deliveries, np.int64))
        return np.flatnonzero(found if listed is None else found & ~listed)

    def _look_up(self, names: Sequence[str], listed: Marks | None) -> list[LastSeenFile | None]:
        if not len(self):
            return [None] * len(names)
        wanted = np.fromiter((_hash_name(name, self._salt) for name in names), np.int64, len(names))
        positions = np.minimum(np.searchsorted(self._hashes, wanted), len(self) - 1)
        alike = np.flatnonzero(self._hashes[positions] == wanted)
        found: list[LastSeenFile | None] = [None] * len(names)
        for at, (name, last) in zip(alike.tolist(), self._read_files(positions[alike]), strict=True):
            if name == names[at]:
                found[at] = last
                if listed is not None:
                    listed[positions[at]] = True
        return found

    def _read_files(self, positions: Positions) -> Iterator[tuple[str, LastSeenFile]]:
        """Puts together what is known about the files at these positions, a page at a time."""
        for first in range(0, len(positions), PAGE):
            page = positions[first : first + PAGE]
            starts, counts = self._starts[page], self._starts[page + 1] - self._starts[page]
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            rows = self._rows.take(pa.array(self._order[np.repeat(starts, counts) + within]))
            names = rows["file"].take(pa.array(np.cumsum(counts) - 1)).to_pylist()
            told = map(KnownContent, *(rows[name].to_pylist() for name in COLUMNS))
            for name, count in zip(names, counts.tolist(), strict=True):
                last = apply_delivery_row(None, next(told))
                for more in islice(told, count - 1):
                    last = apply_delivery_row(last, more)
                yield name, last


NO_FILES = SeenFiles(pa.table({"file": pa.array([], pa.string()), "delivery": pa.array([], pa.int64())}))
"""For a source that the ledger does not know."""
