"""Made-up members of the gym: who wears which device, what is known of them, and the phone that the gym sees.

Each member has their own random generators, so adding members changes nothing about the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from random import Random
from typing import TypeAlias

from pipelines.gym.trackers import FIRST_DAY, FIRST_DEVICE, File, devices

FIRST_MEMBER = 7_000_000_001
UPDATING = 0.1
"""The share of members whose data changes, on any day but the first."""
LEAVING = {0: 1, 3: 2}
"""The day on which a member leaves, by the last digit of the member's position; both count from 0. The member returns two days later."""
KNOWN_LATE = 1
"""The last digit of the positions of members whose first change is exported a day before the news that they joined."""
REGISTERED_LATE = 2
"""The same of members whose registration on the first day is exported a day late, and so after their readings and visits."""
HOUR = 3600.0

Change: TypeAlias = tuple[float, dict[str, object]]
"""When a record is sent (seconds since 1970), and the record."""

_FIRST_NAMES = ("Ada", "Bo", "Chika", "Dana", "Edda", "Farid", "Ginevra", "Hugo", "Inés", "Jun")
_LAST_NAMES = ("Abel", "Berg", "Costa", "Dvořák", "Eze", "Fischer", "Grün", "Haddad", "Ito", "Jansen")
_GENDERS = ("female", "male", "other")
_STATES = {
    "Bergen": "Vestland",
    "Graz": "Steiermark",
    "Køge": "Sjælland",
    "Łódź": "Łódzkie",
    "Porto": "Norte",
    "Zürich": "Zürich",
}
_CITIES = tuple(_STATES)


def user_id(member: int) -> int:
    """A member's number."""
    return FIRST_MEMBER + member


def device_id(member: int) -> int:
    """The tracker that a member wears."""
    return FIRST_DEVICE + member


def mac_address(seed: int, member: int, phone: int) -> str:
    """The address of one of a member's phones, which are counted from 0."""
    digits = Random(f"{seed}/{member}/phone/{phone}").randbytes(5).hex()
    return ":".join(["02", *(digits[at : at + 2] for at in range(0, 10, 2))])


def phone_of(scale: float, member: int, day: int) -> int:
    """Which of their phones a member has on a day. On every day but the first, one member, in turn, gets a new phone."""
    return sum(later % devices(scale) == member for later in range(1, day + 1))


def registrations(seed: int, scale: float, day: int) -> File:
    """Which device and phone belong to whom: all members on the first day, after that only members with a new phone."""
    start = FIRST_DAY + timedelta(days=day)
    columns = ("device_id", "mac_address", "user_id", "registered_at")
    file = File(name=f"registrations-{start:%Y-%m-%d}.csv", delivered_at=start + timedelta(days=1, minutes=5))
    file.header = ",".join(columns)
    for kind, member, registered_on in _list_registrations(scale, day):
        phone = mac_address(seed, member, phone_of(scale, member, registered_on))
        at = int(_start_of_day(registered_on) + 7 * HOUR) + 60 * member
        record = dict(zip(columns, (device_id(member), phone, user_id(member), at), strict=True))
        file.add(kind, ",".join(str(value) for value in record.values()), **record)
    return file


def _list_registrations(scale: float, day: int) -> Iterator[tuple[str, int, int]]:
    """The registrations that are exported on a day: late or not, the member, and the day of the registration."""
    first = [("late" if member % 10 == REGISTERED_LATE else "fine", member, 0) for member in range(devices(scale))]
    if day < 2:
        yield from (one for one in first if one[0] == ("late" if day else "fine"))
    if day:
        yield "fine", day % devices(scale), day


def changes(seed: int, scale: float, day: int) -> Iterator[Change]:
    """What is reported about members on a day. Those of LEAVING and KNOWN_LATE have a story; the others move now and then."""
    for member in range(devices(scale)):
        if member % 10 in LEAVING:
            yield from _make_departure(seed, member, day)
        elif member % 10 == KNOWN_LATE:
            yield from _known_late(seed, member, day)
        elif day == 0:
            yield _start_of_day(0) + member, _describe_member(seed, member, "new", _start_of_day(0) + member)
        else:
            yield from _make_moves(seed, member, day)


