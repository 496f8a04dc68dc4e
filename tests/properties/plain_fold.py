"""The fold in plain Python: what the tables must hold after any history of a landing folder. And random histories."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

Content = tuple[int | None, ...]
"""case, k, seq, value."""

NAMES = ("case", "k", "seq", "value")
MALFORMED = ("no json", "[1, 2]", '{"case": 0, "k"', '"text"', "null")
NO_TEXT = b'{"case": 0}\n\xff\xfe'
FORBIDDEN, DROPPED = -1, 9


@dataclass(frozen=True)
class Event:
    """A file is written with this content and modification time (seconds), or taken away (None)."""

    file: str
    content: bytes | None
    modified: int


@dataclass(frozen=True)
class Delivery:
    """What discovery must see. accepted: it is text, so that its records count."""

    file: str
    content: bytes
    modified: int

    @property
    def accepted(self) -> bool:
        return self.content != NO_TEXT

    @property
    def records(self) -> list[str]:
        return [line for line in self.content.decode().splitlines() if line.strip()] if self.accepted else []

    @property
    def rows(self) -> list[Content]:
        return [row for line in self.records if (row := parsed(line)) is not None]

    @property
    def malformed(self) -> int:
        return len(self.records) - len(self.rows) if self.accepted else 1


@dataclass
class Folder:
    """A landing folder and its deliveries, in the order in which they were seen.

    known: size and modification time of each file as of the last look; None: it was not there. contents: the last that came of each.
    """

    files: dict[str, Event] = field(default_factory=dict)
    known: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)

    def look(self, events: list[Event]) -> None:
        """Apply the events that fall before one run, then see what that run discovers."""
        for event in events:
            if event.content is None:
                self.files.pop(event.file, None)
            else:
                self.files[event.file] = event
        for file in self.known:
            if file not in self.files:
                self.known[file] = None
        for file, event in self.files.items():
            content = event.content or b""
            before, now = self.known.get(file), (len(content), event.modified)
            self.known[file] = now
            # A file that was gone and is back with the content that came last under its name is not new, whatever its time.
            is_back = before is None and self.contents.get(file) == content
            if before != now and not is_back:
                self.contents[file] = content
                self.deliveries.append(Delivery(file, content, event.modified))

    def live(self, replaces: bool) -> list[Delivery]:
        accepted = [delivery for delivery in self.deliveries if delivery.accepted]
        if not replaces:
            return accepted
        latest: dict[str, Delivery] = {}
        for delivery in accepted:
            if delivery.file not in latest or _order(delivery) > _order(latest[delivery.file]):
                latest[delivery.file] = delivery
        return list(latest.values())


def parsed(line: str) -> Content | None:
    """A record as the declared schema reads it; None where it is no JSON object. A value of another type is NULL."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    return tuple(record[name] if isinstance(record.get(name), int) else None for name in NAMES)


def forbidden(row: Content) -> bool:
    """Whether the rule `value >= 0` sets the row aside; a value that is not known does not meet it."""
    return row[3] is None or row[3] < 0


def folded(rows: Iterator[tuple[tuple[object, ...], Content, str]], by_sequence: bool) -> dict[tuple[object, ...], Content]:
    """The winner of each key among (key, row, text of its content): the highest sequence, NULL being lowest, then the hash."""
    best: dict[tuple[object, ...], tuple[tuple[object, ...], Content]] = {}
    for key, row, text in rows:
        sequence = (row[2] is not None, row[2] or 0) if by_sequence else (False, 0)
        rank = (sequence, hashlib.sha256(text.encode()).hexdigest())
        if key not in best or rank > best[key][0]:
            best[key] = (rank, row)
    return {key: row for key, (_, row) in best.items()}


def text_of(row: Content, **more: object) -> str:
    """The row's content as the hash sees it: names in order, NULLs left out."""
    content = {**dict(zip(NAMES, row, strict=True)), **more}
    return json.dumps({name: content[name] for name in sorted(content) if content[name] is not None}, separators=(",", ":"))


