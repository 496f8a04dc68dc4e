"""Change data capture in plain Python: what the changes of one key come to, one after the other.

`sluice.declare.cdc.histories` says the same by aggregates and windows, in which no row waits for another; here nothing is clever.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.declare.cdc.histories import CHANGE, CONTENT, DELETE, END, SEQUENCE, START

Row = Mapping[str, Any]
State = dict[str, Any]
"""The target's columns but the keys."""

Event = tuple[Any, int, str, State | None]
"""When it was, its place among those of one sequence, its content, and what it says; None: that the key is gone."""

_ENDS, _SAYS, _GONE = 0, 1, 2
"""At one sequence a truncate comes first, then what is said of a key, then that it is gone."""


@dataclass(frozen=True)
class Plain:
    """How changes are folded. ends: the sequences of truncates. tracked: the columns of which another value begins an interval; None: SCD 1.

    snapshots: of full extracts, when they were taken; a key that one lacks is gone at it.
    """

    values: tuple[str, ...]
    tracked: tuple[str, ...] | None = None
    ends: tuple[Any, ...] = ()
    snapshots: tuple[Any, ...] = ()
    ignore_null_updates: bool = False

    def fold(self, changes: Sequence[Row]) -> Iterator[State]:
        """Of the changes of one key, the target's rows: its columns but the keys, and of a history START and END."""
        states = self._states(self._events(changes))
        if self.tracked is not None:
            yield from self._intervals(states, self.tracked)
        elif states and states[-1][1] is not None:
            yield states[-1][1]

    def _events(self, changes: Sequence[Row]) -> list[Event]:
        events: list[Event] = [(end, _ENDS, "", None) for end in self.ends]
        for row in changes:
            gone = row[CHANGE] == DELETE
            says = None if gone else {name: row[name] for name in self.values}
            events.append((ordered(row[SEQUENCE]), _GONE if gone else _SAYS, row[CONTENT], says))
        there = {ordered(row[SEQUENCE]) for row in changes}
        events += [(taken, _GONE, "", None) for taken in self.snapshots if taken not in there]
        return sorted(events, key=lambda event: event[:3])

    def _states(self, events: Iterable[Event]) -> list[tuple[Any, State | None]]:
        """What the key is after each sequence at which something happened."""
        found: list[tuple[Any, State | None]] = []
        state: State | None = None
        for sequence, together in itertools.groupby(events, key=lambda event: event[0]):
            for *_, says in together:
                if says is not None and state is not None and self.ignore_null_updates:
                    before = state
                    says = {name: before[name] if value is None else value for name, value in says.items()}
                state = says
            found.append((sequence, state))
        return found

    def _intervals(self, states: Iterable[tuple[Any, State | None]], tracked: Sequence[str]) -> Iterator[State]:
        since, now = None, None
        for sequence, state in states:
            goes_on = now is not None and state is not None and all(_same(now[name], state[name]) for name in tracked)
            if not goes_on:
                if now is not None:
                    yield {**now, START: since, END: sequence}
                since = sequence
            now = state
        if now is not None:
            yield {**now, START: since, END: None}


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # what is no number is equal to itself in Spark


def ordered(sequence: Any) -> Any:
    """A sequence as something that Python puts in order: of several columns a tuple."""
    return tuple(sequence.values()) if isinstance(sequence, Mapping) else sequence
