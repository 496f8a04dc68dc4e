"""Reads a Parquet file in batches of a few MB each, however densely they are packed, and checks whether the whole file can be read.

It also writes the file without some of its rows, or with NULL in some cells, and without values that no row has any more.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import IO, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from sluice.declare.ingest.source import Source
from sluice.ingest.files import decompression, delivered_bytes
from sluice.ingest.files.delivered_bytes import FileSpan, UnreadableFile
from sluice.locations import Location

_SIGN, _ENCRYPTED = b"PAR1", b"PARE"
_SMALLEST = 12
_ABOUT, _MOST = 2_000_000, 8_000_000
_MOST_ROWS = 1 << 16
_ROW = 32
"""The bytes that a row takes in memory besides its fields: its delivery, its file and its number."""
_INT96 = "us"
"""The unit of instants that are stored as INT96, as older writers do: nanoseconds hold the years 1677 to 2262 only, and others become those."""
_SMALL_FILE = 1 << 18
"""A smaller file may grow as much as one of this size: a few kilobytes with the same values in many rows are not an attack."""


@contextlib.contextmanager
def open_parquet_file(source: Source, path: Location) -> Iterator[parquet.ParquetFile]:
    """Opens the file. Raises UnreadableFile, also within the block, if Arrow cannot read it."""
    with _open_seekable_file(source, path) as file:
        _check_parquet_signature(file)
        try:
            yield parquet.ParquetFile(
                file, read_dictionary=_find_dictionary_columns(file), pre_buffer=False, coerce_int96_timestamp_unit=_INT96
            )
        except pa.ArrowNotImplementedError:
            raise UnreadableFile("the Parquet file is encrypted, or of a kind that cannot be read here") from None
        except (pa.ArrowException, OSError, UnicodeError) as error:  # the last one: a damaged name of a column
            if isinstance(error, OSError) and error.errno:
                raise
            raise UnreadableFile("the Parquet file is damaged") from None


def list_row_groups(file: parquet.ParquetFile, size: int, span: FileSpan | None) -> list[int]:
    """The row groups that begin in a span of a file of so many bytes; None: all.

    The start of a row group is estimated from the sizes of the groups before it, because the offsets in the file need not ascend.
    """
    sizes = [max(1, file.metadata.row_group(number).total_byte_size) for number in range(file.num_row_groups)]
    begins = [size * before // sum(sizes) for before in accumulate(sizes[:-1], initial=0)] if sizes else []
    return [
        at for at, begin in enumerate(begins) if span is None or (span.start <= begin and (span.end is None or begin < span.end))
    ]


def read_parquet_batches(file: parquet.ParquetFile, groups: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yields all rows of row groups in order, a few MB at a time. A text that the file holds once for many rows is held once here, too."""
    for number in groups:
        group = file.metadata.row_group(number)
        rows = _ABOUT * group.num_rows // max(1, group.total_byte_size)
        for batch in file.iter_batches(batch_size=max(64, min(_MOST_ROWS, rows)), row_groups=[number], use_threads=False):
            yield from _split_large_batch(batch)


def measure_parquet_file(source: Source, path: Location) -> tuple[int, int]:
    """Returns how many rows the file has, and about how many bytes they take in memory. Reads all of it. Raises UnreadableFile."""
    rows = size = 0
    on_disk = max(path.stat().st_size, _SMALL_FILE)
    with open_parquet_file(source, path) as file:
        packed = sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
        # The file's own numbers may refuse it without reading; its real size is counted below.
        delivered_bytes.check_size_limits(source, on_disk, max(packed, file.metadata.num_rows * _ROW))
        for batch in read_parquet_batches(file, range(file.num_row_groups)):
            rows += batch.num_rows
            size += _unpacked_batch_size(batch)
            delivered_bytes.check_size_limits(source, on_disk, size + rows * _ROW)
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid:
                raise UnreadableFile("the Parquet file is damaged, or has text that is not UTF-8") from None
    return rows, size


@contextlib.contextmanager
def _open_seekable_file(source: Source, path: Location) -> Iterator[BinaryIO]:
    """Opens the file, or its content if it is compressed as a whole."""
    if path.suffix.lower() not in decompression.SUFFIXES:
        with delivered_bytes.open_regular_file(path) as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        for part in delivered_bytes.read_file_chunks(source, path):
            copy.write(part)
        yield copy


def _check_parquet_signature(file: BinaryIO) -> None:
    size = file.seek(0, 2)
    file.seek(0)
    start = file.read(4)
    file.seek(max(0, size - 4))
    end = file.read(4)
    file.seek(0)
    if start == _ENCRYPTED:
        raise UnreadableFile("the Parquet file is encrypted, or of a kind that cannot be read here")
    if not _SIGN.startswith(start[:4]):
        raise UnreadableFile("the file is no Parquet file")
    if end != _SIGN or size < _SMALLEST:
        raise UnreadableFile("the Parquet file is cut off")


def _find_dictionary_columns(file: BinaryIO) -> list[str]:
    """Returns the top-level columns whose text is in dictionaries."""
    found = parquet.read_metadata(file)
    file.seek(0)
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    return [
        found.schema.column(number).path
        for number in range(found.num_columns)
        if found.schema.column(number).physical_type == "BYTE_ARRAY"
        and found.schema.column(number).max_repetition_level == 0
        and "." not in found.schema.column(number).path
        and any(group.column(number).has_dictionary_page for group in groups)
    ]


def _split_large_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divides the batch into parts that are not large once their dictionaries are unpacked."""
    if batch.num_rows <= 1 or _unpacked_batch_size(batch) <= _MOST:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split_large_batch(batch.slice(0, half))
    yield from _split_large_batch(batch.slice(half))


def _unpacked_batch_size(batch: pa.RecordBatch) -> int:
    return sum(_unpacked_column_size(column) for column in batch.columns)


def _unpacked_column_size(column: pa.Array) -> int:
    if not isinstance(column, pa.DictionaryArray):
        return int(column.nbytes)
    return len(column) * 4 + int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def write_remaining_rows(
    source: Source, path: Location, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """Writes the file without these rows."""
    whole = io.BytesIO(b"".join(delivered_bytes.read_file_chunks(source, path)))
    with parquet.ParquetFile(whole, coerce_int96_timestamp_unit=_INT96) as file:
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
    """Returns rows of a Parquet file, the first of which has the number `start`, with NULL in these columns."""
    for position, field in enumerate(rows.schema):
        lowered = field.name.lower()
        mask = [lowered in {name.lower() for name in emptied.get(number, ())} for number in range(start, start + rows.num_rows)]
        if any(mask):
            keep = pa.array([None if gone else position for position, gone in enumerate(mask)], pa.int64())
            rows = rows.set_column(position, field, rows.column(position).take(keep))
    return rows


def _drop_unused_dictionary_values(rows: pa.Table) -> pa.Table:
    """Returns the rows with only those dictionary values that a row has: otherwise values of removed rows would be written, too."""
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
        # In their old order, which may mean something.
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
        # With the rows' offset, and NULL if a struct around it is NULL.
        fields = [_keep_used_dictionary_values(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    # Lists and maps hold plain values, from which the writer makes a new dictionary.
    return array.cast(_type_without_dictionaries(kind)).cast(kind)


def _has_dictionary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind)) or any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _type_without_dictionaries(kind: pa.DataType) -> pa.DataType:
    """Returns the type without dictionaries."""
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
