"""Finds many byte patterns at once, at a speed that does not depend on their number.

Wherever a pattern of at least `width + 3` bytes stands, it covers a whole word of `width` bytes at an offset that is a multiple of
four. So it suffices to look at these words: each is hashed, and a table says whether some pattern has such a word. Words that pass are
compared with the patterns.

Also finds what stands beside base64 characters, across line breaks and the escapes of other syntaxes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

REACH = 16
"""How many bytes are examined on either side."""
BREAKING = b"\r\n\\%"
"""What may begin a break after base64, or an escaped base64 letter: `\\/`, `%2F`."""
INDENTING = b" \t"
"""What lines may begin with."""
ESCAPING = b"\\%"
"""What escapes begin with."""
_BREAK = rb"(?:[ \t]*(?:\\*[\r\n]|\\+[rn]|%0[aAdD])[ \t]*)*"
_SLASH, _PLUS = rb"(?P<slash>(?:%|\\+u00)2[fF]|\\*/)", rb"(?P<plus>(?:%|\\+u00)2[bB])"
_LETTER = rb"(?:" + _SLASH + b"|" + _PLUS + rb"|(?<!\\)(?<!%)(?<!%.)(?P<letter>[A-Za-z0-9+_-]))"
_AFTER = re.compile(_BREAK + _LETTER, re.DOTALL)
_BEFORE = re.compile(_LETTER + _BREAK + rb"\\*\Z", re.DOTALL)


def _find_base64_letter_after(beside: bytes) -> int | None:
    """The next base64 letter in the bytes that follow; None if they do not show one."""
    return _decode_matched_letter(_AFTER.match(beside))


def _find_base64_letter_before(beside: bytes) -> int | None:
    """The last base64 letter in the bytes that precede; None if they do not show one."""
    return _decode_matched_letter(_BEFORE.search(beside))


def _decode_matched_letter(found: re.Match[bytes] | None) -> int | None:
    if found is None:
        return None
    return ord("/") if found["slash"] else ord("+") if found["plus"] else ord(found["letter"])


_STEP = 4
_BLOCK = 1 << 17
"""How many bytes are hashed at once: few enough that the arrays stay in the cache."""
_BITS = 18
"""The least number of bits in a hash: the table then has 256 KiB, and few words pass it by chance."""
_CASE = 0x20
_FOLD = np.uint32(0x20202020)
_K1, _K2 = np.uint32(0x9E3779B1), np.uint32(0x85EBCA6B)
_AT_ONCE = 1 << 14
_LEAST = 7
_WIDE = 10
"""Patterns of this many bytes are found by words of seven bytes, shorter patterns by shorter words."""
_LONG = 12
"""The number of digits from which a number does not occur by chance, even within a longer one."""
_DIGITS = np.zeros(256, np.bool_)
_DIGITS[48:58] = True
_BREAKING, _ESCAPING, _INDENTING = (np.isin(np.arange(256), list(some)) for some in (BREAKING, ESCAPING, INDENTING))

Words: TypeAlias = Any
"""An array of numpy. Its operators lose the types of their operands."""


class BytePattern(NamedTuple):
    """Bytes to find. fold: in upper or lower case; whole: not between digits.

    before, after: for base64, letters of which one must stand beside it, perhaps past a line break or an escape, unless nothing shows a
    letter; b"" allows any.
    """

    data: bytes
    fold: bool = False
    whole: bool = False
    before: bytes = b""
    after: bytes = b""


class PatternOccurrence(NamedTuple):
    """An occurrence: the pattern's number, and where it starts."""

    pattern: int
    start: int


@dataclass(frozen=True)
class _PatternGroup:
    """Patterns that are found by words of one width.

    table: by hash, whether a word with it is searched for; sought: these words, sorted; entries: for each, the patterns with it.
    """

    mask: np.uint32
    shift: np.uint32
    table: npt.NDArray[np.bool_]
    sought: npt.NDArray[np.uint64]
    entries: list[list[_AlikePatterns]]


