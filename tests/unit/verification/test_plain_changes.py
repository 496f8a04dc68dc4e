"""The fold of `sluice verify` against the plain model of the tests: every small feed of one key, truncates, full extracts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest
from tests.properties.plain_cdc import (
    COLUMNS,
    KINDS,
    NESTED_KINDS,
    Change,
    Interval,
    Values,
    every_feed,
    from_snapshots,
    random_extracts,
    scd1,
    scd2,
)

from sluice.declare.cdc.histories import CHANGE, CONTENT, END, SEQUENCE, START
from sluice.verification.change_targets import ChangeFold

KEY = (1,)


def rows(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """The changes as a log has them."""
    found = []
    for change in changes:
        values = change.values or (None,) * len(COLUMNS)
        own = {SEQUENCE: change.sequence, CHANGE: change.kind, CONTENT: change.content}
        found.append({**dict(zip(COLUMNS, map(as_struct, values), strict=True)), **own})
    return found


def as_struct(value: object) -> Any:
    """A value as Arrow gives it to Python: a STRUCT by field."""
    return {f"field {position}": as_struct(one) for position, one in enumerate(value)} if isinstance(value, tuple) else value


def as_tuple(value: Any) -> object:
    return tuple(map(as_tuple, value.values())) if isinstance(value, dict) else value


def state(plain: ChangeFold, changes: Iterable[Change]) -> Values | None:
    found = [tuple(as_tuple(row[name]) for name in COLUMNS) for row in plain.fold(rows(changes))]
    return found[0] if found else None


def intervals(plain: ChangeFold, changes: Iterable[Change]) -> list[Interval]:
    return [(tuple(as_tuple(row[name]) for name in COLUMNS), row[START], row[END]) for row in plain.fold(rows(changes))]


@pytest.mark.parametrize("ends", [(), (2,)])
@pytest.mark.parametrize("ignoring", [False, True])
@pytest.mark.parametrize("kinds", [KINDS, NESTED_KINDS], ids=["plain", "nested"])
def test_every_feed_of_a_key(ends: Sequence[int], ignoring: bool, kinds: Sequence[Values | None]) -> None:
    for feed in every_feed(3, kinds):
        changes = [Change(KEY, sequence, values) for sequence, values in feed]
        last = ChangeFold(values=COLUMNS, ends=tuple(ends), ignore_null_updates=ignoring)
        assert state(last, changes) == scd1(changes, ends, ignoring).get(KEY), feed
        for tracked in (COLUMNS, ("b",)):
            history = ChangeFold(values=COLUMNS, tracked=tracked, ends=tuple(ends), ignore_null_updates=ignoring)
            assert intervals(history, changes) == scd2(changes, ends, tracked, ignoring).get(KEY, []), feed


def test_a_key_that_an_extract_lacks_is_gone_at_it() -> None:
    for seed in range(60):
        extracts = random_extracts(Random(seed), [(1,), (2,)], 4)
        taken = tuple(sorted({row.snapshot for row in extracts}))
        expected = scd2(from_snapshots(extracts), tracked=COLUMNS)
        for key in {row.key for row in extracts}:
            own = [Change(key, row.snapshot, row.values) for row in extracts if row.key == key]
            assert intervals(ChangeFold(values=COLUMNS, tracked=COLUMNS, snapshots=taken), own) == expected.get(key, []), seed


def test_what_is_no_number_is_equal_to_itself_and_several_columns_are_one_sequence() -> None:
    nan = float("nan")
    changes = [
        Change(KEY, {"at": at, "part": part}, (value, None))
        for at, part, value in ((2, 1, 5.0), (1, 9, nan), (1, 2, float("nan")))
    ]
    found = intervals(ChangeFold(values=COLUMNS, tracked=COLUMNS), changes)
    assert [(since, until) for _, since, until in found] == [((1, 2), (2, 1)), ((2, 1), None)]