def history(random: Random, case: int, runs: int) -> list[list[Event]]:
    """Events of two files in so many runs, each file once a run at most. Keys hold the case: histories do not meet."""
    found: list[list[Event]] = []
    past: list[Event] = []
    for _ in range(runs):
        files = random.sample(("a", "b"), random.choice((0, 1, 1, 2)))
        found.append([_event(random, case, f"case{case:03d}/{file}.jsonl", past) for file in files])
        past += found[-1]
    return found


def known_histories(first: int) -> dict[int, list[list[Event]]]:
    """Histories that include one that failed once, by case, beginning with `first`."""

    def row(case: int, seq: int = 1, value: int = 1) -> bytes:
        return f'{{"case": {case}, "k": 0, "seq": {seq}, "value": {value}}}\n'.encode()

    def events(case: int, *steps: dict[str, tuple[bytes | None, int]]) -> list[list[Event]]:
        return [[Event(f"case{case:03d}/{file}.jsonl", *what) for file, what in step.items()] for step in steps]

    one, two, three, four, five = range(first, first + 5)
    gone = (None, 0)
    return {
        # The same row from two files: it stands while one of them has it, whichever it was taken from.
        one: events(one, {"a": (row(one), 1), "b": (row(one), 1)}, {"a": (b"", 2)}, {"b": (b"", 2)}),
        # The same, and the second file is delivered again in the run in which the first loses the row.
        two: events(
            two, {"a": (row(two), 1), "b": (row(two), 1)}, {"a": (b"", 2), "b": (row(two) + row(two, 0), 2)}, {"b": (b"", 3)}
        ),
        # The winner goes to quarantine by a correction, the runner-up is in the other file, and comes back out of order.
        three: events(
            three,
            {"a": (row(three, 2), 2), "b": (row(three, 1), 1)},
            {"a": (row(three, 2, FORBIDDEN), 3)},
            {"a": (row(three, 5), 1), "b": (b"", 2)},
        ),
        # Both files vanish. One returns as it was, with another time: not new. The other has as many bytes and its time: new.
        four: events(
            four,
            {"a": (row(four, 1), 1), "b": (row(four, 2), 1)},
            {"a": gone, "b": gone},
            {"a": (row(four, 1), 2), "b": (row(four, 3), 1)},
        ),
        # A, B, A are three deliveries, though the file vanishes after each.
        five: events(
            five, {"a": (row(five, 1), 1)}, {"a": gone}, {"a": (row(five, 2), 2)}, {"a": gone}, {"a": (row(five, 1), 3)}
        ),
    }


def _event(random: Random, case: int, file: str, past: list[Event]) -> Event:
    modified = random.randint(1, 4)
    earlier = [event for event in past if event.file == file and event.content is not None]
    chance = random.random()
    if chance < 0.08:
        return Event(file, None, 0)
    if chance < 0.2 and earlier:
        return random.choice(earlier)
    if chance < 0.3 and past:
        return Event(file, random.choice(past).content or b"", modified)
    if chance < 0.37:
        return Event(file, NO_TEXT, modified)
    lines = [_line(random, case) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    return Event(file, "".join(f"{line}\n" for line in lines).encode(), modified)


def _line(random: Random, case: int) -> str:
    chance = random.random()
    if chance < 0.1:
        return random.choice((*MALFORMED, ""))
    value = "text" if chance < 0.15 else random.choice((0, 1, 1, 2, None, FORBIDDEN, FORBIDDEN, DROPPED))
    return json.dumps({"case": case, "k": random.choice((0, 1, None)), "seq": random.choice((0, 1, 1, None)), "value": value})


def _order(delivery: Delivery) -> tuple[int, str]:
    return delivery.modified, hashlib.sha256(delivery.content).hexdigest()
