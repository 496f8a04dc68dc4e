"""Parquet, ORC and Arrow files: the values of all columns, dictionaries, statistics in footers, and metadata left by writers.

A Parquet dictionary may list values that no row has, for example if rows were removed and the dictionary stayed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from residue import timed
from residue.cells import open_column_cells
from residue.damage import LIMIT, DamagedContent, read_exactly
from residue.decoders.compressed import read_varint
from residue.inspection import Inspection

_BATCH = 1 << 25
"""The approximate number of bytes of rows held at once."""
_MOST_ROWS = 1 << 16
_TEXTS = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
_VIEWS = (pa.types.is_string_view, pa.types.is_binary_view)


def search_parquet_file(stream: IO[bytes], inspection: Inspection) -> None:
    """Searches every value of a Parquet file and its dictionaries, its row groups' statistics, and its key-value metadata.

    Page headers, column and offset indexes and bloom filters are not compressed, so the search of raw bytes covers them.
    """
    try:
        opened = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
    except (OSError, pa.ArrowException):
        raise DamagedContent("the Parquet file has no footer that can be read") from None
    about = opened.metadata
    for key, value in (about.metadata or {}).items():
        inspection.whole("parquet metadata", key + b"\n" + value)
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        _search_row_group_statistics(group, inspection)
        for column in range(group.num_columns):
            search_parquet_dictionary(stream, group.column(column), opened.schema.column(column), inspection)
        rows = max(1, min(_MOST_ROWS, _BATCH * max(group.num_rows, 1) // max(group.total_byte_size, 1)))
        try:
            for batch in opened.iter_batches(rows, [number], use_threads=False):
                search_record_batch(batch, inspection, "parquet")
        except (OSError, pa.ArrowException, NotImplementedError):
            raise DamagedContent("a row group of the Parquet file cannot be read") from None


def search_orc_file(stream: IO[bytes], inspection: Inspection) -> None:
    """Searches every value of an ORC file."""
    try:
        from pyarrow import orc as reader

        opened = reader.ORCFile(stream)
        for key, value in (opened.schema.metadata or {}).items():
            inspection.whole("orc metadata", key + b"\n" + value)
        for number in range(opened.nstripes):
            search_record_batch(opened.read_stripe(number), inspection, "orc")
    except (OSError, ImportError, pa.ArrowException):
        raise DamagedContent("the ORC file cannot be read") from None


def search_arrow_file(stream: IO[bytes], inspection: Inspection) -> None:
    """Searches every value of an Arrow file."""
    try:
        opened = pa.ipc.open_file(stream)
        for number in range(opened.num_record_batches):
            search_record_batch(opened.get_batch(number), inspection, "arrow")
    except (OSError, pa.ArrowException):
        raise DamagedContent("the Arrow file cannot be read") from None


def _search_row_group_statistics(group: Any, inspection: Inspection) -> None:
    for number in range(group.num_columns):
        column = group.column(number)
        try:
            known = column.statistics
            ends = [known.min, known.max] if known is not None and known.has_min_max else []
        except (pa.ArrowException, NotImplementedError, ValueError):
            continue  # a type without comparable statistics; its bytes are searched raw
        numbers = [int(end) for end in ends if _is_whole_number(end)]
        texts = [end if isinstance(end, bytes) else end.encode() for end in ends if isinstance(end, bytes | str)]
        if numbers:
            inspection.numbers("parquet statistics", column.path_in_schema, np.array(numbers, np.int64))
        if texts:
            inspection.several("parquet statistics", texts, column.path_in_schema)


def _is_whole_number(end: Any) -> bool:
    """Whether one end of a column's range is a whole number, of any type, that may be an identifier."""
    number = isinstance(end, int | float | Decimal) and not isinstance(end, bool)
    return number and abs(end) < 2**63 and end == int(end)


def search_record_batch(batch: pa.RecordBatch, inspection: Inspection, decoder: str) -> None:
    """Searches the values of some rows."""
    timed.count_timed_rows(batch, inspection, decoder)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _search_nested_column(column, name, inspection, decoder)


