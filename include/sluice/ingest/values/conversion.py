"""Columns of text to exactly the values that they say; what fits what is said in `scalars`, whose names are here, too."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from sluice.ingest.values.scalars import (
    EXACT,
    MISFIT,
    SOME,
    ZONE,
    decimal,
    double,
    encodable,
    fits_float,
    integer,
    is_text,
    of_cell,
    of_text,
    parser,
    pattern,
    plain_decimal,
    single,
)

__all__ = [
    "EXACT",
    "MISFIT",
    "decimal",
    "double",
    "encodable",
    "fits_float",
    "from_strings",
    "from_text",
    "integer",
    "is_text",
    "of_cell",
    "of_text",
    "parser",
    "plain_decimal",
    "single",
]

_LEAST, _MOST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def from_text(cells: pa.Array, type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Cells of text in a type, and where they do not fit.

    cells: string; "" is NULL in every type but STRING, where it stays "".
    Returns the converted array, NULL for a misfit, and booleans of the same length, true for a misfit, never NULL.
    """
    if not is_text(type):
        cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
    return from_strings(cells, type)


def from_strings(cells: pa.Array, type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """As `from_text`, for the strings of JSON: "" is a text like others and fits STRING only."""
    if is_text(type):
        return cells.cast(type), pa.repeat(pa.scalar(False), len(cells))
    shape = pattern(type)
    if shape is None:
        return pa.nulls(len(cells), type), cells.is_valid()
    shaped = pc.match_substring_regex(cells, f"^(?:{shape})$") if shape != SOME else cells.is_valid()
    chosen = pc.if_else(shaped, cells, pa.scalar(None, cells.type))
    try:
        converted = _cast(chosen, type)
    except (pa.ArrowInvalid, OverflowError):
        converted = None
    if converted is None:  # some value has the shape and is none, such as the 30th of February
        parse = parser(type)
        values = [MISFIT if cell is None else parse(cell) for cell in chosen.to_pylist()]
        converted = pa.array([None if value is MISFIT else value for value in values], type)
    return converted, pc.and_(cells.is_valid(), converted.is_null())


def _cast(cells: pa.Array, type: pa.DataType) -> pa.Array | None:
    """Cells of the right shape in a type; None or ArrowInvalid where a look at each is needed."""
    if pa.types.is_float64(type):
        numbers = cells.cast(type)
        odd = pc.greater_equal(pc.abs(numbers), float(EXACT))
        return None if pc.any(odd).as_py() else numbers
    if pa.types.is_float32(type):
        numbers = cells.cast(pa.float64())
        return pc.if_else(fits_float(numbers), numbers, pa.scalar(None, pa.float64())).cast(type, safe=False)
    if pa.types.is_decimal(type):
        plain = pc.match_substring_regex(cells, f"^{plain_decimal(type)}$")
        return cells.cast(type) if pc.all(plain).as_py() else None
    if pa.types.is_timestamp(type) and type.tz is not None:
        moments = _with_zones(cells).cast(type)
        inside = pc.and_(pc.greater_equal(moments, pa.scalar(_LEAST, type)), pc.less_equal(moments, pa.scalar(_MOST, type)))
        return pc.if_else(inside, moments, pa.scalar(None, type))
    return None if pa.types.is_binary(type) or pa.types.is_large_binary(type) else cells.cast(type)


def _with_zones(cells: pa.Array) -> pa.Array:
    """The moments with a zone each, as Arrow wants them."""
    zoned = pc.match_substring_regex(cells, f":.*{ZONE}$")
    if pc.all(zoned).as_py():
        return cells
    suffix = pc.if_else(zoned, "", pc.if_else(pc.match_substring(cells, ":"), "Z", "T00:00Z"))
    return pc.binary_join_element_wise(cells, suffix, "")
