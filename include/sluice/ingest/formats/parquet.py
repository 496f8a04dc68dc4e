"""From a Parquet file to its batches, a few MB each however densely they were packed; and whether the whole file can be read."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from sluice.declare.ingest.source import Source
from sluice.ingest.files import opening
from sluice.ingest.files.opening import UnreadableFile

_SIGN, _ENCRYPTED = b"PAR1", b"PARE"
_SMALLEST = 12
_ABOUT, _MOST = 2_000_000, 8_000_000
_MOST_ROWS = 1 << 16
_ROW = 32
"""What a row takes in memory besides its fields: its delivery, its file and its number."""
_SMALL_FILE = 1 << 18
"""A file that is smaller may grow as one of this size: a few kilobytes with the same values in each of many rows are no attack."""


@contextlib.contextmanager
def open_parquet_file(source: Source, path: Path) -> Iterator[parquet.ParquetFile]:
    """The file. Raises Unreadable, also from within the block, where Arrow cannot read it."""
    with _open_seekable_file(source, path) as file:
        _check_parquet_signature(file)
        try:
            yield parquet.ParquetFile(file, read_dictionary=_find_dictionary_columns(file), pre_buffer=False)
        except pa.ArrowNotImplementedError:
            raise UnreadableFile("the Parquet file is encrypted, or of a kind that cannot be read here") from None
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise UnreadableFile("the Parquet file is damaged") from None


def read_parquet_batches(file: parquet.ParquetFile) -> Iterator[pa.RecordBatch]:
    """All rows in order, a few MB at a time. A text that the file holds once for many rows is held once here too, in a dictionary."""
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        rows = _ABOUT * group.num_rows // max(1, group.total_byte_size)
        for batch in file.iter_batches(batch_size=max(64, min(_MOST_ROWS, rows)), row_groups=[number], use_threads=False):
            yield from _split_large_batch(batch)


def measure_parquet_file(source: Source, path: Path) -> tuple[int, int]:
    """How many rows the file has and about how many bytes they have in memory. Reads all of it. Raises Unreadable."""
    rows = size = 0
    on_disk = max(path.stat().st_size, _SMALL_FILE)
    with open_parquet_file(source, path) as file:
        packed = sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
        # What the file says of itself spares reading it; what it really has is counted below.
        opening.check_size_limits(source, on_disk, max(packed, file.metadata.num_rows * _ROW))
        for batch in read_parquet_batches(file):
            rows += batch.num_rows
            size += _unpacked_batch_size(batch)
            opening.check_size_limits(source, on_disk, size + rows * _ROW)
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid:
                raise UnreadableFile("the Parquet file is damaged, or has text that is not UTF-8") from None
    return rows, size


@contextlib.contextmanager
def _open_seekable_file(source: Source, path: Path) -> Iterator[BinaryIO]:
    """The file, or its content where it is compressed as a whole."""
    if path.suffix.lower() not in (".gz", ".zst", ".bz2"):
        with opening.open_regular_file(path) as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        for part in opening.read_file_chunks(source, path):
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
    """The columns, not nested ones, whose text is in dictionaries."""
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
    """The batch in parts that are not large once their dictionaries are unpacked."""
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
