"""The inspection of one file: decoders pass it streams, cells and numbers, and it counts hits by decoder and column."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from residue.compiled import FEW, CompiledNeedles, SoughtTexts, innermost_field_name
from residue.delimited_rows import DelimitedRows, TextDialect, holds_value
from residue.named_values import WINDOW, NamedValues
from residue.needles import ENCODED
from residue.result import DecoderTotals, Hit, ScanResult, ScanRoot, Unread
from residue.search import REACH
from residue.spellings import LONGEST, Spelling, compute_known_length, find_other_spellings, find_spelled_positions

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_LINE = 1 << 16
"""The longest CSV line whose fields are recognised across the end of a chunk."""
_BESIDE = frozenset({"raw bytes", "spark blocks", "rocksdb table", "rocksdb log"})
"""Decoders in whose data values may directly follow each other: a digit beside a number may belong to another value."""
_TOGETHER = 1 << 20
_LAST_ASCII = 0x7F
_LONGEST_SHORT = 64
"""More bytes than a value has that is searched for in columns only."""


class Inspection:
    """The hits in one file. shown: the path in results, if it is not the file's own. encloses: how deep a decoder is within what others opened."""

    def __init__(self, compiled: CompiledNeedles, root: ScanRoot, path: str, shown: str = "") -> None:
        self.compiled, self.root, self.path, self.shown = compiled, root, path, shown or path
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.read: Counter[str] = Counter()
        self.reasons: list[tuple[str, str]] = []

    def stream(self, decoder: str, text: bool = True, comma: bool = False, dialect: TextDialect | None = None) -> SearchFeed:
        """Returns a feed for bytes that come in chunks. text: values may stand beside their column's name; comma: these are rows of fields.

        dialect: how they are written, if known.
        """
        return SearchFeed(self, decoder, text, comma, dialect)

    def whole(self, decoder: str, data: bytes, column: str = "") -> None:
        """Searches bytes that are all there."""
        self.cells(decoder, column, np.frombuffer(data, np.uint8), np.array([0, len(data)], np.int64))

    def cells(self, decoder: str, column: str, data: Bytes, cells: Offsets) -> None:
        """Searches adjacent cells of a column. cells: the offset of each, and the end of the last, so one more than there are cells."""
        self._in_cells(decoder, column, data, cells, decoder in _BESIDE)
        positions = np.array(find_spelled_positions(data), np.int64)
        if self.compiled.folded:
            positions = np.concatenate([positions, np.flatnonzero(data > _LAST_ASCII)])
        if len(positions):
            self._in_spelled_cells(column, data, cells, np.unique(np.searchsorted(cells, positions, side="right") - 1))

    def _in_cells(
        self,
        decoder: str,
        column: str,
        data: Bytes,
        cells: Offsets,
        beside: bool = False,
        joined: bool = False,
        folded: bool = False,
    ) -> None:
        self.read[decoder] += len(data)
        sought = self.compiled.folded if folded else self.compiled.texts
        for found in sought.search.find(data, cells, beside=beside):
            number = sought.numbers_of[found.pattern]
            if not joined or self.compiled.needles[number].kind in ENCODED:
                self.counts[decoder, column, number] += 1
        if sought.any_text is not None and not joined:
            self._count_short_values_in_cells(decoder, column, data.tobytes().lower(), cells, sought)

    def _in_spelled_cells(self, column: str, data: Bytes, cells: Offsets, some: Offsets) -> None:
        """Searches the decoded meaning of those cells that are written in another spelling."""
        meant: defaultdict[Spelling, list[bytes]] = defaultdict(list)
        for cell in some.tolist():
            for one in find_other_spellings(data[cells[cell] : cells[cell + 1]].tobytes(), bool(self.compiled.folded)):
                meant[one._replace(level=0, data=b"")].append(one.data)
        for spelling, texts in meant.items():
            ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
            together = np.frombuffer(b"".join(texts), np.uint8)
            self._in_cells(spelling.decoder, column, together, ends, joined=spelling.joined, folded=spelling.folded)

    def several(self, decoder: str, cells: Iterable[bytes], column: str = "") -> None:
        """Searches cells that are given one by one, all together, because each search has a fixed cost."""
        waiting: list[bytes] = []
        size = 0
        for cell in cells:
            waiting.append(cell)
            size += len(cell)
            if size > _TOGETHER:
                self._together(decoder, column, waiting)
                waiting, size = [], 0
        self._together(decoder, column, waiting)

    def _together(self, decoder: str, column: str, cells: Sequence[bytes]) -> None:
        ends = np.cumsum([0, *map(len, cells)], dtype=np.int64)
        self.cells(decoder, column, np.frombuffer(b"".join(cells), np.uint8), ends)

    def numbers(self, decoder: str, column: str, values: npt.NDArray[Any]) -> None:
        """Searches the numbers of a column without NULLs: whole numbers or floats."""
        self.read[decoder] += values.nbytes
        if not self.compiled.numbers or not len(values):
            return
        sought, wanted, values = self.compiled.as_numbers(values)
        if len(sought) <= FEW:
            met = [(one, int(np.count_nonzero(values == one))) for one in sought]
        else:
            there, counts = np.unique(values[np.isin(values, sought)], return_counts=True)
            met = list(zip(there, counts, strict=True))
        for value, count in met:
            for number in wanted[value.item()] if count else ():
                if self._belongs(number, column):
                    self.counts[decoder, column, number] += int(count)

    def unread(self, reason: str, of: str = "") -> None:
        """Records that something of the file could not be read, and why. of: the only person for whose needle that matters."""
        if (reason, of) not in self.reasons:
            self.reasons.append((reason, of))

    def add_to(self, result: ScanResult) -> None:
        """Adds the hits to a result."""
        grouped: Counter[tuple[str, str, str, str, bool, bool, str]] = Counter()
        for (decoder, column, number), count in self.counts.items():
            needle = self.compiled.needles[number]
            control = number >= self.compiled.first_control
            grouped[decoder, column, needle.domain, needle.kind, control, needle.shared, needle.of] += count
        result.hits += [
            Hit(self.root.name, self.shown, decoder, column, domain, kind, control, count, shared, whose)
            for (decoder, column, domain, kind, control, shared, whose), count in sorted(grouped.items())
        ]
        result.unread += [Unread(self.root.name, self.shown, reason, of) for reason, of in self.reasons]
        for decoder, size in self.read.items():
            known = result.decoders.setdefault(decoder, DecoderTotals())
            known.files += 1
            known.bytes += size

    def _belongs(self, number: int, column: str) -> bool:
        """Whether a needle is searched for in that column; a nested column counts by every name in its path."""
        columns = self.compiled.needles[number].columns
        if columns is None:
            return True
        path = column.lower()
        within = (name for name in columns if "." in name)
        return not columns.isdisjoint(re.split(r"[.\[\]]+", path)) or any(f".{path}.".find(f".{name}.") >= 0 for name in within)

    def _count_short_values_in_cells(
        self, decoder: str, column: str, lowered: bytes, cells: Offsets, sought: SoughtTexts
    ) -> None:
        searched, named, own = -1, NamedValues(self.compiled.names, b""), dict[bytes, bool]()
        for start, end, numbers in sought.find_short_values(lowered, cells):
            cell = int(np.searchsorted(cells, start, side="right")) - 1
            first, last = int(cells[cell]), int(cells[cell + 1])
            if cell != searched:
                searched, named, own = cell, NamedValues(self.compiled.names, lowered[first:last]), {}
            beside, value = named.find_columns(start - first), lowered[start:end]
            if value not in own:
                own[value] = holds_value(lowered[first:last].decode("utf-8", "replace"), value.decode("utf-8", "replace"))
            for number in numbers:
                if (own[value] and self._belongs(number, column)) or self._belongs_to_any(number, beside):
                    self.counts[decoder, column, number] += 1

    def _belongs_to_any(self, number: int, named: Set[str]) -> bool:
        """Whether one of these names is that of one of the needle's columns."""
        columns = self.compiled.needles[number].columns or frozenset()
        return bool(named) and not named.isdisjoint({*columns, *map(innermost_field_name, columns)})


