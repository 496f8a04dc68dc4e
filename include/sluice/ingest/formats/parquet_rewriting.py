"""A Parquet file without some of its rows, or with NULL in some of their cells, and without the values that no row has any more."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening


def write_remaining_rows(
    source: Source, path: Path, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """Write the file without these rows."""
    whole = io.BytesIO(b"".join(opening.read_file_chunks(source, path)))
    with parquet.ParquetFile(whole) as file:
        groups = range(file.num_row_groups)
        packing = file.metadata.row_group(0).column(0).compression if len(groups) else "SNAPPY"
        codec = "NONE" if packing == "UNCOMPRESSED" else packing
        with parquet.ParquetWriter(pa.PythonFile(target, mode="w"), file.schema_arrow, compression=codec) as writer:
            start = 0
            for group in groups:
                rows = _empty_columns(file.read_row_group(group), start, emptied)
                stays = pa.array([number not in gone for number in range(start, start + rows.num_rows)], pa.bool_())
                start += rows.num_rows
                writer.write_table(_drop_unused_dictionary_values(rows.filter(pc.fill_null(stays, True))))


def _empty_columns(rows: pa.Table, start: int, emptied: Mapping[int, Collection[str]]) -> pa.Table:
    """Rows of a Parquet file, the first of which has the number `start`, with NULL in these columns."""
    for place, field in enumerate(rows.schema):
        lowered = field.name.lower()
        mask = [lowered in {name.lower() for name in emptied.get(number, ())} for number in range(start, start + rows.num_rows)]
        if any(mask):
            keep = pa.array([None if gone else place for place, gone in enumerate(mask)], pa.int64())
            rows = rows.set_column(place, field, rows.column(place).take(keep))
    return rows


def _drop_unused_dictionary_values(rows: pa.Table) -> pa.Table:
    """The rows, with only those dictionary values that some row has: the others would be written too, those of removed rows among them."""
    columns = [
        pa.chunked_array([_keep_used_dictionary_values(part) for part in column.chunks], column.type)
        if _has_dictionary(column.type)
        else column
        for column in rows.columns
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _keep_used_dictionary_values(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        # In the order that they were in, which may mean something.
        used = pc.unique(array.indices.drop_null()).sort()
        entries = (
            _keep_used_dictionary_values(array.dictionary.take(used))
            if _has_dictionary(kind.value_type)
            else array.dictionary.take(used)
        )
        return pa.DictionaryArray.from_arrays(
            pc.index_in(array.indices, used).cast(kind.index_type), entries, ordered=kind.ordered
        )
    if not _has_dictionary(kind):
        return array
    if pa.types.is_struct(kind):
        # With the offset of the rows, and NULL where a struct around it is.
        fields = [_keep_used_dictionary_values(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    # Lists and maps: what they hold as plain values, which the writer makes a dictionary of its own of.
    return array.cast(_type_without_dictionaries(kind)).cast(kind)


def _has_dictionary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind)) or any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _type_without_dictionaries(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries."""
    if pa.types.is_dictionary(kind):
        return _type_without_dictionaries(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_type_without_dictionaries(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_type_without_dictionaries(kind.key_type)),
            kind.item_field.with_type(_type_without_dictionaries(kind.item_type)),
        )
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_type_without_dictionaries(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return made(kind.value_field.with_type(_type_without_dictionaries(kind.value_type)))
    return kind