class _AlikePatterns:
    """Patterns of one length with the same word at the same offset. Consecutive identifiers give many of these."""

    def __init__(self, offset: int, fold: bool) -> None:
        self.offset, self.fold = offset, fold
        self.numbers: dict[bytes, list[int]] = {}

    def found(self, starts: Words, data: npt.NDArray[np.uint8]) -> Iterator[tuple[int, Words]]:
        """Which patterns really begin at these positions: their numbers, and the positions of each."""
        length = len(next(iter(self.numbers)))
        starts = starts[(starts >= 0) & (starts + length <= len(data))]
        if len(self.numbers) == 1:
            ((wanted, numbers),) = self.numbers.items()
            starts = self._verified(np.frombuffer(wanted, np.uint8), starts, data)
            if len(starts):
                yield from ((number, starts) for number in numbers)
            return
        met: dict[int, list[int]] = {}
        for first in range(0, len(starts), _AT_ONCE):
            part = starts[first : first + _AT_ONCE]
            there = data[part[:, np.newaxis] + np.arange(length)]
            texts = (_lowercase_bytes(there) if self.fold else there).tobytes()
            for position, start in enumerate(part):
                for number in self.numbers.get(texts[position * length : (position + 1) * length], ()):
                    met.setdefault(number, []).append(int(start))
        yield from ((number, np.array(positions, np.int64)) for number, positions in met.items())

    def _verified(self, wanted: npt.NDArray[np.uint8], starts: Words, data: npt.NDArray[np.uint8]) -> Words:
        # Compares what is beside the word first: the word itself is known to be the same, apart from case.
        for position in (*range(self.offset), *range(len(wanted) - 1, self.offset - 1, -1)):
            if not len(starts):
                return starts
            there = data[starts + position]
            starts = starts[(_lowercase_bytes(there) if self.fold else there) == wanted[position]]
        return starts


