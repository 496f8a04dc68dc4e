"""How somebody may be named where nobody reads records: how an identifier may be written, and where the fields of a delimited row end.

A telephone number may be in groups, a MAC address in pairs, a number be a DOUBLE. A reader refuses rows that are no records. Here each is split
as well as it can be, since somebody may be named in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from sluice.declare.ingest.file_formats import USUAL_DELIMITERS, CsvDialect

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


AROUND_ELEMENTS = b" \t\r\n\"'\\"
"""What may stand around an element of an array."""


def choose_delimiters(record: bytes, dialect: CsvDialect | None) -> str:
    """The delimiters of a record: its source's, unless others are more frequent, which may be why nobody could read it."""
    if dialect is None:
        return "".join(USUAL_DELIMITERS)
    marks = [dialect.delimiter, *USUAL_DELIMITERS]
    return max(marks, key=lambda mark: record.count(mark.encode()))


def find_usual_delimiter(row: bytes) -> str:
    """The usual delimiter that the row has most of."""
    return max(USUAL_DELIMITERS, key=lambda mark: row.count(mark.encode()))


def may_be_rows(content: bytes) -> bool:
    """Whether it may be text in rows of fields; in JSON and XML a field has its name beside it."""
    return b"\0" not in content and not content.lstrip().startswith((b"{", b"[", b"<"))


def split_fields(row: bytes, delimiters: str) -> list[bytes]:
    """What stands between the delimiters of a folded row, without quotes and blanks around it. A delimiter in a quoted field is none."""
    return [field.strip(b" \"'") for field in _compile_field_pattern(delimiters).findall(row)]


@lru_cache
def _compile_field_pattern(delimiters: str) -> re.Pattern[bytes]:
    """Matches the fields of a row, each with the delimiter before it. A quote that nothing closes is a letter as any other."""
    escaped = [re.escape(one.encode()) for one in (*delimiters, "\r", "\n")]
    marks = b"[" + b"".join(escaped) + b"]" if delimiters.isascii() else b"(?:" + b"|".join(escaped) + b")"
    other = marks.replace(b"[", b"[^", 1) + b"*+" if delimiters.isascii() else b"(?:(?!" + marks + rb")[\s\S])*+"
    return re.compile(rb"(?:\A|" + marks + rb')("[^"]*+(?:""[^"]*+)*+"' + other + b"|" + other + b")")


def list_field_values(field: bytes) -> list[bytes]:
    """What a field says: its text or, of an array, each of its elements."""
    if field.startswith(b"[") and field.endswith(b"]"):
        return [element.strip(AROUND_ELEMENTS) for element in field[1:-1].split(b",")]
    return [field]
