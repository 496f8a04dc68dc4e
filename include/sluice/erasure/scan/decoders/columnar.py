"""Parquet, ORC and Arrow files: the values of all columns, dictionaries, the minima and maxima in footers, the metadata that writers leave."""

from __future__ import annotations

from decimal import Decimal
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from sluice.erasure.scan import timed
from sluice.erasure.scan.cells import look_into
from sluice.erasure.scan.decoders.damage import Damaged
from sluice.erasure.scan.decoders.dictionaries import search_dictionary
from sluice.erasure.scan.inspection import Inspection

_BATCH = 1 << 25
"""Bytes of rows that are held at once, about."""
_MOST_ROWS = 1 << 16
_TEXTS = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
_VIEWS = (pa.types.is_string_view, pa.types.is_binary_view)


def parquet(stream: IO[bytes], inspection: Inspection) -> None:
    """Every value of a Parquet file and of its dictionaries, the statistics of its row groups, and its key-value metadata.

    What stands in page headers, column and offset indexes and bloom filters is not compressed: the search over raw bytes has it.
    """
    try:
        opened = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
    except (OSError, pa.ArrowException):
        raise Damaged("the Parquet file has no footer that can be read") from None
    about = opened.metadata
    for key, value in (about.metadata or {}).items():
        inspection.whole("parquet metadata", key + b"\n" + value)
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        _statistics(group, inspection)
        for column in range(group.num_columns):
            search_dictionary(stream, group.column(column), opened.schema.column(column), inspection)
        rows = max(1, min(_MOST_ROWS, _BATCH * max(group.num_rows, 1) // max(group.total_byte_size, 1)))
        try:
            for batch in opened.iter_batches(rows, [number], use_threads=False):
                values_of(batch, inspection, "parquet")
        except (OSError, pa.ArrowException, NotImplementedError):
            raise Damaged("a row group of the Parquet file cannot be read") from None


def orc(stream: IO[bytes], inspection: Inspection) -> None:
    """Every value of an ORC file."""
    try:
        from pyarrow import orc as reader

        opened = reader.ORCFile(stream)
        for key, value in (opened.schema.metadata or {}).items():
            inspection.whole("orc metadata", key + b"\n" + value)
        for number in range(opened.nstripes):
            values_of(opened.read_stripe(number), inspection, "orc")
    except (OSError, ImportError, pa.ArrowException):
        raise Damaged("the ORC file cannot be read") from None


def arrow(stream: IO[bytes], inspection: Inspection) -> None:
    """Every value of an Arrow file."""
    try:
        opened = pa.ipc.open_file(stream)
        for number in range(opened.num_record_batches):
            values_of(opened.get_batch(number), inspection, "arrow")
    except (OSError, pa.ArrowException):
        raise Damaged("the Arrow file cannot be read") from None


def _statistics(group: Any, inspection: Inspection) -> None:
    for number in range(group.num_columns):
        column = group.column(number)
        try:
            known = column.statistics
            ends = [known.min, known.max] if known is not None and known.has_min_max else []
        except (pa.ArrowException, NotImplementedError, ValueError):
            continue  # of a type without comparable statistics: the bytes are searched as they are
        numbers = [int(end) for end in ends if _is_whole(end)]
        texts = [end if isinstance(end, bytes) else end.encode() for end in ends if isinstance(end, bytes | str)]
        if numbers:
            inspection.numbers("parquet statistics", column.path_in_schema, np.array(numbers, np.int64))
        if texts:
            inspection.several("parquet statistics", texts, column.path_in_schema)


def _is_whole(end: Any) -> bool:
    """Whether one of a column's ends is a whole number, of whatever type, that an identifier may be."""
    number = isinstance(end, int | float | Decimal) and not isinstance(end, bool)
    return number and abs(end) < 2**63 and end == int(end)


def values_of(batch: pa.RecordBatch, inspection: Inspection, decoder: str) -> None:
    """The values of some rows."""
    timed.judge(batch, inspection, decoder)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _leaves(column, name, inspection, decoder)


def _leaves(column: pa.Array, name: str, inspection: Inspection, decoder: str) -> None:
    """The values of a column; of one that holds others, theirs."""
    kind = column.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            _leaves(column.field(number), f"{name}.{kind.field(number).name}", inspection, decoder)
    elif pa.types.is_map(kind):
        _map(column, name, inspection, decoder)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        _leaves(column.flatten(), name, inspection, decoder)
    elif pa.types.is_dictionary(kind):
        _leaves(column.dictionary, name, inspection, decoder)
    elif isinstance(column, pa.ExtensionArray):
        _leaves(column.storage, name, inspection, decoder)
    else:
        _values(column, name, inspection, decoder)


def _map(column: pa.MapArray, name: str, inspection: Inspection, decoder: str) -> None:
    """Keys and values of a map; the values below a key that is called as a column is that is sought in count as that column's."""
    keys, items = column.keys, column.items
    _leaves(keys, f"{name}.key", inspection, decoder)
    if pa.types.is_string(keys.type) and inspection.compiled.keys:
        lowered = pc.utf8_lower(keys)
        for key in pc.unique(lowered).to_pylist():
            if key in inspection.compiled.keys:
                _leaves(items.filter(pc.equal(lowered, key)), f"{name}.{key}", inspection, decoder)
        items = items.filter(pc.invert(pc.is_in(lowered, pa.array(sorted(inspection.compiled.keys)))))
    _leaves(items, f"{name}.value", inspection, decoder)


def _values(column: pa.Array, name: str, inspection: Inspection, decoder: str) -> None:
    kind = column.type
    if any(view(kind) for view in _VIEWS):
        column = column.cast(pa.large_binary())
        kind = column.type
    if any(text(kind) for text in _TEXTS):
        _cells(column, name, inspection, decoder)
    elif pa.types.is_fixed_size_binary(kind):
        _cells(column.cast(pa.binary()), name, inspection, decoder)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        inspection.numbers(decoder, name, column.drop_null().to_numpy(zero_copy_only=False))
    elif pa.types.is_decimal(kind):
        numbers, larger = _whole(pc.cast(column.drop_null(), pa.string()))
        inspection.numbers(decoder, name, numbers)
        _cells(larger, name, inspection, decoder)
    elif not (pa.types.is_temporal(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        inspection.unread(f"a column of type {kind}")


def _whole(texts: pa.Array) -> tuple[Any, pa.Array]:
    """Of texts of decimals, the whole numbers of up to 18 digits as numbers, and the larger ones as texts."""
    bare = pc.replace_substring_regex(texts, r"\.0*$", "")
    fits = pc.match_substring_regex(bare, r"^-?[0-9]{1,18}$")
    small = pc.cast(pc.filter(bare, fits), pa.int64()).to_numpy(zero_copy_only=False)
    return small, pc.filter(bare, pc.match_substring_regex(bare, r"^-?[0-9]{19,}$"))


def _cells(column: pa.Array, name: str, inspection: Inspection, decoder: str) -> None:
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return
    cells = np.frombuffer(offsets, np.int64 if wide else np.int32, len(column) + 1, column.offset * (8 if wide else 4))
    first, last = int(cells[0]), int(cells[-1])
    values, cells = np.frombuffer(data, np.uint8)[first:last], cells.astype(np.int64) - first
    inspection.cells(decoder, name, values, cells)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        look_into(values, cells, inspection)
