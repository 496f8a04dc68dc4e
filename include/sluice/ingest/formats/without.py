"""Rewrites a delivered file without some of its records, or with some of their fields emptied.

The file stays compressed and encoded as it was, and the rest of its text stays as it came. Records are numbered from 0 as
`formats.read_file_records` gives them. JSON lines and text go by blocks; CSV, JSON documents and Parquet files are held in memory whole.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from sluice.declare.ingest.csv_dialect import CsvDialect
from sluice.declare.ingest.source import Source
from sluice.declare.sql import schema
from sluice.ingest.files import opening
from sluice.ingest.formats import csv_rows
from sluice.ingest.formats.json_documents import JsonDocumentSplitter
from sluice.ingest.values.columns import column_names

NOTHING: Mapping[int, Collection[str]] = MappingProxyType({})


"""Where no field of any record is to be emptied."""


_JSON_BLANKS = " \t\r\n"


_DECODER = json.JSONDecoder()


def empty_json_fields(record: str, fields: Collection[str]) -> str:
    """A JSON object with null in these fields, letter case apart; of a text that is none, the rest from where it cannot be read on goes."""
    names, found, done = {name.lower() for name in fields}, [], 0
    for name, start, end in _iterate_json_members(record):
        if name.lower() in names:
            found += [record[done:start], "null"]
            done = end
    return "".join([*found, record[done:]])


def empty_csv_fields(dialect: CsvDialect, cells: Sequence[str | None], header: Sequence[str], fields: Collection[str]) -> str:
    """A row of CSV with nothing in these columns, without a line end. header: the names of its columns."""
    names = {name.lower() for name in fields}
    kept = [None if name.lower() in names else cell for name, cell in zip(header, cells, strict=True)]
    return csv_rows.format_csv_row(dialect, kept)


def empty_columns(rows: pa.Table, start: int, emptied: Mapping[int, Collection[str]]) -> pa.Table:
    """Rows of a Parquet file, the first of which has the number `start`, with NULL in these columns."""
    for place, field in enumerate(rows.schema):
        lowered = field.name.lower()
        mask = [lowered in {name.lower() for name in emptied.get(number, ())} for number in range(start, start + rows.num_rows)]
        if any(mask):
            keep = pa.array([None if gone else place for place, gone in enumerate(mask)], pa.int64())
            rows = rows.set_column(place, field, rows.column(place).take(keep))
    return rows


def _iterate_json_members(record: str) -> Iterator[tuple[str, int, int]]:
    """The fields of an object: the name, and where its value begins and ends."""
    at = _skip_json_blanks(record, 0)
    if record[at : at + 1] != "{":
        return
    at = _skip_json_blanks(record, at + 1)
    while record[at : at + 1] == '"':
        name, at = _DECODER.raw_decode(record, at)
        start = _skip_json_blanks(record, _skip_json_blanks(record, at) + 1)
        _, end = _DECODER.raw_decode(record, start)
        yield str(name), start, end
        at = _skip_json_blanks(record, end)
        if record[at : at + 1] != ",":
            return
        at = _skip_json_blanks(record, at + 1)


def _skip_json_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _JSON_BLANKS:
        at += 1
    return at


_BLANKS = " \t\r\n\ufeff"


def write_without_records(
    source: Source, path: Path, gone: Collection[int], target: Path, emptied: Mapping[int, Collection[str]] = NOTHING
) -> None:
    """Write the file to `target` without the records of these numbers. A binary file, which is one record, becomes an empty one.

    emptied: by number of a record that stays, the fields that become empty in it: of JSON, CSV and Parquet.
    Raises Unreadable and OSError.
    """
    wanted = frozenset(gone)
    with ExitStack() as stack:
        file = stack.enter_context(target.open("xb"))
        packed = stack.enter_context(_open_compressed_output(file, path.suffix.lower()))
        if source.format == "parquet":
            _filter_parquet_rows(source, path, wanted, packed, emptied)
        elif source.format != "binary":
            encoder = codecs.getincrementalencoder(source.encoding)()
            for text in _iterate_remaining_text(source, path, wanted, emptied):
                packed.write(encoder.encode(text))
            packed.write(encoder.encode("", final=True))


def _open_compressed_output(file: IO[bytes], suffix: str) -> Any:
    """A file that compresses what is written to it as its suffix says."""
    if suffix == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    if suffix == ".bz2":
        return bz2.BZ2File(file, "wb")
    if suffix == ".zst":
        return pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
    return nullcontext(file)


def _iterate_remaining_text(
    source: Source, path: Path, gone: frozenset[int], emptied: Mapping[int, Collection[str]]
) -> Iterator[str]:
    """What stays of a file of text."""
    if source.format == "csv":
        return _filter_csv_rows(source, b"".join(opening.read_text_pieces(source, path)).decode(), gone, emptied)
    if source.format == "json" and source.multi_line:
        return _filter_json_documents(opening.read_text_pieces(source, path), gone, emptied)
    return _filter_line_records(opening.read_line_blocks(source, path), gone, source.format == "text", emptied)


def _filter_line_records(
    blocks: Iterable[bytes], gone: frozenset[int], blank: bool, emptied: Mapping[int, Collection[str]] = NOTHING
) -> Iterator[str]:
    """The lines that stay. blank: whether a blank line is a record too."""
    number = 0
    for block in blocks:
        kept = []
        for line in io.StringIO(block.decode(), newline="\n"):
            is_record = blank or bool(line.strip(_BLANKS))
            if not (is_record and number in gone):
                kept.append(empty_json_fields(line, emptied[number]) if is_record and number in emptied else line)
            number += is_record
        yield "".join(kept)


def _filter_csv_rows(
    source: Source, text: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]] = NOTHING
) -> Iterator[str]:
    dialect = source.dialect
    first, end = csv_rows.find_first_csv_row(dialect, text, True)
    width, at = len(first or ()), end if dialect.header else 0
    yield text[:at]
    number = 0
    while at < len(text):
        cells, after = csv_rows.parse_csv_row(dialect, text, at, True)
        end = len(text) if after is None else after
        line = text[at:end].rstrip("\r\n")
        is_record = csv_rows.is_csv_record(cells, line, width)
        if is_record and number in emptied and number not in gone and cells is not None:
            names = _csv_field_names(source, first or cells)
            yield empty_csv_fields(dialect, cells, names, emptied[number]) + text[at + len(line) : end]
        elif not (is_record and number in gone):
            yield text[at:end]
        number += is_record
        at = end


def _csv_field_names(source: Source, first: Sequence[str | None]) -> list[str]:
    """What the fields of a CSV file are called: by its first row, else by the schema or their places."""
    if source.header:
        return column_names([name or "" for name in first])
    declared = schema.split_schema_declaration(source.ddl, f"Source '{source.name}'").columns if source.ddl else ()
    return [*declared, *(f"_c{place}" for place in range(len(declared), len(first)))][: len(first)]


def _filter_json_documents(
    pieces: Iterable[bytes], gone: frozenset[int], emptied: Mapping[int, Collection[str]] = NOTHING
) -> Iterator[str]:
    """One record a line, whatever arrays they stood in; a file that was cut off stays so."""
    document = JsonDocumentSplitter()
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


def _filter_parquet_rows(
    source: Source, path: Path, gone: frozenset[int], target: IO[bytes], emptied: Mapping[int, Collection[str]] = NOTHING
) -> None:
    whole = io.BytesIO(b"".join(opening.read_file_chunks(source, path)))
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
                writer.write_table(_drop_unused_dictionary_values(rows.filter(pc.fill_null(stays, True))))


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
