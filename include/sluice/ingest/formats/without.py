"""Writing a delivered file again without some of its records: as it was compressed and encoded, the others as they came.

Records are numbered from 0 as `formats.read` gives them. Memory: JSON lines and text go by blocks; CSV, JSON documents and Parquet files
are held whole.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from sluice.declare.ingest.source import Source
from sluice.declare.sql import schema
from sluice.ingest.files import opening
from sluice.ingest.formats import csv_rows
from sluice.ingest.formats.emptied import NOTHING, empty_columns, empty_csv_fields, empty_json_fields
from sluice.ingest.formats.json_documents import Document
from sluice.ingest.values.columns import column_names

_BLANKS = " \t\r\n\ufeff"


def write(
    source: Source, path: Path, gone: Collection[int], target: Path, emptied: Mapping[int, Collection[str]] = NOTHING
) -> None:
    """Write the file to `target` without the records of these numbers. A binary file, which is one record, becomes an empty one.

    emptied: by number of a record that stays, the fields that become empty in it: of JSON, CSV and Parquet.
    Raises Unreadable and OSError.
    """
    wanted = frozenset(gone)
    with ExitStack() as stack:
        file = stack.enter_context(target.open("xb"))
        packed = stack.enter_context(_packed(file, path.suffix.lower()))
        if source.format == "parquet":
            _parquet(source, path, wanted, packed, emptied)
        elif source.format != "binary":
            encoder = codecs.getincrementalencoder(source.encoding)()
            for text in _texts(source, path, wanted, emptied):
                packed.write(encoder.encode(text))
            packed.write(encoder.encode("", final=True))


def _packed(file: IO[bytes], suffix: str) -> Any:
    """What is written to it is compressed as files of this suffix are."""
    if suffix == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    if suffix == ".bz2":
        return bz2.BZ2File(file, "wb")
    if suffix == ".zst":
        return pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
    return nullcontext(file)


def _texts(source: Source, path: Path, gone: frozenset[int], emptied: Mapping[int, Collection[str]]) -> Iterator[str]:
    """What stays of a file of text."""
    if source.format == "csv":
        return _csv(source, b"".join(opening.pieces(source, path)).decode(), gone, emptied)
    if source.format == "json" and source.multi_line:
        return _documents(opening.pieces(source, path), gone, emptied)
    return _lines(opening.blocks(source, path), gone, source.format == "text", emptied)


def _lines(
    blocks: Iterable[bytes], gone: frozenset[int], blank: bool, emptied: Mapping[int, Collection[str]] = NOTHING
) -> Iterator[str]:
    """blank: whether a line of blanks is a record, too."""
    number = 0
    for block in blocks:
        kept = []
        for line in io.StringIO(block.decode(), newline="\n"):
            is_record = blank or bool(line.strip(_BLANKS))
            if not (is_record and number in gone):
                kept.append(empty_json_fields(line, emptied[number]) if is_record and number in emptied else line)
            number += is_record
        yield "".join(kept)


def _csv(source: Source, text: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]] = NOTHING) -> Iterator[str]:
    first, end = csv_rows.first(source, text, True)
    width, at = len(first or ()), end if source.header else 0
    yield text[:at]
    number = 0
    while at < len(text):
        cells, after = csv_rows.row(source, text, at, True)
        end = len(text) if after is None else after
        line = text[at:end].rstrip("\r\n")
        is_record = bool(line) and ((cells is not None and len(cells) == width) or bool(line.strip()))
        if is_record and number in emptied and number not in gone and cells is not None:
            names = _names_of_fields(source, first or cells)
            yield empty_csv_fields(cells, names, emptied[number], source.delimiter, source.quote, text[at + len(line) : end])
        elif not (is_record and number in gone):
            yield text[at:end]
        number += is_record
        at = end


def _names_of_fields(source: Source, first: Sequence[str | None]) -> list[str]:
    """What the fields of a CSV file are called: by its first row, else by the schema or their places."""
    if source.header:
        return column_names([name or "" for name in first])
    declared = schema.parsed(source.ddl, f"Source '{source.name}'").columns if source.ddl else ()
    return [*declared, *(f"_c{place}" for place in range(len(declared), len(first)))][: len(first)]


def _documents(pieces: Iterable[bytes], gone: frozenset[int], emptied: Mapping[int, Collection[str]] = NOTHING) -> Iterator[str]:
    """One record a line, whatever arrays they stood in; a file that was cut off stays so."""
    document = Document()
    found = [record for piece in pieces for record in document.records(piece)]
    last, cut_off = document.end()
    found += last
    if cut_off == "" and len(found) not in gone:
        yield "["
    for number, record in enumerate(found):
        if number not in gone:
            text = record.decode()
            yield (empty_json_fields(text, emptied[number]) if number in emptied else text) + "\n"
    if cut_off and len(found) not in gone:
        yield cut_off


def _parquet(
    source: Source, path: Path, gone: frozenset[int], target: IO[bytes], emptied: Mapping[int, Collection[str]] = NOTHING
) -> None:
    whole = io.BytesIO(b"".join(opening.chunks(source, path)))
    with parquet.ParquetFile(whole) as file:
        groups = range(file.num_row_groups)
        packing = file.metadata.row_group(0).column(0).compression if len(groups) else "SNAPPY"
        codec = "NONE" if packing == "UNCOMPRESSED" else packing
        with parquet.ParquetWriter(pa.PythonFile(target, mode="w"), file.schema_arrow, compression=codec) as writer:
            start = 0
            for group in groups:
                rows = empty_columns(file.read_row_group(group), start, emptied)
                stays = pa.array([number not in gone for number in range(start, start + rows.num_rows)], pa.bool_())
                start += rows.num_rows
                writer.write_table(_used_only(rows.filter(pc.fill_null(stays, True))))


def _used_only(rows: pa.Table) -> pa.Table:
    """The rows, and of dictionaries only what some row has: whose rows went are in them, too, and would be written with them."""
    columns = [
        pa.chunked_array([_with_what_is_used(part) for part in column.chunks], column.type)
        if _has_dictionary(column.type)
        else column
        for column in rows.columns
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _with_what_is_used(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        # In the order that they were in, which may mean something.
        used = pc.unique(array.indices.drop_null()).sort()
        entries = (
            _with_what_is_used(array.dictionary.take(used)) if _has_dictionary(kind.value_type) else array.dictionary.take(used)
        )
        return pa.DictionaryArray.from_arrays(
            pc.index_in(array.indices, used).cast(kind.index_type), entries, ordered=kind.ordered
        )
    if not _has_dictionary(kind):
        return array
    if pa.types.is_struct(kind):
        # With the offset of the rows, and NULL where a struct around it is.
        fields = [_with_what_is_used(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    # Lists and maps: what they hold as plain values, which the writer makes a dictionary of its own of.
    return array.cast(_plain(kind)).cast(kind)


def _has_dictionary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind)) or any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(_plain(kind.key_type)), kind.item_field.with_type(_plain(kind.item_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return made(kind.value_field.with_type(_plain(kind.value_type)))
    return kind
