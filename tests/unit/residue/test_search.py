"""The search over bytes finds every occurrence that a plain search finds, and no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residue.search import BytePattern, PatternOccurrence, PatternSearch

WORDS = (b"7000000001", b"0000000", b"ab:cd:ef", b"anna-schmidt-4711", b"\x01\x92<\xa1\x01\x00\x00\x00", b"aaaaaaaaaaaa")
# Identifiers that are counted up differ in a few places only.
WORDS += (b"7000000002", b"7000000011", b"70000000011", b"7000000091", b"anna-schmidt-4712")


def _plainly(patterns: list[BytePattern], data: bytes) -> list[PatternOccurrence]:
    found = []
    for number, pattern in enumerate(patterns):
        wanted, text = (pattern.data.lower(), data.lower()) if pattern.fold else (pattern.data, data)
        start = text.find(wanted)
        while start >= 0:
            beside = data[max(0, start - 1) : start] + data[start + len(wanted) : start + len(wanted) + 1]
            if not (pattern.whole and any(48 <= byte <= 57 for byte in beside)):
                found.append(PatternOccurrence(number, start))
            start = text.find(wanted, start + 1)
    return sorted(found, key=lambda one: (one.start, one.pattern))


parts = st.lists(
    st.one_of(st.sampled_from(WORDS), st.sampled_from([word.upper() for word in WORDS]), st.binary(max_size=9)), max_size=12
)


@given(parts=parts, fold=st.booleans(), whole=st.booleans(), wanted=st.sets(st.sampled_from(WORDS), min_size=1))
@settings(max_examples=300, deadline=None)
def test_it_finds_what_a_plain_search_finds(parts: list[bytes], fold: bool, whole: bool, wanted: set[bytes]) -> None:
    patterns = [BytePattern(word, fold, whole) for word in sorted(wanted)]
    data = b"".join(parts)
    assert PatternSearch(patterns).find(np.frombuffer(data, np.uint8)) == _plainly(patterns, data)


@pytest.mark.parametrize("where", [0, 1, (1 << 17) - 9, (1 << 17) - 1, (1 << 17) + 3, (1 << 18) - 5])
def test_it_finds_what_lies_across_the_blocks_that_it_works_in(where: int) -> None:
    data = bytearray(1 << 18)
    data[where : where + 10] = b"7000000001"
    assert PatternSearch([BytePattern(b"7000000001")]).find(np.frombuffer(data, np.uint8)) == [PatternOccurrence(0, where)]


def test_cells_that_lie_one_after_the_other_stay_apart() -> None:
    data, cells = np.frombuffer(b"70000000017000000001700000" + b"0001", np.uint8), np.array([0, 10, 20, 26, 30])
    assert [one.start for one in PatternSearch([BytePattern(b"7000000001", whole=True)]).find(data, cells)] == [0, 10]


@given(where=st.lists(st.integers(0, 99_999), max_size=30), first=st.integers(0, 50), step=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_many_that_are_counted_up_are_told_apart(where: list[int], first: int, step: int) -> None:
    patterns = [BytePattern(b"%010d" % (7_000_000_000 + first + step * number), whole=True) for number in range(300)]
    data = b" ".join(b'{"user": %d}' % (7_000_000_000 + one % 3_000) for one in where)
    assert PatternSearch(patterns).find(np.frombuffer(data, np.uint8)) == _plainly(patterns, data)


def test_a_pattern_that_is_too_short_to_be_found_is_refused() -> None:
    with pytest.raises(ValueError, match="has 5 bytes; 7 are the least"):
        PatternSearch([BytePattern(b"12140")])
