"""Which records fit their columns: a look that is quicker than an exact reading, for the many good records among some odd ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sluice.ingest.values import conversion
from sluice.ingest.values.json_values import Real

Check = Callable[[Any], bool]


class _Odd(ValueError):
    """What the quick ways do not take."""


class Verified:
    """Tells the records that Arrow's reader takes and reads exactly, but for dates and times that are none."""

    def __init__(self, schema: pa.Schema) -> None:
        self._check = _struct(list(schema))
        decoder: Any = json.JSONDecoder(object_pairs_hook=_once, parse_float=Real, parse_constant=_refuse)
        self._scan = decoder.scan_once

    def fits(self, text: str) -> bool:
        """Whether a record does. text: without blanks around it."""
        try:
            value, end = self._scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            return False
        return end == len(text) and self._check(value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Odd
    return found


def _refuse(constant: str) -> None:
    raise _Odd


def _struct(fields: list[pa.Field]) -> Check:
    checks = {field.name: _check(field.type) for field in fields}
    check_for = checks.get

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, member in value.items():
            fits = check_for(name)
            if fits is None or (member is not None and not fits(member)):
                return False
        return True

    return check


def _check(kind: pa.DataType) -> Check:
    if pa.types.is_struct(kind):
        return _struct(list(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        fits = _check(kind.value_type)
        return lambda value: type(value) is list and all(item is None or fits(item) for item in value)
    if pa.types.is_boolean(kind):
        return lambda value: value is True or value is False
    if pa.types.is_signed_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return lambda value: type(value) is int and -half <= value < half
    if pa.types.is_float64(kind):
        return _is_double
    if pa.types.is_float32(kind):
        return lambda value: type(value) is Real or type(value) is int
    if pa.types.is_decimal(kind):
        plain = re.compile(conversion.plain_decimal(kind)).fullmatch
        return lambda value: type(value) in (Real, int) and plain(str(value)) is not None
    return lambda value: type(value) is str


def _is_double(value: Any) -> bool:
    if type(value) is Real:
        return not math.isinf(float(value))
    return type(value) is int and conversion.double(str(value)) is not conversion.MISFIT
