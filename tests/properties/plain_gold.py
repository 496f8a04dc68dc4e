"""The ward in plain Python: what its silver tables must hold after any deliveries. And random deliveries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random

from tests.properties import plain_cdc
from tests.properties.plain_cdc import Change
from tests.properties.plain_fold import Event, Folder, folded

FIRST, DAYS, MONITORS, PATIENTS = date(2026, 1, 1), 6, 4, 3
Reading = tuple[int | None, str | None, int | None, int | None]
"""monitor, day, seq, bpm."""
NAMES = ("monitor", "day", "seq", "bpm")


@dataclass(frozen=True)
class Fitting(Change):
    """A change of who wears a monitor: key (monitor,), values (patient,), None: nobody any more."""

    @property
    def content(self) -> str:
        own = {} if self.values is None else {"at": self.sequence, "patient": self.values[0]}
        return plain_cdc.content({"monitor": self.key[0], **own})

    @property
    def line(self) -> str:
        record = {"monitor": self.key[0], "at": self.sequence, "patient": self.values[0] if self.values else 9}
        return json.dumps({**record, "op": "delete" if self.values is None else "upsert"}) + "\n"


@dataclass
class Ward:
    """What was put into the landing folder, what bronze saw of it, and what silver made from that.

    pending: what happened to files since the last look. silver: by table its rows, as of the last run of that layer; None where a
    replay or a stopped run left it between two states.
    """

    folder: Folder = field(default_factory=Folder)
    pending: list[Event] = field(default_factory=list)
    fittings: list[Fitting] = field(default_factory=list)
    seen: int = 0

    def look(self) -> None:
        """What a run of bronze does."""
        self.folder.look(self.pending)
        self.pending = []
        self.seen = len(self.fittings)

    @property
    def reading(self) -> list[tuple[object, ...]]:
        """The rows of `reading`, made from everything in bronze."""

        def rows() -> Iterator[tuple[tuple[object, ...], Reading, str]]:
            for delivery in self.folder.live(replaces=True):
                for line in delivery.records:
                    row: Reading = tuple(json.loads(line)[name] for name in NAMES)  # type: ignore[assignment]
                    if row[3] is not None and row[3] >= 0:
                        yield row[:2], row, _text(row)

        return sorted(_stored(folded(rows(), by_sequence=True).values()), key=repr)  # type: ignore[arg-type]

    @property
    def worn_by(self) -> list[tuple[object, ...]]:
        """The rows of `worn_by`, likewise: monitor, patient."""
        states = plain_cdc.scd1(self.fittings[: self.seen])
        return sorted(((*key, *values) for key, values in states.items()), key=repr)


def _text(row: Reading) -> str:
    """A row's content as the hash sees it, which decides ties: names in order, NULLs left out."""
    named = dict(zip(NAMES, row, strict=True))
    return json.dumps({name: named[name] for name in sorted(named) if named[name] is not None}, separators=(",", ":"))


def _stored(rows: Iterable[Reading]) -> Iterator[tuple[object, ...]]:
    for monitor, day, seq, bpm in rows:
        yield monitor, date.fromisoformat(day) if day else None, seq, bpm


def random_readings(random: Random, rows: int, days: Sequence[int] = range(DAYS)) -> list[Reading]:
    """Readings of these days, counted from FIRST: NULLs in keys and values, ties, some that the rule refuses."""

    def one() -> Reading:
        monitor = None if random.random() < 0.1 else random.randrange(MONITORS)
        day = None if random.random() < 0.1 else str(FIRST + timedelta(days=random.choice(days)))
        return monitor, day, random.choice((None, 1, 1, 2, 3)), random.choice((None, -1, 50, 60, 60, 70, 80))

    return [one() for _ in range(rows)]


def content(rows: Iterable[Reading]) -> bytes:
    """A file of readings."""
    return "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows).encode()


def random_fittings(random: Random, changes: int, latest: int = 9) -> list[Fitting]:
    """Changes of the dimension in any order: of some a deletion."""
    found = []
    for _ in range(changes):
        values = None if random.random() < 0.3 else (random.choice((None, *range(PATIENTS))),)
        found.append(Fitting((random.randrange(MONITORS),), random.randint(0, latest), values))
    return found
