"""Reads Parquet: each value is exactly in its column, or rescued as JSON. Top-level names are treated like those of a CSV header."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.declare.ingest.source import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import FileSpan
from sluice.ingest.formats import ExaminedContent, ParsedBlock, parquet, python_values
from sluice.ingest.formats.delivered_fields import (
    DeliveredField,
    FittedValues,
    add_path_fields,
    fit_delivered_fields,
    join_json_objects,
)
from sluice.ingest.formats.parquet import write_remaining_rows
from sluice.ingest.values.conversion import MISFIT
from sluice.ingest.values.types import column_names, match_table_spelling
from sluice.locations import Location

_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


@dataclass(frozen=True)
class _ArrowValues:
    """array: the values in a type that a table can have. kind: the one that the delivered type has in a table.

    They differ where instants became text because microseconds do not hold one of them. A column of such instants is still one of instants.
    """

    source: Source
    array: pa.Array
    kind: pa.DataType

    @classmethod
    def of_delivered(cls, source: Source, array: pa.Array) -> _ArrowValues:
        """Takes values as a file has them."""
        return cls(source, cast_to_table_type(array), _nearest_table_type(array.type))

    def fitted(self, type: pa.DataType) -> FittedValues:
        if self.array.type == type:
            return FittedValues(self.array, None, pa.null())
        if pa.types.is_struct(type) and pa.types.is_struct(self.array.type):
            return self._members(type)
        if (cast := _cast_exactly(self.array, type)) is not None:
            return FittedValues(cast, None, pa.null())
        values = _list_python_values(self.array)
        found = [python_values.convert_value_exactly(value, type, as_text=not self.source.infer_types) for value in values]
        rest = [
            python_values.write_python_value_json(value) if kept is MISFIT else None
            for value, kept in zip(values, found, strict=True)
        ]
        column = pa.array([None if value is MISFIT else value for value in found], type)
        if rest.count(None) == len(rest):
            return FittedValues(column, None, pa.null())
        return FittedValues(column, pa.array(rest, pa.string()), self.kind)

    def whole(self) -> tuple[pa.Array, pa.DataType]:
        if pa.types.is_integer(self.array.type) or pa.types.is_boolean(self.array.type):
            return self.array.cast(pa.string()), self.kind
        written = [
            None if value is None else python_values.write_python_value_json(value) for value in _list_python_values(self.array)
        ]
        return pa.array(written, pa.string()), self.kind

    def _members(self, type: pa.StructType) -> FittedValues:
        """Returns a struct's fields, each by itself."""
        given, again = dict[str, _ArrowValues](), list[tuple[str, _ArrowValues]]()
        for member, part in zip(self.kind, self.array.flatten(), strict=True):
            child = _ArrowValues(self.source, part, member.type)
            if member.name in given:  # of members of one name the first is the column's
                again.append((member.name, child))
            else:
                given[member.name] = child
        columns: list[pa.Array] = []
        rests: list[tuple[str, pa.Array]] = []
        news: list[pa.Field] = []
        for field in type:
            found = given.pop(field.name, None)
            fitted = (
                found.fitted(field.type)
                if found is not None
                else FittedValues(pa.nulls(len(self.array), field.type), None, pa.null())
            )
            columns.append(fitted.column)
            if fitted.rest is not None:
                rests.append((field.name, fitted.rest))
                news.append(pa.field(field.name, fitted.news))
        for name, child in (*given.items(), *again) if self.source.schema_evolution != "none" else ():
            written, kind = child.whole()
            rests.append((name, written))
            news.append(pa.field(name, kind))
        column = pa.StructArray.from_arrays(columns, fields=list(type), mask=self.array.is_null())
        rest = join_json_objects(rests, len(self.array))
        return FittedValues(column, rest if rest.null_count < len(rest) or news else None, pa.struct(news))