def _make_moves(seed: int, member: int, day: int) -> Iterator[Change]:
    """Some members move twice in a row; for half of these, the first move is sent last."""
    rng = Random(f"{seed}/{day}/{member}/changes")
    if rng.random() >= UPDATING:
        return
    first = round(_start_of_day(day) + rng.uniform(0, 80_000), 3)
    sent = (first + 300, first + 200) if rng.random() < 0.5 else (first, first + 200)
    for at, updated_at in zip(sent, (first, first + 100), strict=True):
        yield at, _describe_member(seed, member, "update", updated_at, rng.choice(_CITIES))


def _make_departure(seed: int, member: int, day: int) -> Iterator[Change]:
    """Joins on the first day; moves and leaves on one day; a day later somebody enters an earlier move; then the member returns."""
    left = LEAVING[member % 10]
    first, second, third = _shuffle_other_cities(seed, member)[:3]
    if day == 0:
        yield _start_of_day(0) + member, _describe_member(seed, member, "new", _start_of_day(0) + member)
    if day == left:
        yield _start_of_day(day) + 9 * HOUR, _describe_member(seed, member, "update", _start_of_day(day) + 9 * HOUR, first)
        gone = _start_of_day(day) + 18 * HOUR
        yield gone, {"user_id": user_id(member), "change": "delete", "updated_at": gone}
    if day == left + 1:
        yield _start_of_day(day) + 10 * HOUR, _describe_member(seed, member, "update", _start_of_day(left) + 12 * HOUR, second)
    if day == left + 2:
        yield _start_of_day(day) + 11 * HOUR, _describe_member(seed, member, "new", _start_of_day(day) + 11 * HOUR, third)


def _known_late(seed: int, member: int, day: int) -> Iterator[Change]:
    """Moves at noon of the first day; what was recorded that morning is sent a day later."""
    if day == 0:
        noon = _start_of_day(0) + 12 * HOUR
        yield noon, _describe_member(seed, member, "update", noon, _shuffle_other_cities(seed, member)[0])
    if day == 1:
        yield _start_of_day(1) + member, _describe_member(seed, member, "new", _start_of_day(0) + member)


def _describe_member(seed: int, member: int, change: str, updated_at: float, city: str | None = None) -> dict[str, object]:
    """Everything known of a member. city: where the member lives now."""
    known = _describe_new_member(seed, member)
    home = {} if city is None else {"city": city, "state": _STATES[city]}
    return {"user_id": user_id(member), "change": change, "updated_at": updated_at, **known, **home}


def _describe_new_member(seed: int, member: int) -> dict[str, object]:
    """What is known of a member when they join."""
    rng = Random(f"{seed}/{member}/known")
    return {
        "first_name": rng.choice(_FIRST_NAMES),
        "last_name": rng.choice(_LAST_NAMES),
        "birth_date": (date(1950, 1, 1) + timedelta(days=rng.randrange(20_000))).isoformat(),
        "gender": rng.choice(_GENDERS),
        "city": _first_city(seed, member),
        "state": _STATES[_first_city(seed, member)],
    }


def _first_city(seed: int, member: int) -> str:
    return Random(f"{seed}/{member}/city").choice(_CITIES)


def _shuffle_other_cities(seed: int, member: int) -> list[str]:
    """All cities but the one where the member lived first, shuffled."""
    others = [city for city in _CITIES if city != _first_city(seed, member)]
    return Random(f"{seed}/{member}/moves").sample(others, len(others))


def _start_of_day(day: int) -> float:
    """When a day begins, in seconds since 1970."""
    return (FIRST_DAY + timedelta(days=day)).timestamp()
