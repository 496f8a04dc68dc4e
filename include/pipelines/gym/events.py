"""Made-up exports of a message store: what members' devices and the front desk send. One file per day holds many topics.

The store delivers at least once: each file begins with the last events of the day before. One event a day has its value cut off.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from pipelines.gym.members import changes, device_id, user_id
from pipelines.gym.trackers import FIRST_DAY, File, devices

PARTITIONS = 2
AGAIN = 5
"""How many events of the day before stand at the beginning of an export."""
TRAINING, ABORTED, AT_NIGHT = 0.6, 0.15, 0.2
"""Shares: of members who train on a day, of workouts that are aborted, and of workouts that begin in the last hour of the day."""
ABORTED_AFTER = 59.0
"""In seconds. FLOAT has steps of 128 s at this size, so as FLOAT such a start and stop would be the same instant."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a topic. sent: seconds since 1970. value: JSON text. known: what the value says; empty if it is cut off."""

    topic: str
    key: str
    sent: float
    value: str
    known: dict[str, object]


def events(seed: int, scale: float, day: int) -> File:
    """The export of a day."""
    start = FIRST_DAY + timedelta(days=day)
    file = File(name=f"events-{start:%Y-%m-%d}.jsonl", delivered_at=start + timedelta(days=1, minutes=15))
    again = _make_stored_events(seed, scale, day - 1)[-AGAIN:] if day else []
    for kind, stored in [
        *(("duplicate", one) for one in again),
        *(("fine", one) for one in _make_stored_events(seed, scale, day)),
    ]:
        event, partition, offset = stored
        record = {"key": event.key, "value": event.value, "topic": event.topic, "partition": partition, "offset": offset}
        line = json.dumps({**record, "timestamp": int(event.sent * 1000)})
        file.add(kind if event.known else "malformed", line, topic=event.topic, value=event.known)
    return file


def _make_stored_events(seed: int, scale: float, day: int) -> list[tuple[Event, int, int]]:
    """The events of a day as the store has them, each with its partition and offset."""
    sent = sorted(_make_sent_events(seed, scale, day), key=lambda event: event.sent)
    cut = Random(f"{seed}/{day}/cut").randrange(len(sent)) if sent else 0
    counts = Counter[tuple[str, int]]()
    stored = []
    for number, event in enumerate(sent):
        partition = int(event.key) % PARTITIONS
        counts[event.topic, partition] += 1
        offset = day * 1_000_000 + counts[event.topic, partition] - 1
        stored.append((_cut_event(event) if number == cut else event, partition, offset))
    return stored


def _cut_event(event: Event) -> Event:
    return Event(topic=event.topic, key=event.key, sent=event.sent, value=event.value[: len(event.value) // 2], known={})


def _make_sent_events(seed: int, scale: float, day: int) -> Iterator[Event]:
    for sent, record in changes(seed, scale, day):
        yield _make_event("user_info", sent, int(str(record["user_id"])), record)
    end = (FIRST_DAY + timedelta(days=day + 1)).timestamp()
    for begun in range(max(0, day - 1), day + 1):
        for member in range(devices(scale)):
            # What happens after midnight is sent, and so exported, on the next day.
            yield from (event for event in _make_training_events(seed, begun, member) if end - 86_400 <= event.sent < end)


def training(seed: int, day: int, member: int) -> tuple[float, float, Random] | None:
    """The start and end of the workout that a member begins on a day (seconds since 1970), and the generator for the rest of it."""
    rng = Random(f"{seed}/{day}/{member}/workout")
    if rng.random() >= TRAINING:
        return None
    hour = rng.uniform(23.2, 24) if rng.random() < AT_NIGHT else rng.uniform(6, 20)
    begin = round((FIRST_DAY + timedelta(days=day)).timestamp() + hour * 3600, 3)
    end = begin + (ABORTED_AFTER if rng.random() < ABORTED else round(rng.uniform(20, 80) * 60, 3))
    return begin, round(end, 3), rng


def _make_training_events(seed: int, day: int, member: int) -> Iterator[Event]:
    """The events of the workout that a member begins on a day, if there is one."""
    made_up = training(seed, day, member)
    if made_up:
        yield from _make_workout_events(member, day, *made_up)


def _make_workout_events(member: int, day: int, begin: float, end: float, rng: Random) -> Iterator[Event]:
    """A workout from `begin` to `end` (seconds since 1970): its start, its stop, and the heart rate every ten minutes of it."""
    user = user_id(member)
    session = {"user_id": user, "workout_id": rng.randint(1, 30), "session_id": day * 10_000 + member}
    for action, at in (("start", begin), ("stop", end)):
        yield _make_event("workout", at + 0.5, user, {**session, "action": action, "time": at})
    at = begin
    while at < end:
        beats: dict[str, object] = {
            "user_id": user,
            "device_id": device_id(member),
            "time": at,
            "heartrate": round(rng.uniform(95, 175), 1),
        }
        yield _make_event("bpm", at + 1, user, beats)
        at = round(at + 600, 3)


def _make_event(topic: str, sent: float, user: int, record: dict[str, object]) -> Event:
    # The key says whose event it is; the value does not repeat it.
    value = {name: content for name, content in record.items() if name != "user_id"}
    return Event(topic=topic, key=str(user), sent=sent, value=json.dumps(value, ensure_ascii=False), known=record)
