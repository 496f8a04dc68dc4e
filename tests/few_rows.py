"""Puts rows into the tables that stand for inputs, through delta-rs as small writes go: Spark takes a second for each.

They are committed as somebody else's would be, without a note of Sluice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import QueryBuilder
from pyspark.sql.pandas.types import to_arrow_schema

from sluice.flows.bronze import append
from sluice.ingest import delivery_tables
from sluice.lake import small_writes
from sluice.lake.table_creation import parse_ddl_schema
from sluice.open_tables import open_delta_table
from sluice.record_states import INGESTED

if TYPE_CHECKING:
    from sluice.declare import Source
    from sluice.lake.workspace import Workspace

Row = tuple[Any, ...]


def append_rows(path: str, ddl: str, rows: Iterable[Row]) -> None:
    """Append these rows to the table, in one file."""
    small_writes.append_few_rows(path, _make_arrow_table(ddl, rows), None)


def append_delivery(workspace: Workspace, source: Source, delivery: int, rows: Iterable[Row], file: str | None = None) -> None:
    """Put a delivery into bronze as a run leaves it, its outcome included, without its file. rows: of the columns that the source declares."""
    append.create_bronze_tables(workspace, source)
    file = file or f"{delivery}.{source.format}"
    numbered = [(*row, delivery, file, number) for number, row in enumerate(rows)]
    append_rows(workspace.path(source.name), f"{source.ddl}, _delivery BIGINT, _file STRING, _row BIGINT", numbered)
    counts = {"rows": len(numbered), "read": len(numbered), "rescued": 0, "quarantined": 0, "suppressed": 0, "discarded": 0}
    outcome = {"delivery": delivery, "source": source.name, "file": file, "state": INGESTED, **counts, "run": workspace.run}
    outcome |= dict.fromkeys(("modified_at", delivery_tables.RECORDED), datetime.now(UTC))
    delivery_tables.append_delivery_ledger_rows(workspace.outcomes, [outcome], delivery_tables.OUTCOMES, workspace.run)


def merge_rows(path: str, ddl: str, keys: Sequence[str], put: Iterable[Row], gone: Iterable[Row] = ()) -> None:
    """Insert the rows whose keys are new, update those whose keys are there, and delete those that are gone, in one commit."""
    chosen = ", ".join(f'"{key}"' for key in keys)
    held = pa.table(QueryBuilder().register("t", open_delta_table(path)).execute(f"SELECT {chosen} FROM t"))
    there = set(zip(*(column.to_pylist() for column in held.columns), strict=True))
    columns = [field.name for field in parse_ddl_schema(ddl)]
    put, gone = list(put), list(gone)
    known = [tuple(row[columns.index(key)] for key in keys) in there for row in put]
    operations = [small_writes.UPDATE if one else small_writes.INSERT for one in known] + [small_writes.DELETE] * len(gone)
    rows = _make_arrow_table(ddl, (*put, *gone)).append_column(small_writes.OPERATION, pa.array(operations))
    small_writes.merge_few_rows(path, rows, keys, {}, None)


def _make_arrow_table(ddl: str, rows: Iterable[Row]) -> pa.Table:
    schema = pa.schema([field.with_nullable(True) for field in to_arrow_schema(parse_ddl_schema(ddl), timezone="UTC")])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
