"""Who had an identifier, and when: until the next one got it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from sluice.declare.erasure.links import Link
from sluice.erasure.subjects import link_rows
from sluice.errors import UsageError

Times = tuple[datetime | None, datetime | None, datetime | None]
"""since, until, and where that is open, when the person was last said to have it."""
ALWAYS: Times = (None, None, None)


class AmbiguousIdentifier(UsageError):
    """An identifier was several people's, and it is not said whose is meant."""


def compute_holding_times(found: Iterable[link_rows.LinkRow], link: Link, now: datetime) -> dict[str, list[tuple[str, Times]]]:
    """By identifier, who had it and when: until the next row of it. now: until when those are told to have it whose rows tell no time.

    Raises Ambiguous where several people's rows of one identifier tell no time.
    """
    by_identifier: dict[str, list[link_rows.LinkRow]] = {}
    for row in found:
        by_identifier.setdefault(row.identifier, []).append(row)
    if link.since is None:
        return {one: [(person, ALWAYS) for person in sorted({row.person for row in of})] for one, of in by_identifier.items()}
    for of in by_identifier.values():
        if len({row.person for row in of if row.since is None}) > 1:
            raise AmbiguousIdentifier(
                f"A '{link.identifier[1]}' is several people's by rows of '{link.table}' whose '{link.since}' tells no time. "
                "Have these delivered with it, then ask again."
            )
    return {one: _order_holding_times(of, now) for one, of in by_identifier.items()}


def _order_holding_times(of: list[link_rows.LinkRow], now: datetime) -> list[tuple[str, Times]]:
    last: dict[datetime | None, str] = {}
    for row in sorted(of, key=lambda row: (row.since is not None, row.since or datetime.min, row.person.zfill(40))):
        last[row.since] = row.person
    turns: list[tuple[str, datetime | None]] = []
    for since, person in last.items():
        if not turns or turns[-1][0] != person:
            turns.append((person, since if turns else None))
    ends = [since for _, since in turns[1:]]
    known = max((since for since in last if since is not None), default=now)
    times: list[Times] = [(since, until, None) for (_, since), until in zip(turns, ends, strict=False)]
    times.append((turns[-1][1], None, known))
    return [(person, when) for (person, _), when in zip(turns, times, strict=True)]


def intersect_times(one: Times, other: Times) -> Times | None:
    """The times that both are; None where these are none."""
    since = max((at for at in (one[0], other[0]) if at is not None), default=None)
    until = min((at for at in (one[1], other[1]) if at is not None), default=None)
    known = max((at for at in (one[2], other[2]) if at is not None), default=None) if until is None else None
    return None if since is not None and until is not None and since >= until else (since, until, known)


def is_instant_within(at: datetime, when: Times) -> bool:
    """Whether an instant is in these times."""
    since, until, _ = when
    return (since is None or since <= at) and (until is None or at < until)


def format_identifier_time(at: datetime | None) -> str | None:
    """An instant as identifiers have it."""
    return None if at is None else at.astimezone(UTC).isoformat()
