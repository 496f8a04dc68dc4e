"""Made-up members of the gym: who wears which device, what is known of them, and the phone that the gym sees.

Each member has random generators of their own, so that more of them change nothing about the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from random import Random

from pipelines.gym.files import File
from pipelines.gym.trackers import FIRST_DAY, FIRST_DEVICE, devices

FIRST_MEMBER = 7_000_000_001
UPDATING = 0.1
"""How many members change what is known of them, on any day but the first."""

_FIRST_NAMES = ("Ada", "Bo", "Chika", "Dana", "Edda", "Farid", "Ginevra", "Hugo", "Inés", "Jun")
_LAST_NAMES = ("Abel", "Berg", "Costa", "Dvořák", "Eze", "Fischer", "Grün", "Haddad", "Ito", "Jansen")
_CITIES = ("Bergen", "Graz", "Køge", "Łódź", "Porto", "Zürich")


def user_id(member: int) -> int:
    """The number that a member goes by."""
    return FIRST_MEMBER + member


def device_id(member: int) -> int:
    """The tracker that a member wears."""
    return FIRST_DEVICE + member


def mac_address(seed: int, member: int, phone: int) -> str:
    """The address of a member's first, second, ... phone, counted from 0."""
    digits = Random(f"{seed}/{member}/phone/{phone}").randbytes(5).hex()
    return ":".join(["02", *(digits[at : at + 2] for at in range(0, 10, 2))])


def phone_of(scale: float, member: int, day: int) -> int:
    """Which phone a member has on a day: every day but the first, one member gets a new one, in turns."""
    return sum(later % devices(scale) == member for later in range(1, day + 1))


def registrations(seed: int, scale: float, day: int) -> File:
    """Which device and which phone belong to whom: of all members on the first day, then of those with a new phone."""
    start = FIRST_DAY + timedelta(days=day)
    columns = ("device_id", "mac_address", "user_id", "registered_at")
    file = File(name=f"registrations-{start:%Y-%m-%d}.csv", delivered_at=start + timedelta(days=1, minutes=5))
    file.header = ",".join(columns)
    for member in range(devices(scale)) if day == 0 else [day % devices(scale)]:
        phone = mac_address(seed, member, phone_of(scale, member, day))
        at = int(start.timestamp()) + 3600 * 7 + 60 * member
        record = dict(zip(columns, (device_id(member), phone, user_id(member), at), strict=True))
        file.add("fine", ",".join(str(value) for value in record.values()), **record)
    return file


def changes(seed: int, scale: float, day: int) -> Iterator[tuple[float, dict[str, object]]]:
    """What becomes known of members on a day: when it is sent (seconds since 1970), and the record.

    All are new on the first day. Later some change where they live, twice in a row; of half of these the first change is sent last.
    """
    start = (FIRST_DAY + timedelta(days=day)).timestamp()
    for member in range(devices(scale)):
        known = _known(seed, member)
        if day == 0:
            yield start + member, {"user_id": user_id(member), "change": "new", "updated_at": start + member, **known}
            continue
        rng = Random(f"{seed}/{day}/{member}/changes")
        if rng.random() >= UPDATING:
            continue
        first = round(start + rng.uniform(0, 80_000), 3)
        sent = (first + 300, first + 200) if rng.random() < 0.5 else (first, first + 200)
        for at, updated_at in zip(sent, (first, first + 100), strict=True):
            moved = {**known, "city": rng.choice(_CITIES)}
            yield at, {"user_id": user_id(member), "change": "update", "updated_at": updated_at, **moved}


def _known(seed: int, member: int) -> dict[str, object]:
    rng = Random(f"{seed}/{member}/known")
    return {
        "first_name": rng.choice(_FIRST_NAMES),
        "last_name": rng.choice(_LAST_NAMES),
        "birth_date": (date(1950, 1, 1) + timedelta(days=rng.randrange(20_000))).isoformat(),
        "city": rng.choice(_CITIES),
    }
