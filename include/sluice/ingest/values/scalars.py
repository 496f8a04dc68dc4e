"""Text to exactly the value that it says, in a type; or a misfit. The rule of CSV cells and of values in paths, and of JSON's strings.

What fits what, `text` being the whole cell:

    BOOLEAN            true, false
    TINYINT ... BIGINT digits, without a plus, leading zeros or "-0", in the type's range
    DOUBLE             a JSON number that is finite; one without fraction and exponent only where the double is exactly that integer
    FLOAT              a JSON number that the FLOAT gives back when it is written as shortly as it can be (0.1, but not 16777217)
    DECIMAL(p, s)      a JSON number that it holds exactly
    DATE               YYYY-MM-DD, the years 0001 to 9999
    TIMESTAMP          YYYY-MM-DD, then T or a blank and HH:MM, :SS, a fraction of up to 6 digits, and Z, +HH, +HHMM or +HH:MM (without one: UTC)
    TIMESTAMP_NTZ      the same without a zone
    BINARY             Base64, as Spark writes bytes into JSON
    STRING             any text that can be written as UTF-8
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc


class Misfit:
    """The type of MISFIT."""

    def __repr__(self) -> str:
        return "MISFIT"


MISFIT: Final = Misfit()
"""What a conversion returns for a value that the type cannot hold exactly. (None is a value: NULL.)"""

EXACT: Final = 2**53
"""Below this every integer is a double."""

_INTEGER = r"(?:0|-?[1-9][0-9]*)"
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_DATE = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
_NAIVE = f"{_DATE}(?:{_TIME})?"
_MOMENT = f"{_DATE}(?:{_TIME}{ZONE}?)?"
SOME = r"(?s:.+)"


def of_text(text: str | None, type: pa.DataType) -> Any:
    """One cell in a type as Python's value of it, or MISFIT. What `conversion.from_strings` does, by cells: this defines it."""
    return None if text is None else parser(type)(text)


def parser(type: pa.DataType) -> Callable[[str], Any]:
    """`of_text` for one type."""
    shape, parse = next(((shape, parse) for is_it, shape, parse in _RULES if is_it(type)), (None, None))
    if shape is None or parse is None:
        return lambda text: MISFIT
    if is_text(type):
        return encodable
    matches = re.compile(shape, re.ASCII).fullmatch
    return lambda text: parse(text, type) if matches(text) else MISFIT


def pattern(type: pa.DataType) -> str | None:
    """How texts look that the type may hold; None: no text fits it."""
    return next((shape for is_it, shape, _ in _RULES if is_it(type)), None)


def of_cell(text: str, type: pa.DataType) -> Any:
    """As `of_text`, by the rule of `conversion.from_text`: "" is NULL in every type but STRING."""
    return None if text == "" and not is_text(type) else of_text(text, type)


def is_text(type: pa.DataType) -> bool:
    """Whether it is STRING."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def encodable(text: str) -> Any:
    """The text, or MISFIT: half of a surrogate pair, which JSON can say, and UTF-8 cannot."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return MISFIT
    return text


def integer(text: str, type: pa.DataType) -> Any:
    """Digits, with a minus or without, as an integer in the type's range, or MISFIT. Any length."""
    if len(text) > 20:
        return MISFIT
    number, half = int(text), 1 << (type.bit_width - 1)
    return number if -half <= number < half else MISFIT


def double(text: str) -> Any:
    """A JSON number as a double, or MISFIT: infinite, or an integer that is no double."""
    number = float(text)
    if math.isinf(number):
        return MISFIT
    if abs(number) >= EXACT and text.lstrip("-").isdigit() and int(number) != int(text):
        return MISFIT
    return number


def single(text: str) -> Any:
    """A JSON number as a FLOAT that gives it back, or MISFIT."""
    number = double(text)
    return number if number is not MISFIT and fits_float(pa.array([number]))[0].as_py() else MISFIT


def fits_float(numbers: pa.Array) -> pa.Array:
    """Which doubles a FLOAT gives back when it is written as shortly as it can be. NULL where they are NULL."""
    written = pc.cast(pc.cast(numbers, pa.float32(), safe=False), pa.string())
    return pc.and_(pc.equal(pc.cast(written, pa.float64()), numbers), pc.is_finite(numbers))


def decimal(text: str, type: pa.DataType) -> Any:
    """A JSON number as a DECIMAL that holds it exactly, or MISFIT."""
    context = Context(prec=type.precision, traps=[Inexact, InvalidOperation, Overflow])
    try:
        return context.quantize(context.create_decimal(text), Decimal(1).scaleb(-type.scale))
    except (Inexact, InvalidOperation, Overflow):
        return MISFIT


def plain_decimal(type: pa.DataType) -> str:
    """How numbers look that a DECIMAL holds digit by digit. Arrow reads these right, and others it may wrap around without a word."""
    whole = type.precision - type.scale
    digits = f"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole > 0 else "0"
    return f"-?{digits}" + (f"(?:\\.[0-9]{{1,{type.scale}}})?" if type.scale > 0 else "")


def _moment(text: str, type: pa.DataType) -> Any:
    try:
        found = datetime.fromisoformat(text)
        return found if type.tz is None else (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return MISFIT


def _date(text: str) -> Any:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return MISFIT


def _bytes(text: str) -> Any:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return MISFIT
    return found if base64.b64encode(found).decode() == text else MISFIT


def _is_naive(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type) and type.tz is None)


_RULES: Final[tuple[tuple[Callable[[pa.DataType], bool], str, Callable[[str, pa.DataType], Any]], ...]] = (
    (is_text, "(?s:.*)", lambda text, _: encodable(text)),
    (pa.types.is_signed_integer, _INTEGER, integer),
    (pa.types.is_float64, _NUMBER, lambda text, _: double(text)),
    (pa.types.is_float32, _NUMBER, lambda text, _: single(text)),
    (pa.types.is_boolean, "true|false", lambda text, _: text == "true"),
    (pa.types.is_decimal, _NUMBER, decimal),
    (pa.types.is_date32, _DATE, lambda text, _: _date(text)),
    (_is_naive, _NAIVE, _moment),
    (pa.types.is_timestamp, _MOMENT, _moment),
    (lambda type: pa.types.is_binary(type) or pa.types.is_large_binary(type), SOME, lambda text, _: _bytes(text)),
)
