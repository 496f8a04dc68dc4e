"""Reads JSON lines by Arrow, which is fast and accepts only JSON, and finds the rows in which its result is not exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from sluice.declare.ingest.source import Source
from sluice.ingest.formats import append_technical_columns
from sluice.ingest.values import conversion, json_values

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def count_object_lines(block: bytes) -> int | None:
    """Returns how many lines there are, if each starts with { and ends with }. Otherwise None.

    Inside JSON the end of an object, a line end and the start of an object never come together. So if Arrow finds as many objects, each line is
    one. Without this check it reads `{} {}` as two, lets objects continue over line ends, and fails on a line that is null.
    """
    body = block.rstrip(b"\r\n")
    if not (body.startswith(b"{") and body.endswith(b"}")):
        return None
    count = body.count(b"\n") + 1
    joints = body.count(b"}\n{") + (body.count(b"}\r\n{") if b"\r" in body else 0)
    return count if joints == count - 1 else None


class FastJsonReader:
    """Reads blocks of records in which every field is a column and of its type."""

    def __init__(self, source: Source, schema: pa.Schema, path_values: Mapping[str, str | None]) -> None:
        self._schema = schema
        self.possible = bool(schema.names) and not any(_has_map(column.type) for column in schema)
        self._options = [
            _build_parse_options(schema, as_double) for as_double in ((True, False) if _has_decimal(schema) else (False,))
        ]
        drops = source.schema_evolution == "none"
        known = {name.lower() for name in schema.names}
        given = {name: cell for name, cell in path_values.items() if cell is not None}
        self._path = {name: cell for name, cell in given.items() if not drops or name.lower() in known}

    def rows(self, block: bytes, count: int, verified: bool = False) -> tuple[pa.Table, Mask] | None:
        """Returns the rows, and which must not be used because a value may not be exact. None if a value fits no column's type.

        block: `count` objects, one after the other. verified: whether each is known to fit, except for dates and times.
        """
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        try:
            # Read twice if there is a DECIMAL: Arrow accepts strings for it and wraps large numbers around, so it is read as DOUBLE first.
            *doubles, table = [arrow_json.read_json(pa.BufferReader(block), read, options) for options in self._options]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != count:
            return None
        odd: Mask = np.zeros(count, dtype=np.bool_)
        columns = []
        for column in self._schema:
            found = table.column(column.name).combine_chunks()
            array, unfit = _convert_exactly(found, column.type, verified)
            columns.append(array)
            if unfit is not None:
                odd |= unfit
            if doubles and not verified:
                odd |= _find_doubtful_decimals(
                    doubles[0].column(column.name).combine_chunks(), column.type, b"e-" in block or b"E-" in block
                )
        columns, rescued = self._with_path(columns, count)
        return append_technical_columns(columns, self._schema, rescued), odd

    def _with_path(self, columns: list[pa.Array], count: int) -> tuple[list[pa.Array], pa.Array]:
        texts = pa.nulls(count, pa.string())
        for name, cell in self._path.items():
            member = pa.scalar(json_values.write_exact_json({name: cell})[1:-1])
            at = self._schema.get_field_index(name)
            value = conversion.MISFIT if at < 0 else conversion.parse_cell_value(cell, self._schema.field(at).type)
            differs = pa.repeat(pa.scalar(value is conversion.MISFIT), count)
            if value is not conversion.MISFIT and value is not None:
                own, other = columns[at], pa.scalar(value, self._schema.field(at).type)
                differs = pc.fill_null(pc.not_equal(own, other), False)
                columns[at] = pc.coalesce(own, other)
            if pc.any(differs).as_py():
                # Not with null_handling="skip", which returns an array of another length.
                longer = pc.coalesce(pc.binary_join_element_wise(texts, member, ","), member)
                texts = pc.if_else(differs, longer, texts)
        return columns, texts if texts.null_count == count else pc.binary_join_element_wise("{", texts, "}", "")


def _build_parse_options(schema: pa.Schema, decimals_as_double: bool) -> arrow_json.ParseOptions:
    fields = [column.with_type(_arrow_reading_type(column.type, decimals_as_double)).with_nullable(True) for column in schema]
    return arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")


def _arrow_reading_type(type: pa.DataType, decimals_as_double: bool) -> pa.DataType:
    """Returns the type to read with. If Arrow's reader accepts too much for a type, text or DOUBLE is read and converted here."""
    if pa.types.is_struct(type):
        return pa.struct([
            field.with_type(_arrow_reading_type(field.type, decimals_as_double)).with_nullable(True) for field in type
        ])
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return pa.list_(type.value_field.with_type(_arrow_reading_type(type.value_type, decimals_as_double)).with_nullable(True))
    if pa.types.is_float32(type) or (decimals_as_double and pa.types.is_decimal(type)):
        return pa.float64()
    taken = (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_float64, pa.types.is_boolean, pa.types.is_decimal)
    return type if any(is_it(type) for is_it in taken) else pa.string()


