"""Change data capture in plain Python: what a target must hold after any set of changes. And random feeds, and all small ones."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

Key = tuple[object, ...]
Values = tuple[object, ...]
"""The target's columns but the keys, in the order of COLUMNS. A tuple in it is a STRUCT."""
Interval = tuple[Values, object, object]

COLUMNS = ("a", "b")


@dataclass(frozen=True)
class Change:
    """values: None of a delete. sequence: a number, or a tuple of several columns."""

    key: Key
    sequence: object
    values: Values | None

    @property
    def kind(self) -> str:
        return "delete" if self.values is None else "upsert"

    @property
    def content(self) -> str:
        return content(dict(zip(COLUMNS, self.values or (), strict=self.values is not None)))


@dataclass(frozen=True)
class Extract:
    """A row of a full extract."""

    key: Key
    snapshot: int
    values: Values


def content(row: Mapping[str, object]) -> str:
    """The hash of a row's content: names in order, NULLs left out."""
    text = json.dumps({name: row[name] for name in sorted(row) if row[name] is not None}, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def scd1(changes: Iterable[Change], truncates: Collection[object] = (), ignore_null_updates: bool = False) -> dict[Key, Values]:
    """By key, its last state, of those that are there."""
    last = {key: states[-1][1] for key, states in _states(changes, truncates, ignore_null_updates).items()}
    return {key: state for key, state in last.items() if state is not None}


def scd2(
    changes: Iterable[Change],
    truncates: Collection[object] = (),
    tracked: Collection[str] = COLUMNS,
    ignore_null_updates: bool = False,
) -> dict[Key, list[Interval]]:
    """By key, its intervals in order."""
    states = _states(changes, truncates, ignore_null_updates)
    return {key: found for key in states if (found := list(_intervals(states[key], tracked)))}


def from_snapshots(rows: Collection[Extract]) -> list[Change]:
    """Full extracts as changes: a key that an extract lacks is deleted at it."""
    snapshots = {row.snapshot for row in rows}
    there = {(row.key, row.snapshot) for row in rows}
    gone = ((key, snapshot) for key in {row.key for row in rows} for snapshot in snapshots)
    deletes = [Change(key, snapshot, None) for key, snapshot in gone if (key, snapshot) not in there]
    return [*(Change(row.key, row.snapshot, row.values) for row in rows), *deletes]


def _states(
    changes: Iterable[Change], truncates: Collection[object], ignore_null_updates: bool
) -> dict[Key, list[tuple[object, Values | None]]]:
    """By key, what it is after each sequence at which something happened; None: it is not there."""
    of_key: dict[Key, list[Change]] = {}
    for change in changes:
        of_key.setdefault(change.key, []).append(change)
    found: dict[Key, list[tuple[object, Values | None]]] = {}
    for key, own in of_key.items():
        # A truncate stands before the upserts of its sequence, a delete behind them.
        events: list[tuple[object, int, str, Values | None]] = [(sequence, 0, "", None) for sequence in set(truncates)]
        events += [(change.sequence, 1 if change.values else 2, change.content, change.values) for change in own]
        state: Values | None = None
        for sequence, at_once in itertools.groupby(sorted(events, key=lambda event: event[:3]), key=lambda event: event[0]):
            for *_, values in at_once:
                if values is not None and ignore_null_updates:
                    values = tuple(map(_keep_known, values, state or (None,) * len(values)))
                state = values
            found.setdefault(key, []).append((sequence, state))
    return found


def _keep_known(new: object, old: object) -> object:
    """What a column is after a change in which NULL says nothing, in no field of a STRUCT either."""
    if not isinstance(new, tuple) and not isinstance(old, tuple):
        return old if new is None else new
    width = len(next(one for one in (new, old) if isinstance(one, tuple)))
    fields = [one if isinstance(one, tuple) else (None,) * width for one in (new, old)]
    kept = tuple(map(_keep_known, *fields))
    return None if kept == (None,) * width else kept


def _intervals(states: Sequence[tuple[object, Values | None]], tracked: Collection[str]) -> Iterator[Interval]:
    said = [COLUMNS.index(name) for name in tracked]
    since: object = None
    now: Values | None = None
    for sequence, state in states:
        goes_on = now is not None and state is not None and all(now[position] == state[position] for position in said)
        if not goes_on:
            if now is not None:
                yield now, since, sequence
            since = sequence
        now = state
    if now is not None:
        yield now, since, None


VALUES: list[Values] = [(a, b) for a in (0, 1, None) for b in (0, None)]
KINDS: list[Values | None] = [(0, 0), (1, None), (None, 0), (None, None), None]
NESTED: list[Values] = [
    (a, b) for a in (0, None) for b in (None, (None, None), (0, None), (1, (None, None)), (None, (0, None)), (None, (1, 1)))
]
"""Values whose second is a STRUCT with a field and a STRUCT of two fields."""
NESTED_KINDS: list[Values | None] = [(0, (0, (None, 0))), (None, (None, (1, None))), (None, (1, None)), (1, None), None]
NESTED_TYPE = "STRUCT<x: INT, y: STRUCT<z: INT, t: INT>>"


def every_feed(length: int, kinds: Sequence[Values | None] = KINDS) -> Iterator[list[tuple[int, Values | None]]]:
    """Every multiset of so many changes (sequence, values) of one key, over three sequences and few values."""
    yield from (list(feed) for feed in itertools.combinations_with_replacement(itertools.product((1, 2, 3), kinds), length))


def random_feed(
    random: Random, keys: Sequence[Key], length: int, latest: int = 6, values_of: Sequence[Values] = VALUES
) -> list[Change]:
    """Changes of these keys with ties, NULLs and duplicates."""
    found: list[Change] = []
    for _ in range(random.randint(1, length)):
        values = None if random.random() < 0.25 else random.choice(values_of)
        found.append(Change(random.choice(keys), random.randint(0, latest), values))
    return found + random.choices(found, k=random.randint(0, 2))


def random_extracts(random: Random, keys: Sequence[Key], snapshots: int) -> list[Extract]:
    """Extracts in which keys come and go, some with two rows of a key."""
    found = [
        Extract(key, snapshot, random.choice(VALUES)) for key in keys for snapshot in range(snapshots) if random.random() < 0.6
    ]
    doubled = [Extract(row.key, row.snapshot, random.choice(VALUES)) for row in found if random.random() < 0.2]
    return found + doubled
