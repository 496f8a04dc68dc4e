"""Which delivery of a file counts where a redelivery replaces: said once, for the flows and for what is told of deliveries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import NamedTuple


class AcceptedDelivery(NamedTuple):
    """A delivery that was ingested. file: which file it is a version of; modified_at, sha256: None where it is not known."""

    delivery: int
    file: Hashable
    modified_at: datetime | None
    sha256: str | None


def select_counting_deliveries(accepted: Iterable[AcceptedDelivery]) -> set[int]:
    """Of each file the delivery that counts.

    It is the one with the latest modification time, then the one with the greatest content hash, then the one that came first;
    arrival does not matter. What is not known comes first, as NULL does in SQL.
    """
    latest = {one.file: one.delivery for one in sorted(accepted, key=_redelivery_precedence)}
    return set(latest.values())


def _redelivery_precedence(one: AcceptedDelivery) -> tuple[bool, float, str, int]:
    at = one.modified_at
    return (at is not None, at.timestamp() if at else 0, one.sha256 or "", -one.delivery)