def _convert_exactly(array: pa.Array, type: pa.DataType, verified: bool) -> tuple[pa.Array, Mask | None]:
    """Converts an array to the type of its column, and returns the rows to inspect again; None for no rows."""
    if pa.types.is_struct(type):
        return _convert_struct_exactly(array, type, verified)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return _convert_list_exactly(array, type, verified)
    if pa.types.is_floating(type):
        small = pc.less(pc.abs(array), float(conversion.EXACT))
        if pa.types.is_float64(type):
            return array, None if verified else _build_row_mask(pc.invert(small))
        fits = conversion.fits_float32(array)
        return array.cast(type, safe=False), _build_row_mask(pc.invert(fits if verified else pc.and_(fits, small)))
    if array.type == type:
        return array, None
    converted, unfit = conversion.convert_json_strings(array, type)
    return converted, _build_row_mask(unfit)


def _convert_struct_exactly(array: pa.Array, type: pa.DataType, verified: bool) -> tuple[pa.Array, Mask | None]:
    parts = [_convert_exactly(part, field.type, verified) for part, field in zip(array.flatten(), type, strict=True)]
    masks = [mask for _, mask in parts if mask is not None]
    made = pa.StructArray.from_arrays([part for part, _ in parts], fields=list(type), mask=array.is_null())
    return made, np.logical_or.reduce(masks) if masks else None


def _convert_list_exactly(array: pa.Array, type: pa.DataType, verified: bool) -> tuple[pa.Array, Mask | None]:
    values, unfit = _convert_exactly(array.values, type.value_type, verified)
    # The reader's lists start at 0 and have no values below a NULL, so values and offsets match.
    made = pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null()).cast(type)
    if unfit is None:
        return made, None
    rows: Mask = np.zeros(len(array), dtype=np.bool_)
    rows[pc.list_parent_indices(array).to_numpy(zero_copy_only=False)[unfit]] = True
    return made, rows


def _find_doubtful_decimals(array: pa.Array, type: pa.DataType, tiny: bool) -> Mask:
    """Finds the rows in which Arrow may silently misread a DECIMAL: numbers near its limits, in either direction.

    array: read as DOUBLE. tiny: whether a number may be so small that it is 0 as a DOUBLE.
    """
    rows: Mask = np.zeros(len(array), dtype=np.bool_)
    if pa.types.is_struct(type):
        for part, field in zip(array.flatten(), type, strict=True):
            rows |= _find_doubtful_decimals(part, field.type, tiny)
    elif pa.types.is_list(type) or pa.types.is_large_list(type):
        found = _find_doubtful_decimals(array.values, type.value_type, tiny)
        rows[pc.list_parent_indices(array).to_numpy(zero_copy_only=False)[found]] = True
    elif pa.types.is_decimal(type):
        size = np.abs(array.to_numpy(zero_copy_only=False))
        sure = (size > 0.999999 * 10.0**-type.scale) & (size < 0.999999 * 10.0 ** (type.precision - type.scale))
        rows = ~(sure | ((size == 0) & (not tiny)) | array.is_null().to_numpy(zero_copy_only=False))
    return rows


def _build_row_mask(mask: pa.Array) -> Mask | None:
    if not pc.any(mask).as_py():
        return None
    found: Mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return found


def _has_map(type: pa.DataType) -> bool:
    return bool(pa.types.is_map(type)) or any(_has_map(type.field(at).type) for at in range(type.num_fields))


def _has_decimal(type: pa.DataType | pa.Schema) -> bool:
    if isinstance(type, pa.Schema):
        return any(_has_decimal(column.type) for column in type)
    return bool(pa.types.is_decimal(type)) or any(_has_decimal(type.field(at).type) for at in range(type.num_fields))
