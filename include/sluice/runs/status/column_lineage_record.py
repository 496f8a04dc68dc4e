"""The record of column lineage: a file of the pipeline, written by runs and read without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluice.column_origins import Origin, TableOrigins, table_origins_from_json, table_origins_to_json
from sluice.durable_files import PRIVATE, load_kept_json, write_json_durably
from sluice.errors import UsageError, nearest_name_hint
from sluice.locations import Location, locate
from sluice.own_records import COLUMN_LINEAGE
from sluice.pipeline_records import PipelineRecords

_REMEDY = "Remove the file: the next run that changes a table finds that table's columns again."


def read_column_lineage(records: PipelineRecords) -> dict[str, TableOrigins]:
    """The known lineage, by table; empty before the first run. Raises KeptFileDamaged."""
    path = _column_lineage_file(records)
    return load_kept_json(path, "where columns come from", _REMEDY, _build_record) if path.exists() else {}


def write_column_lineage(records: PipelineRecords, known: Mapping[str, TableOrigins]) -> None:
    """Replace the record. Call it under the pipeline's lease."""
    told = {name: table_origins_to_json(one) for name, one in sorted(known.items())}
    write_json_durably(_column_lineage_file(records), told, mode=PRIVATE)


def _column_lineage_file(records: PipelineRecords) -> Location:
    return locate(records.bookkeeping(COLUMN_LINEAGE.name))


def _build_record(said: Mapping[str, Any]) -> dict[str, TableOrigins]:
    return {name: table_origins_from_json(name, one) for name, one in said.items()}


@dataclass(frozen=True)
class ColumnUse:
    """A column that is made from another, and how; column: None if the other decides which rows the table has."""

    table: str
    column: str | None
    way: str


def list_column_uses(known: Mapping[str, TableOrigins], table: str, column: str) -> list[ColumnUse]:
    """All columns and tables that use a column directly."""
    found = [
        ColumnUse(one.table, made.name, origin.way)
        for one in known.values()
        for made in one.columns
        for origin in made.origins
        if (origin.table, origin.column) == (table, column)
    ]
    found += [
        ColumnUse(one.table, None, origin.way)
        for one in known.values()
        for origin in one.rows_by
        if (origin.table, origin.column) == (table, column)
    ]
    return found


def list_first_columns(known: Mapping[str, TableOrigins], table: str, column: str) -> list[Origin]:
    """The columns that a column comes from in the end, through all tables between."""
    found: dict[tuple[str, str], Origin] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(table, column)]
    while waiting:
        used = waiting.pop()
        if used in seen:
            continue
        seen.add(used)
        for origin in _find_origins(known, *used):
            if not _find_origins(known, origin.table, origin.column):
                found[origin.table, origin.column] = origin
            waiting.append((origin.table, origin.column))
    return sorted(found.values())


def _find_origins(known: Mapping[str, TableOrigins], table: str, column: str) -> tuple[Origin, ...]:
    one = known.get(table)
    return next((made.origins for made in one.columns if made.name == column), ()) if one else ()


def require_traced_table(known: Mapping[str, TableOrigins], pipeline: str, table: str) -> TableOrigins:
    """The known lineage of a table. Raises UsageError with the nearest name."""
    if not known:
        raise UsageError(f"Nothing is known of the columns of '{pipeline}' before its first run. Run: sluice run {pipeline}")
    if table not in known:
        raise UsageError(f"The lineage of '{pipeline}' has no table '{table}'.{nearest_name_hint(table, known)}")
    return known[table]


def require_traced_column(found: TableOrigins, pipeline: str, column: str) -> None:
    """Raises UsageError, with the nearest name, if a table has no such column."""
    names = [one.name for one in found.columns]
    if column not in names:
        raise UsageError(f"Table '{pipeline}.{found.table}' has no column '{column}'.{nearest_name_hint(column, names)}")
