"""What stands beside characters of base64, past the breaks of its lines and the escapes of other syntaxes."""

from __future__ import annotations

import re

REACH = 16
"""Bytes that are looked at on either side."""
BREAKING = b"\r\n\\%"
"""What may begin a break after base64 or an escaped letter of it: `\\/`, `%2F`."""
INDENTING = b" \t"
"""What lines may begin with."""
ESCAPING = b"\\%"
"""What begins an escape."""

_BREAK = rb"(?:[ \t]*(?:\\*[\r\n]|\\+[rn]|%0[aAdD])[ \t]*)*"
_SLASH, _PLUS = rb"(?P<slash>(?:%|\\+u00)2[fF]|\\*/)", rb"(?P<plus>(?:%|\\+u00)2[bB])"
_LETTER = rb"(?:" + _SLASH + b"|" + _PLUS + rb"|(?<!\\)(?<!%)(?<!%.)(?P<letter>[A-Za-z0-9+_-]))"
_AFTER = re.compile(_BREAK + _LETTER, re.DOTALL)
_BEFORE = re.compile(_LETTER + _BREAK + rb"\\*\Z", re.DOTALL)


def letter_after(beside: bytes) -> int | None:
    """The letter by which base64 goes on in the bytes after some of it; None where these do not tell."""
    return _letter(_AFTER.match(beside))


def letter_before(beside: bytes) -> int | None:
    """The letter that base64 had last in the bytes before some of it; None where these do not tell."""
    return _letter(_BEFORE.search(beside))


def _letter(found: re.Match[bytes] | None) -> int | None:
    if found is None:
        return None
    return ord("/") if found["slash"] else ord("+") if found["plus"] else ord(found["letter"])