class PatternSearch:
    """A compiled set of patterns. Each must have at least 7 bytes."""

    def __init__(self, patterns: Sequence[BytePattern]) -> None:
        short = next((one for one in patterns if len(one.data) < _LEAST), None)
        if short is not None:
            raise ValueError(f"A pattern has {len(short.data)} bytes; {_LEAST} are the least.")
        self._patterns = [
            (np.frombuffer(_fold_letter_case(one.data) if one.fold else one.data, np.uint8), one.fold, one.whole)
            for one in patterns
        ]
        self._beside = {
            number: (_build_byte_table(one.before), _build_byte_table(one.after))
            for number, one in enumerate(patterns)
            if one.before or one.after
        }
        self.longest = max((len(one.data) for one in patterns), default=0)
        numbers = range(len(patterns))
        wide = [number for number in numbers if len(patterns[number].data) >= _WIDE]
        narrow = [number for number in numbers if len(patterns[number].data) < _WIDE]
        self._groups = [self._group(chosen) for chosen in (wide, narrow) if chosen]

    def _group(self, numbers: Sequence[int]) -> _PatternGroup:
        width = min(min(len(self._patterns[number][0]) for number in numbers) - _STEP + 1, 2 * _STEP)
        mask = np.uint32((1 << 8 * (width - _STEP)) - 1)
        bits = min(max(_BITS, (len(numbers) * 512).bit_length()), 24)
        shift, table = np.uint32(32 - bits), np.zeros(1 << bits, np.bool_)
        chosen, windows = [], []
        for number in numbers:
            data = self._patterns[number][0].tobytes()
            base = _find_rarest_offset(data, width)
            chosen += [(number, offset) for offset in range(base, base + _STEP)]
            windows += [data[offset : offset + width].ljust(2 * _STEP, b"\0") for offset in range(base, base + _STEP)]
        words = np.frombuffer(b"".join(windows), "<u4") | _FOLD
        table[_hash_words(words, mask, shift)[::2]] = True
        entries: dict[int, dict[tuple[int, int, bool], _AlikePatterns]] = {}
        exact = _join_word_pairs(words, np.arange(0, len(words), 2), mask).tolist()
        for (number, offset), word in zip(chosen, exact, strict=True):
            data, fold = self._patterns[number][0].tobytes(), self._patterns[number][1]
            alike = entries.setdefault(word, {}).setdefault((offset, len(data), fold), _AlikePatterns(offset, fold))
            alike.numbers.setdefault(data, []).append(number)
        sought = sorted(entries)
        return _PatternGroup(mask, shift, table, np.array(sought, np.uint64), [list(entries[word].values()) for word in sought])

    def find(
        self, data: npt.NDArray[np.uint8], cells: npt.NDArray[Any] | None = None, beside: bool = False
    ) -> list[PatternOccurrence]:
        """Finds every occurrence. cells: offsets of the cells in the data, and their end; no occurrence spans two cells.

        beside: whether digits may stand beside a whole pattern that is too long to occur by chance.
        """
        if not self._groups or len(data) < _LEAST:
            return []
        found: set[PatternOccurrence] = set()
        for start in range(0, len(data), _BLOCK):
            # Words and comparisons reach a little beyond the block.
            part = data[start : start + _BLOCK + 2 * _STEP]
            if len(part) < _BLOCK + 2 * _STEP:
                part = np.concatenate([part, np.zeros(3 * _STEP - len(part) % _STEP, np.uint8)])
            words = part[: len(part) // _STEP * _STEP].view("<u4") | _FOLD
            for group in self._groups:
                for number, starts in self._candidates(group, words, data, start):
                    found.update(PatternOccurrence(number, int(one)) for one in self._alone(number, starts, data, cells, beside))
        return sorted(found, key=lambda one: (one.start, one.pattern))

    def _candidates(
        self, group: _PatternGroup, words: Words, data: npt.NDArray[np.uint8], start: int
    ) -> Iterator[tuple[int, Words]]:
        """Candidate patterns by number, with the positions of each."""
        positions = np.flatnonzero(group.table[_hash_words(words, group.mask, group.shift)])
        if not len(positions):
            return
        exact = _join_word_pairs(words, positions, group.mask)
        which = np.minimum(np.searchsorted(group.sought, exact), len(group.sought) - 1)
        positions, which = _filter_arrays(group.sought[which] == exact, positions, which)
        for index in np.unique(which):
            at = positions[which == index] * _STEP + start
            for alike in group.entries[int(index)]:
                yield from alike.found(at - alike.offset, data)

    def _alone(self, number: int, starts: Words, data: npt.NDArray[np.uint8], cells: Words | None, beside: bool) -> Words:
        """The positions of a pattern that lie within one cell and, for a whole pattern, not between digits."""
        wanted, _, whole = self._patterns[number]
        if cells is not None and len(starts):
            cell = np.searchsorted(cells, starts, side="right") - 1
            starts, cell = _filter_arrays(starts + len(wanted) <= cells[np.minimum(cell + 1, len(cells) - 1)], starts, cell)
            first, last = cells[cell], cells[np.minimum(cell + 1, len(cells) - 1)]
        else:
            first, last = np.zeros(len(starts), np.int64), np.full(len(starts), len(data), np.int64)
        if number in self._beside and len(starts):
            fits = self._goes_on(number, starts, first, last, data)
            starts, first, last = _filter_arrays(fits, starts, first, last)
        if not whole or (beside and len(wanted) >= _LONG) or not len(starts):
            return starts
        ends = starts + len(wanted)
        before = (starts > first) & _DIGITS[data[np.maximum(starts - 1, 0)]]
        after = (ends < last) & _DIGITS[data[np.minimum(ends, len(data) - 1)]]
        return starts[~before & ~after]

    def _goes_on(self, number: int, starts: Words, first: Words, last: Words, data: npt.NDArray[np.uint8]) -> Words:
        """Whether the bytes beside each position fit: by the adjacent byte, or the next base64 letter if base64 is broken there."""
        length, size = len(self._patterns[number][0]), len(data)
        may_be_before, may_be_after = self._beside[number]
        before, after = data[np.maximum(starts - 1, 0)], data[np.minimum(starts + length, size - 1)]
        fits_before = (starts <= first) | may_be_before[before] | _BREAKING[before]
        fits_after = (starts + length >= last) | may_be_after[after] | _BREAKING[after]
        # An escape before it may end with a letter (`\n`, `%0A`), and a line may begin with blanks.
        escaped = _ESCAPING[data[np.maximum(starts - 2, 0)]] | _ESCAPING[data[np.maximum(starts - 3, 0)]]
        for position in np.flatnonzero(_BREAKING[before] | _INDENTING[before] | escaped):
            letter = _find_base64_letter_before(data[max(first[position], starts[position] - REACH) : starts[position]].tobytes())
            fits_before[position] = fits_before[position] if letter is None else may_be_before[letter]
        for position in np.flatnonzero(_BREAKING[after]):
            end = starts[position] + length
            letter = _find_base64_letter_after(data[end : min(last[position], end + REACH)].tobytes())
            fits_after[position] = fits_after[position] if letter is None else may_be_after[letter]
        return fits_before & fits_after


def _build_byte_table(some: bytes) -> npt.NDArray[np.bool_]:
    """By byte, whether it is one of those given; if none are given, any is."""
    made = np.full(256, not some)
    made[list(some)] = True
    return made


def _hash_words(words: Words, mask: np.uint32, shift: np.uint32) -> Words:
    """A hash of each word together with the masked word after it."""
    mixed = words[:-1] * _K1
    after = words[1:] if mask == np.uint32(0xFFFFFFFF) else words[1:] & mask
    mixed ^= after * _K2
    mixed ^= mixed >> np.uint32(15)
    mixed *= _K1
    mixed >>= shift
    return mixed


def _join_word_pairs(words: Words, positions: Words, mask: np.uint32) -> Words:
    """Joins the word at each position with the masked word after it into one number."""
    return words[positions].astype(np.uint64) | (words[positions + 1] & mask).astype(np.uint64) << np.uint64(32)


def _find_rarest_offset(data: bytes, width: int) -> int:
    """The offset of the words by which a pattern is found: where words repeat least, as `0000` would be met often."""
    bases = range(len(data) - width - _STEP + 2)
    return max(bases, key=lambda base: (len(set(data[base : base + width + _STEP - 1])), -base))


def _fold_letter_case(data: bytes) -> bytes:
    return data.lower()


def _lowercase_bytes(data: Words) -> Words:
    return np.where((data >= 65) & (data <= 90), data | _CASE, data)


def _filter_arrays(which: Words, *arrays: Words) -> Iterable[Words]:
    return tuple(array[which] for array in arrays)
