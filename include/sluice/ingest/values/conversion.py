"""Converts text to exactly the value that it stands for in a type, or to a misfit. For CSV cells, values in paths and JSON strings.

What fits, where `text` is the whole cell:

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

__all__ = [
    "EXACT",
    "MISFIT",
    "build_text_parser",
    "convert_json_strings",
    "convert_text_cells",
    "fits_float32",
    "is_string_type",
    "parse_cell_value",
    "parse_decimal",
    "parse_double",
    "parse_float32",
    "parse_integer",
    "parse_text_value",
    "plain_decimal_pattern",
    "reject_unencodable_text",
]

_LEAST, _MOST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def convert_text_cells(cells: pa.Array, type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Cells of text converted to a type, and which of them do not fit.

    cells: strings; "" is NULL in every type but STRING, where it stays "". Returns the converted array, with NULL for a misfit, and
    booleans of the same length, true for a misfit, never NULL.
    """
    if not is_string_type(type):
        cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
    return convert_json_strings(cells, type)


def convert_json_strings(cells: pa.Array, type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Does what `convert_text_cells` does for JSON strings: "" is a text like any other and fits only STRING."""
    if is_string_type(type):
        return cells.cast(type), pa.repeat(pa.scalar(False), len(cells))
    shape = text_pattern_of(type)
    if shape is None:
        return pa.nulls(len(cells), type), cells.is_valid()
    shaped = pc.match_substring_regex(cells, f"^(?:{shape})$") if shape != SOME else cells.is_valid()
    chosen = pc.if_else(shaped, cells, pa.scalar(None, cells.type))
    try:
        converted = _cast_shaped_cells(chosen, type)
    except (pa.ArrowInvalid, OverflowError):
        converted = None
    if converted is None:  # some value has the right shape but is invalid, such as the 30th of February
        parse = build_text_parser(type)
        values = [MISFIT if cell is None else parse(cell) for cell in chosen.to_pylist()]
        converted = pa.array([None if value is MISFIT else value for value in values], type)
    return converted, pc.and_(cells.is_valid(), converted.is_null())


def _cast_shaped_cells(cells: pa.Array, type: pa.DataType) -> pa.Array | None:
    """Casts cells that look right to a type. None or ArrowInvalid if each must be inspected."""
    if pa.types.is_floating(type):
        numbers = cells.cast(pa.float64())
        if pc.any(pc.greater_equal(pc.abs(numbers), float(EXACT))).as_py():
            return None
        if pa.types.is_float64(type):
            return numbers
        return pc.if_else(fits_float32(numbers), numbers, pa.scalar(None, pa.float64())).cast(type, safe=False)
    if pa.types.is_decimal(type):
        plain = pc.match_substring_regex(cells, f"^{plain_decimal_pattern(type)}$")
        return cells.cast(type) if pc.all(plain).as_py() else None
    if pa.types.is_timestamp(type) and type.tz is not None:
        moments = _add_missing_zones(cells).cast(type)
        inside = pc.and_(pc.greater_equal(moments, pa.scalar(_LEAST, type)), pc.less_equal(moments, pa.scalar(_MOST, type)))
        return pc.if_else(inside, moments, pa.scalar(None, type))
    return None if pa.types.is_binary(type) or pa.types.is_large_binary(type) else cells.cast(type)


def _add_missing_zones(cells: pa.Array) -> pa.Array:
    """Adds a zone to each instant that lacks one, as Arrow requires."""
    zoned = pc.match_substring_regex(cells, f":.*{ZONE}$")
    if pc.all(zoned).as_py():
        return cells
    suffix = pc.if_else(zoned, "", pc.if_else(pc.match_substring(cells, ":"), "Z", "T00:00Z"))
    return pc.binary_join_element_wise(cells, suffix, "")


class Misfit:
    """The type of MISFIT."""

    def __repr__(self) -> str:
        return "MISFIT"


MISFIT: Final = Misfit()


"""What a conversion returns for a value that the type cannot hold exactly. (None is a value: NULL.)"""


EXACT: Final = 2**53


"""Below this, every integer is exactly a double."""


_INTEGER = r"(?:0|-?[1-9][0-9]*)"


_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


_DATE = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"


_TIME = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"


ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"


_NAIVE = f"{_DATE}(?:{_TIME})?"


_MOMENT = f"{_DATE}(?:{_TIME}{ZONE}?)?"


SOME = r"(?s:.+)"


def parse_text_value(text: str | None, type: pa.DataType) -> Any:
    """Returns one cell as Python's value of a type, or MISFIT. This defines what `convert_json_strings` does cell by cell."""
    return None if text is None else build_text_parser(type)(text)


def build_text_parser(type: pa.DataType) -> Callable[[str], Any]:
    """Returns `parse_text_value` for one type."""
    shape, parse = next(((shape, parse) for is_it, shape, parse in _RULES if is_it(type)), (None, None))
    if shape is None or parse is None:
        return lambda text: MISFIT
    if is_string_type(type):
        return reject_unencodable_text
    matches = re.compile(shape, re.ASCII).fullmatch
    return lambda text: parse(text, type) if matches(text) else MISFIT


def text_pattern_of(type: pa.DataType) -> str | None:
    """Returns the pattern of texts that the type may hold, or None if no text fits it."""
    return next((shape for is_it, shape, _ in _RULES if is_it(type)), None)


def parse_cell_value(text: str, type: pa.DataType) -> Any:
    """Does what `parse_text_value` does, by the rule of `convert_text_cells`: "" is NULL in every type but STRING."""
    return None if text == "" and not is_string_type(type) else parse_text_value(text, type)


def is_string_type(type: pa.DataType) -> bool:
    """Whether a type is STRING."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def reject_unencodable_text(text: str) -> Any:
    """Returns the text, or MISFIT for half of a surrogate pair, which JSON can express and UTF-8 cannot."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return MISFIT
    return text


def parse_integer(text: str, type: pa.DataType) -> Any:
    """Parses digits of any length, with or without a minus, as an integer in the type's range, or MISFIT."""
    if len(text) > 20:
        return MISFIT
    number, half = int(text), 1 << (type.bit_width - 1)
    return number if -half <= number < half else MISFIT


def parse_double(text: str) -> Any:
    """Parses a JSON number as a double. MISFIT if it is infinite, or an integer that no double holds exactly."""
    number = float(text)
    if math.isinf(number):
        return MISFIT
    if abs(number) >= EXACT and text.lstrip("-").isdigit() and int(number) != int(text):
        return MISFIT
    return number


def parse_float32(text: str) -> Any:
    """Parses a JSON number as a FLOAT that is written as the same number again, or MISFIT."""
    number = parse_double(text)
    return number if number is not MISFIT and fits_float32(pa.array([number]))[0].as_py() else MISFIT


def fits_float32(numbers: pa.Array) -> pa.Array:
    """Returns which doubles a FLOAT gives back when it is written as shortly as possible. NULL for NULL."""
    written = pc.cast(pc.cast(numbers, pa.float32(), safe=False), pa.string())
    return pc.and_(pc.equal(pc.cast(written, pa.float64()), numbers), pc.is_finite(numbers))


def parse_decimal(text: str, type: pa.DataType) -> Any:
    """Parses a JSON number as a DECIMAL that holds it exactly, or MISFIT."""
    context = Context(prec=type.precision, traps=[Inexact, InvalidOperation, Overflow])
    try:
        return context.quantize(context.create_decimal(text), Decimal(1).scaleb(-type.scale))
    except (Inexact, InvalidOperation, Overflow):
        return MISFIT


def plain_decimal_pattern(type: pa.DataType) -> str:
    """Returns the pattern of numbers that a DECIMAL holds digit by digit. Arrow reads these correctly; others may silently overflow."""
    whole = type.precision - type.scale
    digits = f"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole > 0 else "0"
    return f"-?{digits}" + (f"(?:\\.[0-9]{{1,{type.scale}}})?" if type.scale > 0 else "")


def _parse_timestamp(text: str, type: pa.DataType) -> Any:
    try:
        found = datetime.fromisoformat(text)
        return found if type.tz is None else (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return MISFIT


def _parse_date(text: str) -> Any:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return MISFIT


def _parse_base64(text: str) -> Any:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return MISFIT
    return found if base64.b64encode(found).decode() == text else MISFIT


def _is_naive_timestamp(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type) and type.tz is None)


_RULES: Final[tuple[tuple[Callable[[pa.DataType], bool], str, Callable[[str, pa.DataType], Any]], ...]] = (
    (is_string_type, "(?s:.*)", lambda text, _: reject_unencodable_text(text)),
    (pa.types.is_signed_integer, _INTEGER, parse_integer),
    (pa.types.is_float64, _NUMBER, lambda text, _: parse_double(text)),
    (pa.types.is_float32, _NUMBER, lambda text, _: parse_float32(text)),
    (pa.types.is_boolean, "true|false", lambda text, _: text == "true"),
    (pa.types.is_decimal, _NUMBER, parse_decimal),
    (pa.types.is_date32, _DATE, lambda text, _: _parse_date(text)),
    (_is_naive_timestamp, _NAIVE, _parse_timestamp),
    (pa.types.is_timestamp, _MOMENT, _parse_timestamp),
    (lambda type: pa.types.is_binary(type) or pa.types.is_large_binary(type), SOME, lambda text, _: _parse_base64(text)),
)