class SearchFeed:
    """A stream under search, in chunks of any length; keeps what the search needs of the previous chunk."""

    def __init__(self, inspection: Inspection, decoder: str, text: bool, comma: bool, dialect: TextDialect | None) -> None:
        self._of, self._decoder, self._text, self._comma, self._dialect = inspection, decoder, text, comma, dialect
        self._kept = b""
        self._searched = 0
        self._at = 0
        self._rows: DelimitedRows | None = None
        # A letter may take many bytes, and base64 lines may be short.
        longest = max(inspection.compiled.texts.search.longest, inspection.compiled.folded.search.longest)
        self._overlap = max(WINDOW + REACH, longest * LONGEST // 2 + LONGEST)

    def feed(self, chunk: bytes, last: bool = False) -> None:
        """Searches the next bytes. Hits at the end of a chunk are reported with the next one, since the bytes beside them matter."""
        self._of.read[self._decoder] += len(chunk)
        data = self._kept + chunk
        if not data:
            return
        end = self._at + len(data)
        limit = end if last else end - REACH
        self._search(data, self._decoder, self._at, self._searched, limit)
        for one in find_other_spellings(data, bool(self._of.compiled.folded)):
            self._of.read[one.decoder] += len(one.data)
            known = compute_known_length(one, self._kept) if self._kept else 0
            self._search(one.data, one.decoder, 0, known, len(one.data) - (0 if last else REACH), one.joined, one.folded)
        self._searched = limit
        keep = 0 if last else self._length_kept(data)
        self._at, self._kept = end - keep, data[len(data) - keep :]

    def _search(
        self, data: bytes, decoder: str, at: int, searched: int, limit: int, joined: bool = False, folded: bool = False
    ) -> None:
        """Counts hits that end after `searched` and up to `limit`. at: the offset of the data. joined, folded: see `Spelling`."""
        compiled = self._of.compiled
        sought = compiled.folded if folded else compiled.texts
        for found in sought.search.find(np.frombuffer(data, np.uint8), beside=self._decoder in _BESIDE):
            number = sought.numbers_of[found.pattern]
            ends = at + found.start + sought.sizes[found.pattern]
            # A hit at the very start may lack the digit before it; the search of the previous chunk has decided about it.
            if searched < ends <= limit and (not joined or compiled.needles[number].kind in ENCODED):
                self._of.counts[decoder, "", number] += 1
        if self._text and sought.any_text is not None and not joined:
            self._count_short_values(data.lower(), decoder, at, searched, limit, sought)

    def close(self) -> None:
        """Searches what the last chunk left."""
        self.feed(b"", last=True)

    def _length_kept(self, data: bytes) -> int:
        keep = min(self._overlap, len(data))
        if self._rows is not None:  # fields are recognised from the start of their line
            keep = max(keep, min(len(data) - data.rfind(b"\n") - 1, _LINE))
        if self._text and (self._of.compiled.texts.texts or self._of.compiled.folded.texts):
            opened = self._of.compiled.names.find_open_list(data[: -REACH - _LONGEST_SHORT])
            keep = keep if opened is None else max(keep, len(data) - opened)
        return keep

    def _count_short_values(self, lowered: bytes, decoder: str, at: int, searched: int, limit: int, sought: SoughtTexts) -> None:
        if self._rows is None and self._comma:
            self._rows = DelimitedRows(lowered, self._of.compiled.columns, self._dialect)
        named = NamedValues(self._of.compiled.names, lowered)
        for start, end, numbers in sought.find_short_values(lowered):
            if not searched < at + end <= limit:
                continue
            beside = named.find_columns(start)
            for number in numbers:
                columns = self._of.compiled.needles[number].columns or frozenset()
                if self._of._belongs_to_any(number, beside) or (self._rows and self._rows.holds(lowered, start, end, columns)):
                    self._of.counts[decoder, "", number] += 1
