"""Converts one Python value of a typed format exactly to another type, or to a misfit; and writes it as JSON."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.ingest.values import conversion
from sluice.ingest.values.conversion import MISFIT


def convert_value_exactly(value: Any, type: pa.DataType, as_text: bool = False) -> Any:
    """Returns the value in that type, or MISFIT. as_text: whether STRING takes any value as its JSON, and not only text."""
    if value is None:
        return None
    if conversion.is_string_type(type):
        return value if isinstance(value, str) else _write_bare_text(value) if as_text else MISFIT
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        value = int(value)
    rule = next((rule for is_it, rule in _RULES if is_it(type)), None)
    return rule(value, type) if rule else MISFIT


def write_python_value_json(value: Any) -> str:
    """Writes the value exactly as compact JSON. Bytes: Base64. Times: ISO 8601. A number that JSON lacks: its name as a string."""
    if isinstance(value, str):
        return str(encode_basestring(value))
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{encode_basestring(name)}:{write_python_value_json(member)}" for name, member in value.items()) + "}"
        )
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and isinstance(item[0], str) for item in value):  # a map
            return "{" + ",".join(f"{encode_basestring(key)}:{write_python_value_json(member)}" for key, member in value) + "}"
        return "[" + ",".join(map(write_python_value_json, value)) + "]"
    if isinstance(value, tuple):
        return "[" + ",".join(map(write_python_value_json, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else f'"{"-" * (value < 0)}Infinity"'
    return _write_bare_text(value) if isinstance(value, (int, float, Decimal)) else f'"{_write_bare_text(value)}"'


def _write_bare_text(value: Any) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return repr(value)
    return write_python_value_json(value) if isinstance(value, (bool, str, dict, list, tuple)) or value is None else str(value)


def _convert_boolean(value: Any, _: pa.DataType) -> Any:
    return value if isinstance(value, bool) else MISFIT


def _convert_integer(value: Any, type: pa.DataType) -> Any:
    half = 1 << (type.bit_width - 1)
    return value if isinstance(value, int) and not isinstance(value, bool) and -half <= value < half else MISFIT


def _convert_double(value: Any, type: pa.DataType) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return MISFIT
    if isinstance(value, int) and (value.bit_length() > 1000 or int(float(value)) != value):
        return MISFIT
    number = float(value)
    if not pa.types.is_float32(type) or not math.isfinite(number):
        return number
    with np.errstate(over="ignore"):
        return number if float(np.float32(number)) == number else MISFIT


def _convert_decimal(value: Any, type: pa.DataType) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return MISFIT
    return conversion.parse_decimal(str(value), type)


def _convert_date(value: Any, type: pa.DataType) -> Any:
    if isinstance(value, str):
        return conversion.parse_text_value(value, type)
    return value if isinstance(value, date) and not isinstance(value, datetime) else MISFIT


def _convert_timestamp(value: Any, type: pa.DataType) -> Any:
    if isinstance(value, str):
        return conversion.parse_text_value(value, type)
    if isinstance(value, datetime):
        return value if type.tz else value.replace(tzinfo=None)
    zone = UTC if type.tz else None
    return datetime(value.year, value.month, value.day, tzinfo=zone) if isinstance(value, date) else MISFIT


def _convert_binary(value: Any, _: pa.DataType) -> Any:
    return value if isinstance(value, bytes) else MISFIT


def _convert_list(value: Any, type: pa.DataType) -> Any:
    if not isinstance(value, list) or any(isinstance(item, tuple) for item in value):
        return MISFIT
    found = [convert_value_exactly(item, type.value_type) for item in value]
    return MISFIT if any(item is MISFIT for item in found) else found


def _convert_struct(value: Any, type: pa.DataType) -> Any:
    if not isinstance(value, dict):
        return MISFIT
    known = {field.name: convert_value_exactly(value.get(field.name), field.type) for field in type}
    more = any(member is not None for name, member in value.items() if name not in known)
    return MISFIT if more or any(member is MISFIT for member in known.values()) else known


def _convert_map(value: Any, type: pa.DataType) -> Any:
    if not isinstance(value, list) or not all(isinstance(item, tuple) for item in value):
        return MISFIT
    found = [(convert_value_exactly(key, type.key_type), convert_value_exactly(member, type.item_type)) for key, member in value]
    return MISFIT if any(MISFIT in (key, member) for key, member in found) else found


_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...] = (
    (pa.types.is_boolean, _convert_boolean),
    (pa.types.is_signed_integer, _convert_integer),
    (pa.types.is_floating, _convert_double),
    (pa.types.is_decimal, _convert_decimal),
    (pa.types.is_date, _convert_date),
    (pa.types.is_timestamp, _convert_timestamp),
    (pa.types.is_binary, _convert_binary),
    (pa.types.is_list, _convert_list),
    (pa.types.is_struct, _convert_struct),
    (pa.types.is_map, _convert_map),
)
