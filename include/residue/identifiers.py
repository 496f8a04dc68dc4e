"""Identifiers as people write them down: one a line, or as JSON. What is wrong is told by where it stands, never by its value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_AT = "at"
"""What Sluice calls the instant at which an identifier was somebody's."""


def parse_identifiers(text: str, domain: str | None) -> list[tuple[str, str]]:
    """Identifiers as (domain, value): one a line, of one domain; or JSON such as [{"user_id": "12140"}, {"email": "anna@example.com"}].

    Raises ValueError where it is neither, or where there is none.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in ("[", "{"):
        found = list(_parse_json_identifiers(text))
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines and not domain:
            raise ValueError("identifiers that come one a line need --domain, the kind that they are of, such as user_id")
        found = [(domain or "", line) for line in lines]
    if not found:
        raise ValueError("there are no identifiers to look for")
    return found


def _parse_json_identifiers(text: str) -> Iterator[tuple[str, str]]:
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the identifiers are no JSON: line {error.lineno}, column {error.colno}") from None
    for number, one in enumerate(given if isinstance(given, list) else [given], start=1):
        if not isinstance(one, dict) or not one:
            raise ValueError(f'the identifiers, entry {number}: expected an object such as {{"user_id": "12140"}}')
        for domain, value in one.items():
            yield domain, _check_json_value(number, domain, value)


def _check_json_value(number: int, domain: str, value: Any) -> str:
    if domain == _AT:
        raise ValueError(
            f"the identifiers, entry {number}: identifiers of a time ('{_AT}') are looked for by `sluice erase scan` alone, "
            "which knows how each table tells its times"
        )
    # A number with a fraction is not written here as it is elsewhere; true and false are nobody.
    if not isinstance(value, str | int) or isinstance(value, bool) or not str(value).strip():
        raise ValueError(f"the identifiers, entry {number}: expected a text or a whole number for each kind")
    return str(value)
