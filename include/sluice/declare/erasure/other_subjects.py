"""Columns that may hold another person than the one whose record it is: what would break if such a cell became NULL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sluice.declare.datasets.tables import Dataset, Table
from sluice.declare.ingest.source import Source
from sluice.declare.sql import schema

Declared = Mapping[str, Source | Dataset[Any]]
_FORMATS = ("json", "csv", "parquet")


def mistakes(declared: Declared) -> Iterator[str]:
    """As sentences."""
    for source in (one for one in declared.values() if isinstance(one, Source)):
        said = [("also_subjects", column) for column, _ in source.also_subjects] + [
            ("free_text", one) for one in source.free_text
        ]
        for field, column in said:
            owner = f"source '{source.name}': {field} names '{column}'"
            yield from (f"{owner}, {why}." for why in _of_source(source, column))
            for table in declared.values():
                if isinstance(table, Table) and table.reads[0] == source.table:
                    yield from (
                        f"{owner}, {why} of table '{table.name}': the cell of an erased person is NULL."
                        for why in _of_table(table, column)
                    )


def _of_source(source: Source, column: str) -> Iterator[str]:
    if source.subject is None:
        yield "and no column says whose the record is (subject=)"
    elif column == source.subject:
        yield "which is its subject: the record of whoever is erased goes as a whole"
    if source.format not in _FORMATS:
        yield f"and its files are no records of fields: that is for formats {', '.join(_FORMATS)}"
    if "." in column:
        yield "a field within a column. Let whoever delivers give it a column of its own"
    known = schema.parsed(source.ddl, f"Source '{source.name}'") if source.ddl else None
    if known is not None and column.lower() not in {name.lower() for name in known.columns}:
        yield "no column of its schema"
    if known is not None and column in known.not_null:
        yield "which is NOT NULL: the cell of an erased person is NULL"


def _of_table(table: Table[Any], column: str) -> Iterator[str]:
    if column in table.keys:
        yield "a key"
    if column == table.sequence_by:
        yield "the sequence_by"
    if column == table.subject:
        yield "the subject"
    if table.schema and column in schema.parsed(table.schema, f"Table '{table.name}'").not_null:
        yield "a NOT NULL column"
