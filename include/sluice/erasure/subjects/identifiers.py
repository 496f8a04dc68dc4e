"""Identifiers of people, as an erasure holds them in memory and the vault on disk. Nothing of them is printed, not by accident either."""

from __future__ import annotations

from dataclasses import dataclass, field

PSEUDONYM = "pseudonym"
"""The domain of what `treat.hmac` stores instead of an identifier."""


@dataclass(frozen=True, order=True)
class Identifier:
    """A value of a domain. since, until: when it was the person's (ISO 8601, UTC; since included, until not); None: open on that side.

    at: of an identifier that somebody asked by, an instant at which it was the person's. known_until: of one that is open at its end and
    changes hands, when the person was last said to have it: whoever gets it later is another.
    """

    domain: str
    value: str = field(repr=False)
    since: str | None = None
    until: str | None = None
    at: str | None = None
    known_until: str | None = None
