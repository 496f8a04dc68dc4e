"""How an identifier may be written where it is delivered: a telephone number in groups, a MAC address in pairs, a number as a DOUBLE."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SHORTEST = 5
"""In characters."""
_SHORTEST_DOUBLE = 8
"""The same for a number of many digits as Java writes a DOUBLE: 7.0E9 is short."""
_DIGITS_WITH_EXPONENT = 8
"""From this many digits on, Java writes a DOUBLE with an exponent."""
LEAST_DIGITS = 9
"""From this many digits on, a number is not repeated by chance. The scan defines its own limit, and shares nothing with this."""
_WHOLE_NUMBER = re.compile(r"[+-]?0*([0-9]{1,19})")
_PAIRS_OF_MAC = 6
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:\-. ]?){5}[0-9A-Fa-f]{2}")
_PHONE = re.compile(r"\+?[0-9][0-9 ()/.\-]{6,}[0-9]")
_DIGITS = frozenset("0123456789")
_ADDRESS = r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}"
_DATE_OR_ADDRESS = re.compile(
    rb"(?<![0-9.])(?:[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ t][0-9]{2}(?=:))?|" + _ADDRESS.encode() + rb")(?![0-9.]?[0-9])"
)
_GROUPED_DIGITS = re.compile(rb"[0-9]+(?:[ ()/.\-]{1,3}[0-9]+)+")
_GROUP_MARKS = bytes.maketrans(b"()/.-", b"     ")


def list_written_forms(value: str) -> list[str]:
    """The identifier, and, of a MAC address or a telephone number, the same with other separators or none.

    A number of twelve digits may be a MAC address, but in pairs with blanks or in fours with dots it may as well be anything else.
    """
    text = value.strip()
    if _MAC.fullmatch(text):
        bare = re.sub("[^0-9A-Fa-f]", "", text)
        pairs = [bare[2 * place : 2 * place + 2] for place in range(_PAIRS_OF_MAC)]
        grouped = ".".join(bare[start : start + 4] for start in range(0, 2 * _PAIRS_OF_MAC, 4))
        other = () if _DIGITS.issuperset(text) else (grouped, ".".join(pairs), " ".join(pairs))
        return list(dict.fromkeys((text, bare, ":".join(pairs), "-".join(pairs), *other)))
    return list(dict.fromkeys((text, keep_digits(text) if _PHONE.fullmatch(text) else text)))


def keep_digits(value: str) -> str:
    """The digits of a text."""
    return re.sub("[^0-9]", "", value)


def find_phone_digits(value: str) -> str | None:
    """The digits of what is written as a telephone number, with a + or with separators. None for an address of a machine and all else."""
    text = value.strip()
    if _DIGITS.issuperset(text) or re.fullmatch(_ADDRESS, text) or not _PHONE.fullmatch(text):
        return None
    return keep_digits(text)


def join_grouped_digits(content: bytes) -> Iterator[bytes]:
    """The digits of each number that is written in groups, and of the same without its first group: `7, 49 170-12`, `7 49 170-12`.

    Neither dates nor addresses of machines are such groups.
    """
    for found in _GROUPED_DIGITS.finditer(_DATE_OR_ADDRESS.sub(b"|", content)):
        first, _, others = found.group().translate(_GROUP_MARKS).partition(b" ")
        rest = others.replace(b" ", b"")
        yield first + rest
        yield rest


def is_short_form(value: str) -> bool:
    """Whether a value is a number or text short enough to occur in many places by chance."""
    text = value.strip()
    return len(text) < (LEAST_DIGITS if text.isascii() and text.isdigit() else _SHORTEST)


def list_search_forms(value: str) -> Iterator[tuple[str, bool]]:
    """How an identifier is written, and of each form whether it is short. Of a whole number, also as Java writes a DOUBLE."""
    for form in list_written_forms(value):
        yield form, is_short_form(form)
    number = _WHOLE_NUMBER.fullmatch(value.strip())
    if number:
        double = _write_java_double(number[1])
        yield double, is_short_form(number[1]) or len(double) < _SHORTEST_DOUBLE


def _write_java_double(digits: str) -> str:
    """A number of these digits as Java and Spark write a DOUBLE: 12140.0, and from ten million on 1.2345678E7."""
    if len(digits) < _DIGITS_WITH_EXPONENT:
        return f"{digits}.0"
    return f"{digits[0]}.{digits[1:].rstrip('0') or '0'}E{len(digits) - 1}"
