"""Keeps personal data out of places that no erasure reaches. Declarations are checked before anything is written.

A declared table refuses personal columns in its file layout, and statistics leave them out by construction. What remains is the
misspelt name: a personal column that does not exist protects nothing, while the column that was meant goes into statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sluice.declare.cdc.change_log import OWN
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.tables import Table
from sluice.declare.erasure.identifiers import DeclarationsByName
from sluice.declare.ingest.source import Source
from sluice.declare.sql import schema
from sluice.errors import nearest_name_hint


def find_personal_column_mistakes(declared: DeclarationsByName) -> list[str]:
    """The mistakes in all declarations whose columns are declared, as sentences."""
    found: list[str] = []
    for item in declared.values():
        if isinstance(item, Source) and item.ddl:
            found += _find_unknown_source_columns(
                item, schema.split_schema_declaration(item.ddl, f"Source '{item.name}'").columns
            )
        elif isinstance(item, Dataset) and item.schema:
            found += find_unknown_personal_columns(
                item, schema.split_schema_declaration(item.schema, f"Table '{item.name}'").columns
            )
    return found


def find_unknown_personal_columns(dataset: Dataset[Any], columns: Iterable[str]) -> list[str]:
    """The personal columns that a table itself declares but does not have. Those it inherits by name need not exist."""
    if dataset.serves or dataset.of_some:
        return []  # A feed of an `auto_cdc` need not have all of them: see `find_unknown_target_columns`.
    return list(_describe_unknown_columns(dataset.name, dataset.own_personal or (), list(columns)))


def find_unknown_target_columns(logs: Sequence[Table[Any]], feeds: Mapping[str, Iterable[str]]) -> list[str]:
    """The personal columns of an `auto_cdc` target that none of its feeds has.

    logs: of one target. feeds: by log, the columns of its feed if they are declared; else the column may come with a later delivery.
    """
    if not all(log.name in feeds for log in logs):
        return []
    names = list(dict.fromkeys(name for log in logs for name in feeds[log.name]))
    wanted = dict.fromkeys(name for log in logs for name in log.own_personal or () if name not in OWN)
    return list(_describe_unknown_columns(logs[0].serves or "", wanted, names))


def _describe_unknown_columns(table: str, personal: Iterable[str], names: list[str]) -> Iterator[str]:
    for name in _missing_columns(personal, names):
        yield (
            f"Table '{table}': personal names '{name}', which is not one of its columns: the column that is meant would get into statistics."
            f"{nearest_name_hint(name, names)}"
        )


def _find_unknown_source_columns(source: Source, columns: tuple[str, ...]) -> Iterator[str]:
    for of in ("subject", "personal"):
        said = getattr(source, of) or ()
        for name in _missing_columns((said,) if isinstance(said, str) else said, columns):
            yield (
                f"source '{source.name}': {of} names '{name}', no column of its schema.{nearest_name_hint(name, columns)} "
                "Nothing personal may come from the paths of files either: their names stay in the ledger."
            )


def _missing_columns(wanted: Iterable[str], columns: Iterable[str]) -> list[str]:
    there = {name.lower() for name in columns}
    return [name for name in wanted if name.lower().partition(".")[0] not in there and name.lower() not in there]