def _search_nested_column(column: pa.Array, name: str, inspection: Inspection, decoder: str) -> None:
    """Searches the values of a column, and of those nested in it."""
    kind = column.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            _search_nested_column(column.field(number), f"{name}.{kind.field(number).name}", inspection, decoder)
    elif pa.types.is_map(kind):
        _search_map_column(column, name, inspection, decoder)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        _search_nested_column(column.flatten(), name, inspection, decoder)
    elif pa.types.is_dictionary(kind):
        _search_nested_column(column.dictionary, name, inspection, decoder)
    elif isinstance(column, pa.ExtensionArray):
        _search_nested_column(column.storage, name, inspection, decoder)
    else:
        _search_flat_column(column, name, inspection, decoder)


def _search_map_column(column: pa.MapArray, name: str, inspection: Inspection, decoder: str) -> None:
    """Searches a map's keys and values; values under a key named like a searched column count as that column's."""
    keys, items = column.keys, column.items
    _search_nested_column(keys, f"{name}.key", inspection, decoder)
    if pa.types.is_string(keys.type) and inspection.compiled.keys:
        lowered = pc.utf8_lower(keys)
        for key in pc.unique(lowered).to_pylist():
            if key in inspection.compiled.keys:
                _search_nested_column(items.filter(pc.equal(lowered, key)), f"{name}.{key}", inspection, decoder)
        items = items.filter(pc.invert(pc.is_in(lowered, pa.array(sorted(inspection.compiled.keys)))))
    _search_nested_column(items, f"{name}.value", inspection, decoder)


