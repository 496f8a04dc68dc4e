"""Turns the bytes of delivered files and the known columns into Arrow tables; examines files before, and writes them without some records.

Pure functions: no Spark, no JVM.

The rule of all formats is record = columns + rescued. A field is exactly in its column, or exactly in _rescued_data.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Protocol, cast

import pyarrow as pa

from sluice.declare.ingest.file_formats import FILE_FORMATS
from sluice.declare.ingest.source import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import FileSpan
from sluice.locations import Location

NO_OBJECT = "the line is no JSON object"
TOO_DEEP = "the record is nested deeper than 1000 levels"
CUT_OFF = "the document ends before it is complete"
RAGGED = "the row has another number of fields than the header"

RESCUED, PROBLEM, RECORD = "_rescued_data", "_problem", "_record"

NO_FIELDS: Mapping[int, Collection[str]] = MappingProxyType({})
"""For calls that empty no field of any record."""


@dataclass(frozen=True)
class ParsedBlock:
    """A block of records in the file's order.

    rows: the known columns in their order and with their types, then three of STRING: "_rescued_data", JSON of what is not in the columns
    (NULL if nothing); "_problem", why the record cannot stand in bronze (NULL if it can; else all columns are NULL); and "_record", the
    text of such a record as delivered.
    news: the fields in which the records have something that the columns have not: unknown ones, nested ones inside their struct, and
    known ones with the type of a value that did not fit.
    """

    rows: pa.Table
    news: pa.StructType


@dataclass(frozen=True)
class ExaminedContent:
    """The findings about a whole file. empty: it has no record. header: the names in its first row, as delivered.

    text_bytes: its decompressed size; for Parquet its size in memory. cuts: the bytes at which the parts after the first begin, for a large file
    whose records must be looked at to find these.
    """

    empty: bool
    text_bytes: int
    header: tuple[str, ...] = ()
    cuts: tuple[int, ...] = ()


def read_file_records(
    source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None], span: FileSpan | None = None
) -> Iterator[ParsedBlock]:
    """Yields the records of a file, about 1 to 4 MB at a time.

    schema: the bronze table's columns without Sluice's own. path_values: values from the path, such as {"date": "2026-11-20"}; None where a
    folder says that there is no value. They count as text fields of each record, and a record's own field comes first.
    span: the part to read of a file that `is_read_in_spans` or has `cuts`.
    Raises opening.UnreadableFile, possibly after some blocks, and OSError.
    """
    read = _load_format_module(source).read_format_records
    if span is None:
        return read(source, path, schema, path_values)
    return cast(_SpanReader, read)(source, path, schema, path_values, span)


def is_read_in_spans(source: Source, path: Location) -> bool:
    """Whether several readers can share an unexamined file, each reading what begins in its span."""
    return FILE_FORMATS[source.format].is_divisible and not source.multi_line and delivered_bytes.is_cut_anywhere(source, path)


def examine_file_content(source: Source, path: Location, seen: Callable[[bytes], object]) -> ExaminedContent:
    """Examines all bytes of a file before its records are read. seen: is called with each part of the file as it is on the disk.

    Raises opening.UnreadableFile if it cannot be read as its source says, and OSError.
    """
    return _load_format_module(source).examine_format_content(source, path, seen)


def write_remaining_records(
    source: Source, path: Location, file: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """Writes the rest of a file, uncompressed. file, gone, emptied: as in `landing.rewriting.write_without_records`."""
    _load_format_module(source).write_remaining_records(source, path, file, gone, emptied, target)


class _FormatModule(Protocol):
    """What the module of a format has; each function is like the one above that calls it."""

    def read_format_records(
        self, source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None]
    ) -> Iterator[ParsedBlock]: ...

    def examine_format_content(self, source: Source, path: Location, seen: Callable[[bytes], object]) -> ExaminedContent: ...

    def write_remaining_records(
        self,
        source: Source,
        path: Location,
        file: str,
        gone: frozenset[int],
        emptied: Mapping[int, Collection[str]],
        target: IO[bytes],
    ) -> None: ...


class _SpanReader(Protocol):
    """Reads records of a format whose files are read in spans."""

    def __call__(
        self, source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None], span: FileSpan
    ) -> Iterator[ParsedBlock]: ...


def _load_format_module(source: Source) -> _FormatModule:
    known = FILE_FORMATS[source.format]
    name = known.document_module if source.multi_line and known.document_module else known.module
    return cast(_FormatModule, importlib.import_module(f"{__name__}.{name}"))


def append_technical_columns(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    rescued: pa.Array,
    problem: pa.Array | None = None,
    record: pa.Array | None = None,
) -> pa.Table:
    """Returns the rows of a `ParsedBlock`: the columns, then the three that every format adds. problem, record: None if there is none."""
    none = pa.nulls(len(rescued), pa.string())
    ends = [rescued, none if problem is None else problem, none if record is None else record]
    fields = [*schema, *(pa.field(name, pa.string()) for name in (RESCUED, PROBLEM, RECORD))]
    return pa.Table.from_arrays([*columns, *ends], schema=pa.schema(fields))
