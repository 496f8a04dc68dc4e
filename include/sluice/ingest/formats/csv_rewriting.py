"""The text of a CSV file without some of its rows, or with some of their cells emptied; the rest stays as it came."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from sluice.declare.ingest.file_formats import CsvDialect
from sluice.declare.ingest.source import Source
from sluice.declare.sql import schema
from sluice.ingest.formats import csv_rows
from sluice.ingest.values.types import column_names


def filter_csv_rows(source: Source, text: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]]) -> Iterator[str]:
    """What stays of the text."""
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
            yield _empty_csv_fields(dialect, cells, names, emptied[number]) + text[at + len(line) : end]
        elif not (is_record and number in gone):
            yield text[at:end]
        number += is_record
        at = end


def _empty_csv_fields(dialect: CsvDialect, cells: Sequence[str | None], header: Sequence[str], fields: Collection[str]) -> str:
    """A row of CSV with nothing in these columns, without a line end. header: the names of its columns."""
    names = {name.lower() for name in fields}
    kept = [None if name.lower() in names else cell for name, cell in zip(header, cells, strict=True)]
    return csv_rows.format_csv_row(dialect, kept)


def _csv_field_names(source: Source, first: Sequence[str | None]) -> list[str]:
    """What the fields of a CSV file are called: by its first row, else by the schema or their places."""
    if source.header:
        return column_names([name or "" for name in first])
    declared = schema.split_schema_declaration(source.ddl, f"Source '{source.name}'").columns if source.ddl else ()
    return [*declared, *(f"_c{place}" for place in range(len(declared), len(first)))][: len(first)]
