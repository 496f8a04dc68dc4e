"""Treatments of personal columns: `personal={"user_id": treat.hmac("user"), "birth_date": treat.date_to_year()}`.

A treatment changes a value before it is stored. Expectations see the row before it; keys, the content that decides ties, statistics and
every reader see what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from sluice.declare.field_values import check_secret_name
from sluice.errors import DeclarationError, nearest_name_hint

Canonical = Literal["text", "lower", "digits", "hex"]
AS_TEXT: Canonical = "text"
"""The form in which identifiers are compared unless a declaration names another."""
PSEUDONYM_KEY = "pseudonym.key"
"""The secret that makes pseudonyms, unless a treatment names another."""


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """A treatment of one column."""


@dataclass(frozen=True, kw_only=True)
class Hmac(Treatment):
    """A pseudonym: HMAC-SHA256 of the value's canonical text, in 64 hex digits. Equal values of a domain get equal pseudonyms.

    canonical: "text" strips blanks around the value; "lower" also lowers its case, as for e-mail addresses; "digits" keeps only its
    digits, as for telephone numbers; "hex" keeps its hex digits in lower case, as for MAC addresses. If nothing is left, the pseudonym
    is NULL. secret: the name of the key.
    """

    domain: str
    canonical: Canonical = "text"
    secret: str = PSEUDONYM_KEY


@dataclass(frozen=True, kw_only=True)
class Null(Treatment):
    """The column is stored as NULL, in its type."""


@dataclass(frozen=True, kw_only=True)
class Truncate(Treatment):
    """The first `length` characters of a STRING, as of a postcode."""

    length: int


@dataclass(frozen=True, kw_only=True)
class Bin(Treatment):
    """The band of a number, as text: edges (18, 25, 65) give "<18", "18-24", "25-64", ">=65" for whole numbers. NaN gives NULL."""

    edges: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Round(Treatment):
    """A number rounded to this many decimals, in its own type; -3 rounds to thousands. NULL if the result is too large for the type."""

    digits: int


@dataclass(frozen=True, kw_only=True)
class DateToYear(Treatment):
    """The first day of the year of a DATE or TIMESTAMP, of the same type."""


def find_treatment_mistakes(treatments: Mapping[str, Treatment], keys: Iterable[str], subject: str | None = None) -> list[str]:
    """Returns what is wrong with treating the keys or the subject of a table, as sentences."""
    found = [
        f"personal treats the key '{key}' by treat.null(): then all rows would have the same key."
        for key in keys
        if isinstance(treatments.get(key), Null)
    ]
    if subject in treatments:
        found.append(
            f"personal treats '{subject}', which is its subject: an erasure finds a person's rows by it. Keep the subject as it is "
            "in a restricted table (restricted=True), and publish the pseudonym in a @materialized_view."
        )
    return found


def hmac(domain: str, *, canonical: Canonical = "text", secret: str = PSEUDONYM_KEY) -> Treatment:
    """See `Hmac`."""
    if not domain:
        raise DeclarationError(
            "treat.hmac needs a domain: equal identifiers get one pseudonym within it, as in treat.hmac('user')."
        )
    if canonical not in get_args(Canonical):
        raise DeclarationError(
            f"treat.hmac('{domain}') has no canonical form '{canonical}'.{nearest_name_hint(canonical, get_args(Canonical))}"
        )
    return Hmac(domain=domain, canonical=canonical, secret=check_secret_name(secret))


def null() -> Treatment:
    """See `Null`."""
    return Null()


def truncate(length: int) -> Treatment:
    """See `Truncate`."""
    if length < 0:
        raise DeclarationError(f"treat.truncate takes how many characters stay, not {length}.")
    return Truncate(length=length)


def bin(*edges: int) -> Treatment:
    """See `Bin`."""
    if not edges or list(edges) != sorted(set(edges)):
        raise DeclarationError("treat.bin takes the lower edges of the bands in rising order, as in treat.bin(18, 25, 65).")
    return Bin(edges=edges)


def round(digits: int) -> Treatment:
    """See `Round`."""
    return Round(digits=digits)


def date_to_year() -> Treatment:
    """See `DateToYear`."""
    return DateToYear()
