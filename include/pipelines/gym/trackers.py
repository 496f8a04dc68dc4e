"""Made-up fitness trackers: which readings a day has, and in which files they arrive.

Each device's day has its own random generator, so a day can be made again by itself, and adding devices
changes nothing about the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

FIRST_DAY = datetime(2026, 11, 1, tzinfo=UTC)
DEVICES = 20
FIRST_DEVICE = 4_200_000_001
"""Beyond INT, so that a column that is too narrow fails."""
PARTS = ("0600", "1200", "1800", "2400")
LATE = "late"
READINGS_A_PART = 50
MOST_DAYS_LATE = 2

CHANCES = {
    "malformed": 0.002,
    "negative": 0.002,
    "implausible": 0.002,
    "late": 0.008,
    "duplicate": 0.01,
    "correction": 0.008,
}
"""What may be wrong with a reading, and how often. All other readings are fine."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A record as delivered. time, received_at: seconds since 1970-01-01 UTC; heartrate: beats per minute."""

    device_id: int
    time: float
    heartrate: float
    received_at: float

    def line(self) -> str:
        """The reading as a JSON line, without the line break."""
        return json.dumps(asdict(self))

    def deliver(self, kind: str, file: File) -> None:
        """Add the reading to a file."""
        file.add(kind, self.line(), **asdict(self))


def devices(scale: float) -> int:
    """How many devices there are; each is worn by one member."""
    return max(1, round(DEVICES * scale))


def day_files(seed: int, scale: float, day: int) -> list[File]:
    """The files of a day: one for each quarter of it, and one with late readings of the days before."""
    start = FIRST_DAY + timedelta(days=day)
    files = [
        File(name=f"readings-{start:%Y-%m-%d}-{part}.jsonl", delivered_at=start + timedelta(hours=6 * number))
        for number, part in enumerate(PARTS, start=1)
    ]
    late = File(name=f"readings-{start:%Y-%m-%d}-{LATE}.jsonl", delivered_at=start + timedelta(days=1, minutes=10))
    for made_on in range(max(0, day - MOST_DAYS_LATE), day + 1):
        for device in range(devices(scale)):
            for number, kind, reading, rng in _make_readings(seed, made_on, device):
                _deliver_reading(kind, reading, rng, [*files, late] if made_on == day else [late], number, day - made_on)
    return [*files, late]


def _make_readings(seed: int, day: int, device: int) -> Iterator[tuple[int, str, Reading, Random]]:
    """The device's readings of the day, each with its part of the day and the fault that it gets."""
    rng = Random(f"{seed}/{day}/{device}")
    resting = rng.uniform(52, 72)
    period = 86_400 / (len(PARTS) * READINGS_A_PART)
    start = (FIRST_DAY + timedelta(days=day)).timestamp()
    for slot in range(len(PARTS) * READINGS_A_PART):
        time = round(start + slot * period + rng.uniform(0, period - 30), 6)
        kind = rng.choices([*CHANCES, "fine"], weights=[*CHANCES.values(), 1 - sum(CHANCES.values())])[0]
        reading = Reading(
            device_id=FIRST_DEVICE + device,
            time=time,
            heartrate=_make_heart_rate(kind, resting, rng),
            received_at=round(time + rng.uniform(0.5, 20), 6),
        )
        yield slot // READINGS_A_PART, kind, reading, Random(rng.getrandbits(64))


def _make_heart_rate(kind: str, resting: float, rng: Random) -> float:
    """Beats per minute, at rest or in training, unless the sensor is at fault."""
    if kind == "negative":
        return -round(rng.uniform(1, 90), 1)
    if kind == "implausible":
        return round(rng.uniform(230, 290), 1)
    training = rng.uniform(30, 100) if rng.random() < 0.1 else 0
    return round(min(resting + training + rng.gauss(6, 4), 215), 1)


def _deliver_reading(kind: str, reading: Reading, rng: Random, files: list[File], part: int, days_ago: int) -> None:
    """Put a reading into those of these files that it arrives in.

    files: all of the reading's own day, or the late one of a day after it.
    """
    days_late = rng.randint(1, MOST_DAYS_LATE)
    fraction, other = rng.random(), round(reading.heartrate + rng.choice((-1, 1)) * rng.uniform(1, 9), 1)
    own = files[part] if days_ago == 0 else None
    # What comes a second time comes with the next file; after the day's last part, with the late file of the
    # day after.
    last_part = part == len(PARTS) - 1
    again = files[part + 1] if own and not last_part else files[-1] if days_ago == 1 and last_part else None
    if kind == "late":
        if days_ago == days_late:
            _copy_as_received(reading, files[-1], reading.heartrate).deliver(kind, files[-1])
        return
    if own and kind == "malformed":
        line = reading.line()
        own.add(kind, line[: 1 + int(fraction * (len(line) - 1))])
    elif own:
        reading.deliver("fine" if kind in ("duplicate", "correction") else kind, own)
    if again and kind == "duplicate":
        reading.deliver(kind, again)
    if again and kind == "correction":
        _copy_as_received(reading, again, other).deliver(kind, again)


def _copy_as_received(reading: Reading, file: File, heartrate: float) -> Reading:
    """The reading, received shortly before the file is delivered."""
    return Reading(
        device_id=reading.device_id,
        time=reading.time,
        heartrate=heartrate,
        received_at=file.delivered_at.timestamp() - 30,
    )


@dataclass(kw_only=True)
class File:
    """A file to deliver: its lines, and what the maker knows about each record. header: a first line that is not a record."""

    name: str
    delivered_at: datetime
    header: str = ""
    lines: list[str] = field(default_factory=list)
    told: list[dict[str, object]] = field(default_factory=list)

    def add(self, kind: str, line: str, **known: object) -> None:
        """Add a record to this file. known: what the record says, if anything."""
        self.lines.append(line)
        self.told.append({"kind": kind, "file": self.name, **known})

    @property
    def text(self) -> str:
        """The file's content."""
        return "".join(f"{line}\n" for line in ([self.header] if self.header else []) + self.lines)
