"""A Delta table opened once: all that is read of it is of one snapshot, by one idiom. Without a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.delta_log import open_checked_table


@dataclass(frozen=True)
class TableSnapshot:
    """An open table. What is committed after it was opened is not in it: whoever writes, opens it anew."""

    table: DeltaTable

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Its columns. One of an older lake may lack some."""
        return tuple(field.name for field in self.table.schema().fields)

    def query_rows(self, sql: str) -> pa.Table:
        """What a query finds, in which the table is called `t`."""
        # Not to_pyarrow_table: its reader threads abort the process at exit (deltalake 1.6.6 with pyarrow 26).
        return pa.table(QueryBuilder().register("t", self.table).execute(sql))

    def read_columns(self, schema: pa.Schema) -> pa.Table:
        """The columns of the schema, in its types. One that the table has not is all NULL."""
        wanted = ", ".join(f'"{name}"' if name in self.column_names else f'NULL AS "{name}"' for name in schema.names)
        return self.query_rows(f"SELECT {wanted} FROM t").cast(schema)

    def read_rows(self) -> list[dict[str, Any]]:
        """All rows, with all columns that the table has."""
        found: list[dict[str, Any]] = self.query_rows("SELECT * FROM t").to_pylist()
        return found


def open_table_snapshot(path: str, version: int | None = None) -> TableSnapshot:
    """A table as it is now, or was at a version. Raises DamagedLog, and TableNotFoundError where there is none."""
    return TableSnapshot(open_checked_table(path, version))


def find_table_snapshot(path: str) -> TableSnapshot | None:
    """A table as it is now; None where there is none. Raises DamagedLog."""
    return open_table_snapshot(path) if DeltaTable.is_deltatable(path) else None


def read_snapshot_rows(path: str) -> list[dict[str, Any]]:
    """All rows of a table as it is now; none where there is no table. Raises DamagedLog."""
    found = find_table_snapshot(path)
    return found.read_rows() if found else []
