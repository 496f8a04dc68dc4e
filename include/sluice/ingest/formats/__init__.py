"""Reading a delivered file: from its bytes and the known columns to Arrow tables. Pure functions: no Spark, no JVM.

The rule of all formats: record = columns + rescued. A field is in its column, exactly, or in _rescued_data, exactly.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sluice.declare.ingest.source import Source

NO_OBJECT = "the line is no JSON object"
TOO_DEEP = "the record is nested deeper than 1000 levels"
CUT_OFF = "the document ends before it is complete"
RAGGED = "the row has another number of fields than the header"

RESCUED, PROBLEM, RECORD = "_rescued_data", "_problem", "_record"

_MODULES = {"json": "json_lines", "csv": "delimited", "parquet": "columnar", "text": "plain", "binary": "plain"}


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


def read_file_records(source: Source, path: Path, schema: pa.Schema, path_values: Mapping[str, str]) -> Iterator[ParsedBlock]:
    """The records of a file, some 1 to 4 MB at a time.

    schema: the bronze table's columns without Sluice's own. path_values: from the path, such as {"date": "2026-11-20"}; they count as
    fields of each record, as text, and a record's own field goes first. Raises opening.Unreadable, possibly after some blocks, and OSError.
    """
    name = "json_documents" if source.format == "json" and source.multi_line else _MODULES[source.format]
    module = importlib.import_module(f"{__name__}.{name}")
    found: Iterator[ParsedBlock] = module.read_format_records(source, path, schema, path_values)
    return found


def append_technical_columns(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    rescued: pa.Array,
    problem: pa.Array | None = None,
    record: pa.Array | None = None,
) -> pa.Table:
    """The rows of a `ParsedBlock`: the columns, and after them the three of each format. problem, record: None where there is none."""
    none = pa.nulls(len(rescued), pa.string())
    ends = [rescued, none if problem is None else problem, none if record is None else record]
    fields = [*schema, *(pa.field(name, pa.string()) for name in (RESCUED, PROBLEM, RECORD))]
    return pa.Table.from_arrays([*columns, *ends], schema=pa.schema(fields))
