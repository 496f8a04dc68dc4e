"""Made-up visits: which phones the gyms' access points saw, and when. The gym in the north delivers CSV, the others JSON lines.

A member who is seen in a gym on a day of training comes there to train.

Each member's day has its own random generator. Visits of later days have more fields than those of the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from random import Random

from pipelines.gym.events import training
from pipelines.gym.members import mac_address, phone_of
from pipelines.gym.trackers import FIRST_DAY, File, devices

NORTH, OTHERS = 2, (5, 7)
BAND_FROM, CHANNEL_FROM = 2, 3
"""The days, counted from 0, from which a visit has a new field, and from which its access point has one."""
VISITING, UNFINISHED, TWICE = 0.5, 0.15, 0.05
"""Shares: of members who visit a gym on a day, of visits whose end is delivered a day later, and of visits delivered twice."""

_COLUMNS = ("mac_address", "gym", "first_timestamp", "last_timestamp")


def visits(seed: int, scale: float, day: int) -> tuple[File, File]:
    """The files of a day: from the gyms that deliver JSON lines, and from the one in the north."""
    start = FIRST_DAY + timedelta(days=day)
    others = File(name=f"gym-visits-{start:%Y-%m-%d}.jsonl", delivered_at=start + timedelta(days=1, minutes=20))
    north = File(name=f"north-{start:%Y-%m-%d}.csv", delivered_at=start + timedelta(days=1, minutes=25))
    north.header = ",".join(_COLUMNS)
    for kind, visit in _list_delivered_visits(seed, scale, day):
        file = north if visit["gym"] == NORTH else others
        known = {name: visit[name] for name in _COLUMNS}
        file.add(kind, _write_csv_line(visit) if file is north else _write_json_line(visit, day), **known)
    return others, north


def _list_delivered_visits(seed: int, scale: float, day: int) -> Iterator[tuple[str, dict[str, object]]]:
    """What a day's files contain: its visits, and the ends of visits that were unfinished in the files of the day before."""
    if day:
        yield from (("finished", visit) for kind, visit in _make_visits(seed, scale, day - 1) if kind == "unfinished")
    for kind, visit in _make_visits(seed, scale, day):
        yield (kind, _so_far(visit)) if kind == "unfinished" else ("fine", visit)
        if kind == "twice":
            yield "duplicate", visit


def _make_visits(seed: int, scale: float, day: int) -> Iterator[tuple[str, dict[str, object]]]:
    """The visits of a day, each with the fault that its delivery gets. Times are whole seconds since 1970."""
    start = int((FIRST_DAY + timedelta(days=day)).timestamp())
    for member in range(devices(scale)):
        rng = Random(f"{seed}/{day}/{member}/visit")
        if rng.random() < VISITING:
            kind = rng.choices(("unfinished", "twice", "fine"), weights=(UNFINISHED, TWICE, 1 - UNFINISHED - TWICE))[0]
            phone = mac_address(seed, member, phone_of(scale, member, day))
            first = _before_training(seed, day, member) or start + rng.randrange(8 * 3600, 21 * 3600)
            last = first + rng.randrange(30 * 60, 120 * 60)
            gym = NORTH if rng.random() < 0.5 else rng.choice(OTHERS)
            yield kind, dict(zip((*_COLUMNS, "access_point"), (phone, gym, first, last, rng.randint(1, 4)), strict=True))


def _before_training(seed: int, day: int, member: int) -> int | None:
    """When a member comes to train: some minutes before the workout. Nobody comes at night."""
    workout = training(seed, day, member)
    midnight = (FIRST_DAY + timedelta(days=day + 1)).timestamp()
    if workout is None or workout[0] > midnight - 3 * 3600:
        return None
    return int(workout[0]) - Random(f"{seed}/{day}/{member}/way").randrange(5 * 60, 20 * 60)


def _so_far(visit: dict[str, object]) -> dict[str, object]:
    """The visit as seen when it was half over."""
    first, last = (int(str(visit[name])) for name in ("first_timestamp", "last_timestamp"))
    return {**visit, "last_timestamp": (first + last) // 2}


def _write_csv_line(visit: dict[str, object]) -> str:
    return ",".join(str(visit[name]) for name in _COLUMNS)


def _write_json_line(visit: dict[str, object], day: int) -> str:
    access_point = {"name": f"ap-{visit['gym']}-{visit['access_point']}"}
    channel = {"channel": 36 + 4 * int(str(visit["access_point"]))} if day >= CHANNEL_FROM else {}
    band = {"band": "5 GHz"} if day >= BAND_FROM else {}
    known = {name: visit[name] for name in _COLUMNS}
    return json.dumps({**known, "access_point": {**access_point, **channel}, **band})