def read_format_records(
    source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None], span: FileSpan | None = None
) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`. span: the row groups that begin in it."""
    if not path.stat().st_size:
        return
    with parquet.open_parquet_file(source, path) as file:
        names = match_table_spelling(column_names(file.schema_arrow.names), schema.names)
        for batch in parquet.read_parquet_batches(file, parquet.list_row_groups(file, path.stat().st_size, span)):
            fields = [
                DeliveredField(name or f"_field_{position}", _ArrowValues.of_delivered(source, column), bool(name))
                for position, (name, column) in enumerate(zip(names, batch.columns, strict=True), start=1)
            ]
            present = pa.repeat(pa.scalar(True), batch.num_rows)
            fields = add_path_fields(path_values, fields, schema, present)
            yield fit_delivered_fields(source, schema, fields, batch.num_rows, {})


def examine_format_content(source: Source, path: Location, seen: Callable[[bytes], object]) -> ExaminedContent:
    """As `formats.examine_file_content`."""
    if not sum(len(part) for part in delivered_bytes.read_file_chunks(source, path, seen)):
        return ExaminedContent(empty=True, text_bytes=0)
    rows, size = parquet.measure_parquet_file(source, path)
    return ExaminedContent(empty=not rows, text_bytes=size)


def write_remaining_records(
    source: Source, path: Location, file: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """As `formats.write_remaining_records`."""
    write_remaining_rows(source, path, gone, emptied, target)


def cast_to_table_type(array: pa.Array) -> pa.Array:
    """Returns the same values in a type that a table can have. Times become text where microseconds do not hold all of them."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    try:
        return array.cast(_nearest_table_type(array.type))
    except pa.ArrowInvalid:
        return _cast_parts_to_table_types(array)


def _cast_parts_to_table_types(array: pa.Array) -> pa.Array:
    """Does what `cast_to_table_type` does, each part by itself, so that one instant with nanoseconds makes no other a misfit."""
    is_, kind = pa.types, array.type
    if is_.is_dictionary(kind):
        return cast_to_table_type(array.dictionary_decode())
    if is_.is_struct(kind):
        parts = [cast_to_table_type(part) for part in array.flatten()]
        fields = [pa.field(member.name, part.type) for member, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if is_.is_map(kind):
        whole = array.take(
            pa.array(range(len(array)), pa.int64())
        )  # its keys and items are those of all rows, also outside a slice
        keys, items = cast_to_table_type(whole.keys), cast_to_table_type(whole.items)
        return pa.MapArray.from_arrays(whole.offsets, keys, items, mask=array.is_null())
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(array).cast(pa.int32()), 0))
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        return pa.ListArray.from_arrays(offsets, cast_to_table_type(array.flatten()), mask=array.is_null())
    if is_.is_timestamp(kind) and kind.tz is not None:
        # Text has no seconds of an offset, which zones had before standard time.
        array = array.cast(pa.timestamp(kind.unit, "UTC"))
    # The instants that microseconds hold are written with six digits, as instants are read from text.
    return pc.replace_substring_regex(array.cast(pa.string()), r"(\.[0-9]{6})000", r"\1")


def _nearest_table_type(type: pa.DataType) -> pa.DataType:
    def within(field: pa.Field) -> pa.Field:
        return field.with_type(_nearest_table_type(field.type)).with_nullable(True)

    is_ = pa.types
    if is_.is_struct(type):
        return pa.struct([within(field) for field in type])
    if is_.is_list(type) or is_.is_large_list(type) or is_.is_fixed_size_list(type):
        return pa.list_(within(type.value_field).type)
    if is_.is_map(type):
        return pa.map_(_nearest_table_type(type.key_type), _nearest_table_type(type.item_type))
    if is_.is_dictionary(type) or isinstance(type, pa.BaseExtensionType):  # the latter for instance of a UUID
        return _nearest_table_type(type.value_type if is_.is_dictionary(type) else type.storage_type)
    if is_.is_timestamp(type):
        # An instant without a zone is read as UTC, as in JSON and CSV.
        return pa.timestamp("us", "UTC")
    if is_.is_large_string(type) or is_.is_string_view(type) or is_.is_time(type) or is_.is_decimal256(type):
        return pa.string()
    if is_.is_large_binary(type) or is_.is_binary_view(type) or is_.is_fixed_size_binary(type):
        return pa.binary()
    if is_.is_decimal(type):
        return pa.decimal128(type.precision, type.scale)
    others = {**_UNSIGNED, pa.float16(): pa.float32(), pa.date64(): pa.date32()}
    return pa.int64() if is_.is_duration(type) else others.get(type, type)


def _list_python_values(array: pa.Array) -> list[Any]:
    """Returns the values as Python's. A date or an instant outside the years 1 to 9999, which Python lacks, is its text."""
    try:
        return array.to_pylist()  # type: ignore[no-any-return]
    except OverflowError:
        pass
    values = []
    for position in range(len(array)):
        try:
            values.append(array[position].as_py())
        except OverflowError:
            values.append(array.slice(position, 1).cast(_with_times_as_text(array.type)).to_pylist()[0])
    return values


def _with_times_as_text(type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_with_times_as_text(field.type)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(_with_times_as_text(type.value_type))
    if pa.types.is_map(type):
        return pa.map_(_with_times_as_text(type.key_type), _with_times_as_text(type.item_type))
    return pa.string() if pa.types.is_timestamp(type) or pa.types.is_date(type) else type


def _cast_exactly(array: pa.Array, type: pa.DataType) -> pa.Array | None:
    """Casts all values to the wider type if Arrow's cast is exact. None if each value must be inspected."""
    is_, kind = pa.types, array.type
    exact = (
        is_.is_null(kind)
        or (is_.is_integer(kind) and (is_.is_integer(type) or is_.is_float64(type) or is_.is_decimal(type)))
        or (is_.is_float32(kind) and is_.is_float64(type))
        or (is_.is_decimal(kind) and is_.is_decimal(type))
        or (is_.is_date32(kind) and is_.is_timestamp(type))
    )
    try:
        return array.cast(type) if exact else None
    except pa.ArrowInvalid:
        return None