def _search_flat_column(column: pa.Array, name: str, inspection: Inspection, decoder: str) -> None:
    kind = column.type
    if any(view(kind) for view in _VIEWS):
        column = column.cast(pa.large_binary())
        kind = column.type
    if any(text(kind) for text in _TEXTS):
        _search_column_cells(column, name, inspection, decoder)
    elif pa.types.is_fixed_size_binary(kind):
        _search_column_cells(column.cast(pa.binary()), name, inspection, decoder)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        inspection.numbers(decoder, name, column.drop_null().to_numpy(zero_copy_only=False))
    elif pa.types.is_decimal(kind):
        numbers, larger = _split_decimal_texts(pc.cast(column.drop_null(), pa.string()))
        inspection.numbers(decoder, name, numbers)
        _search_column_cells(larger, name, inspection, decoder)
    elif not (pa.types.is_temporal(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        inspection.unread(f"a column of type {kind}")


def _split_decimal_texts(texts: pa.Array) -> tuple[Any, pa.Array]:
    """Splits decimals given as texts into whole numbers of up to 18 digits, as numbers, and larger ones, as texts."""
    bare = pc.replace_substring_regex(texts, r"\.0*$", "")
    fits = pc.match_substring_regex(bare, r"^-?[0-9]{1,18}$")
    small = pc.cast(pc.filter(bare, fits), pa.int64()).to_numpy(zero_copy_only=False)
    return small, pc.filter(bare, pc.match_substring_regex(bare, r"^-?[0-9]{19,}$"))


def _search_column_cells(column: pa.Array, name: str, inspection: Inspection, decoder: str) -> None:
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return
    cells = np.frombuffer(offsets, np.int64 if wide else np.int32, len(column) + 1, column.offset * (8 if wide else 4))
    first, last = int(cells[0]), int(cells[-1])
    values, cells = np.frombuffer(data, np.uint8)[first:last], cells.astype(np.int64) - first
    inspection.cells(decoder, name, values, cells)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        open_column_cells(values, cells, inspection)


DECODER = "parquet dictionary"
_HEADER = 1 << 16
"""The most bytes of a page header."""
_DICTIONARY_PAGE = 2
_TYPE, _SIZE, _PACKED = 1, 2, 3
"""Field numbers in a page header."""
_NUMBERS = {"INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}
_CODECS = {"SNAPPY": ("snappy",), "GZIP": ("gzip",), "ZSTD": ("zstd",), "BROTLI": ("brotli",), "LZ4": ("lz4_raw", "lz4")}


def search_parquet_dictionary(stream: IO[bytes], chunk: Any, declared: Any, inspection: Inspection) -> None:
    """Searches the dictionary of a column chunk, if any. declared: the column in the file's schema. Raises DamagedContent."""
    start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
    stream.seek(start)
    header, length = _read_thrift_struct(stream.read(_HEADER), 0)
    if header.get(_TYPE) != _DICTIONARY_PAGE:
        return
    stream.seek(start + length)
    page = _decompress_dictionary_page(chunk.compression, read_exactly(stream, header[_PACKED]), header[_SIZE])
    column = chunk.path_in_schema
    is_decimal = "Decimal" in str(declared.logical_type)
    if chunk.physical_type in _NUMBERS:
        values = np.frombuffer(page, _NUMBERS[chunk.physical_type])
        whole = values[values % 10**declared.scale == 0] // 10**declared.scale if is_decimal else values
        inspection.numbers(DECODER, column, whole)
    elif is_decimal:
        _search_decimal_dictionary(
            list(_split_dictionary_values(chunk.physical_type, declared.length, page)), declared.scale, column, inspection
        )
    elif chunk.physical_type != "INT96":  # INT96 holds instants
        texts = list(_split_dictionary_values(chunk.physical_type, declared.length, page))
        inspection.several(DECODER, texts, column)
        if "String" not in str(declared.logical_type):
            cells = np.cumsum([0, *map(len, texts)], dtype=np.int64)
            open_column_cells(np.frombuffer(b"".join(texts), np.uint8), cells, inspection)


def _search_decimal_dictionary(values: list[bytes], scale: int, column: str, inspection: Inspection) -> None:
    numbers = [int.from_bytes(value, "big", signed=True) for value in values]
    whole = [number // 10**scale for number in numbers if number % 10**scale == 0]
    small = [number for number in whole if abs(number) < 2**63]
    inspection.numbers(DECODER, column, np.array(small, np.int64))
    inspection.several(DECODER, (str(number).encode() for number in whole if abs(number) >= 2**63), column)


def _split_dictionary_values(kind: str, length: int, page: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(page):
        size = length
        if kind == "BYTE_ARRAY":
            if at + 4 > len(page):
                raise DamagedContent("a dictionary of the Parquet file cannot be read")
            (size,) = struct.unpack_from("<I", page, at)
            at += 4
        if at + size > len(page):
            raise DamagedContent("a dictionary of the Parquet file cannot be read")
        yield page[at : at + size]
        at += size


def _decompress_dictionary_page(codec: str, page: bytes, size: int) -> bytes:
    if codec == "UNCOMPRESSED":
        return page
    if size > LIMIT:
        raise DamagedContent("a dictionary of the Parquet file is too large")
    for one in _CODECS.get(codec, ()):
        try:
            return bytes(pa.Codec(one).decompress(page, decompressed_size=size, asbytes=True)) if size else b""
        except (OSError, pa.ArrowException):
            continue
    raise DamagedContent("a dictionary of the Parquet file cannot be unpacked")


def _read_thrift_struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Reads a struct in Thrift's compact protocol. Returns its fields by number, and its end."""
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head, at = _read_thrift_byte(data, at)
        if not head:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_thrift_integer(data, at)
        fields[number], at = _read_thrift_value(data, at, head & 15)


def _read_thrift_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return _read_thrift_byte(data, at)
    if kind in (4, 5, 6):
        return _read_thrift_integer(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        size, at = read_varint(data, at)
        return data[at : at + size], at + size
    if kind in (9, 10):
        head, at = _read_thrift_byte(data, at)
        count, at = (head >> 4, at) if head >> 4 < 15 else read_varint(data, at)
        found = []
        for _ in range(count):
            one, at = _read_thrift_byte(data, at) if head & 15 in (1, 2) else _read_thrift_value(data, at, head & 15)
            found.append(one)
        return found, at
    if kind == 12:
        return _read_thrift_struct(data, at)
    raise DamagedContent("a page of the Parquet file has a header of another kind")


def _read_thrift_byte(data: bytes, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise DamagedContent("the header of a page of the Parquet file is cut off")
    return data[at], at + 1


def _read_thrift_integer(data: bytes, at: int) -> tuple[int, int]:
    found, at = read_varint(data, at)
    return (found >> 1) ^ -(found & 1), at
