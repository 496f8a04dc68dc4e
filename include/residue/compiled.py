"""Compiles needles for searching: those searched for everywhere, and those searched for only in columns of certain names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from residue.named_values import ColumnNames
from residue.needles import JAVA_DOUBLE
from residue.result import Needle
from residue.search import BytePattern, PatternSearch
from residue.spellings import fold_cased_text

Offsets = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[Any]

FEW = 16
"""Up to this many values, each is searched for by itself."""


class SoughtTexts:
    """The texts that are searched for in one reading of bytes: long ones everywhere, short ones only in columns of certain names.

    long: patterns, each with the number of its needle; short: in small letters.
    """

    def __init__(self, long: Sequence[tuple[int, BytePattern]], short: Iterable[tuple[int, bytes]]) -> None:
        self.numbers_of = [number for number, _ in long]
        self.sizes = [len(pattern.data) for _, pattern in long]
        self.search = PatternSearch([pattern for _, pattern in long])
        self.texts: dict[bytes, list[int]] = {}
        for number, text in short:
            self.texts.setdefault(text, []).append(number)
        self.any_text = re.compile(_build_alternation_pattern(self.texts)) if self.texts else None
        self.lengths = sorted({len(text) for text in self.texts})

    def __bool__(self) -> bool:
        """Whether there is anything to search for."""
        return bool(self.numbers_of or self.texts)

    def find_short_values(self, data: bytes, cells: Offsets | None = None) -> Iterator[tuple[int, int, list[int]]]:
        """Where values stand as whole words that are searched for in columns only: start, end, needles. data: in lower case."""
        if self.any_text is None or (len(self.texts) <= FEW and not any(text in data for text in self.texts)):
            return
        match = self.any_text.search(data)
        while match:
            start, first, last = match.start(), 0, len(data)
            if cells is not None:
                cell = int(np.searchsorted(cells, start, side="right")) - 1
                first, last = int(cells[cell]), int(cells[cell + 1])
            for length in self.lengths:
                end = start + length
                numbers = self.texts.get(data[start:end]) if end <= last else None
                beside = data[max(first, start - 1) : start] + data[end : min(end + 1, last)]
                if numbers and not re.search(rb"[a-z0-9_]", beside):
                    yield start, end, numbers
            match = self.any_text.search(data, start + 1)


class CompiledNeedles:
    """Needles compiled for searching. The person's come first, then the canary's.

    texts: what bytes are searched for as they are; folded: the same where letters outside ASCII have become small letters.
    """

    def __init__(self, needles: Sequence[Needle], canary: Sequence[Needle]) -> None:
        # Columns in lower case, since Spark ignores case.
        self.needles = [
            one if one.columns is None else replace(one, columns=frozenset(map(str.lower, one.columns)))
            for one in (*needles, *canary)
        ]
        self.first_control = len(needles)
        self.timed = [(n, one) for n, one in enumerate(self.needles) if one.times is not None]
        timeless = [(n, one) for n, one in enumerate(self.needles) if one.times is None]
        self.numbers: dict[int, list[int]] = {}
        for number, needle in timeless:
            if isinstance(needle.value, int):
                self.numbers.setdefault(needle.value, []).append(number)
        texts = [(n, one, one.value) for n, one in timeless if isinstance(one.value, bytes)]
        self.texts = SoughtTexts(
            [
                (n, BytePattern(value, one.fold, one.whole, one.before, one.after))
                for n, one, value in texts
                if one.columns is None
            ],
            [(n, value.lower()) for n, one, value in texts if one.columns is not None],
        )
        # Forms that differ by case only are the same here: the first counts.
        cased: dict[tuple[object, ...], tuple[int, Needle, bytes]] = {}
        for n, one, value in texts:
            if one.fold and (small := fold_cased_text(value)) is not None:
                whose = (small, one.columns, one.domain, one.of, one.shared, n >= self.first_control)
                cased.setdefault(whose, (n, one, small))
        self.folded = SoughtTexts(
            [(n, BytePattern(small, one.fold, one.whole)) for n, one, small in cased.values() if one.columns is None],
            [(n, small) for n, one, small in cased.values() if one.columns is not None],
        )
        # The people with an identifier that is searched for in columns only.
        self.short_of = sorted({one.of for one in needles if one.columns is not None and one.kind != JAVA_DOUBLE})
        self.columns = frozenset(name for one in self.needles if one.columns for name in one.columns)
        # In a record, a nested field appears only under its own innermost name.
        self.keys = self.columns | {innermost_field_name(name) for name in self.columns}
        self.names = ColumnNames(self.keys)
        self._whole = np.array(sorted(self.numbers), np.int64)
        # Several large numbers may be equal as a DOUBLE.
        self._doubles: dict[float, list[int]] = {}
        for whole, of in self.numbers.items():
            self._doubles.setdefault(float(whole), []).extend(of)
        self._floats = np.array(sorted(self._doubles), np.float64)

    def as_numbers(self, values: Values) -> tuple[Values, Mapping[Any, list[int]], Values]:
        """The numbers searched for, the needles of each, and the values, all in one type, so that rounding makes no two of them equal."""
        if values.dtype.kind == "f":
            return self._floats, self._doubles, values.astype(np.float64)
        if values.dtype.kind == "u":
            values = values[values <= np.uint64(np.iinfo(np.int64).max)]
        return self._whole, self.numbers, values.astype(np.int64)


def _build_alternation_pattern(texts: Iterable[bytes]) -> bytes:
    """A pattern for any of the texts that branches by their bytes, so that its time does not grow with their number."""
    branches: dict[int, list[bytes]] = {}
    ends = False
    for text in texts:
        ends = ends or not text
        if text:
            branches.setdefault(text[0], []).append(text[1:])
    found = [re.escape(bytes([first])) + _build_alternation_pattern(rest) for first, rest in sorted(branches.items())]
    return b"" if not found else b"(?:" + b"|".join(found) + b")" + (b"?" if ends else b"")


def innermost_field_name(column: str) -> str:
    """The innermost name of a nested field: `id` of `user.id`."""
    return column.rpartition(".")[2]
