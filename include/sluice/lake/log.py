"""Reads what a table's log says, without a JVM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from sluice.errors import SluiceError
from sluice.open_tables import open_checked_table
from sluice.table_properties import RETENTION

_READER_VERSIONS = frozenset({1, 3})
_READER_FEATURES = frozenset({"timestampNtz"})
_COUNTS = ("num_records", "size_bytes")


@dataclass(frozen=True)
class TableState:
    """A table's latest state. rows is None if a file has no statistics, or may have deleted rows in it."""

    version: int
    table_id: str
    files: int
    bytes: int
    rows: int | None


def latest_table_version(path: str) -> int | None:
    """Returns the latest version, or None if there is no table."""
    try:
        return open_checked_table(path).version()
    except TableNotFoundError:
        return None


def read_table_id(path: str) -> str:
    """Returns the identity that a table gets when it is created. A table that is created again has another."""
    return str(open_checked_table(path).metadata().id)


def last_committed_transaction(path: str, application: str) -> int:
    """Returns the last transaction version that an application committed, or -1 before its first."""
    found = open_checked_table(path).transaction_version(application)
    return -1 if found is None else found


def read_table_state(path: str) -> TableState | None:
    """Returns the latest state, or None if there is no table. Rows that are only marked as deleted would be counted, so none are then."""
    try:
        table = open_checked_table(path)
    except TableNotFoundError:
        return None
    actions = table.get_add_actions(flatten=True)
    names = actions.schema.names
    columns = {name: pa.chunked_array(actions[name]).to_pylist() for name in names if name in _COUNTS}
    rows, sizes = columns.get("num_records", []), columns.get("size_bytes", [])
    counted = [int(count) for count in rows if count is not None]
    return TableState(
        table.version(),
        str(table.metadata().id),
        len(sizes),
        sum(int(size) for size in sizes),
        sum(counted) if len(counted) == len(rows) and not may_have_deletion_vectors(table) else None,
    )


def table_change_mark(path: str) -> str | None:
    """Returns the table's identity and version, which change with every commit or new creation. None if there is no table."""
    try:
        table = open_checked_table(path)
    except TableNotFoundError:
        return None
    return f"{table.metadata().id}:{table.version()}"


def read_table_properties(path: str) -> dict[str, str]:
    """Returns a table's properties."""
    found = open_checked_table(path).metadata().configuration
    return {str(name): str(value) for name, value in found.items()}


def read_table_comment(path: str) -> str | None:
    """Returns a table's comment."""
    found = open_checked_table(path).metadata().description
    return None if found is None else str(found)


def read_column_names(path: str) -> list[str]:
    """Returns the names of a table's columns."""
    return [field.name for field in open_checked_table(path).schema().fields]


def read_column_types(path: str) -> dict[str, Any]:
    """Returns the types of a table's columns by name, as the log has them: a text, or an object for a type with others within."""
    return {field["name"]: field["type"] for field in json.loads(open_checked_table(path).schema().to_json())["fields"]}


def read_partition_columns(path: str) -> list[str]:
    """Returns the columns that a table is partitioned by."""
    return [str(name) for name in open_checked_table(path).metadata().partition_columns]


def parse_interval_length(interval: str) -> timedelta:
    """Returns the length of an interval such as "7 days" or "interval 1 week 12 hours". Raises SluiceError for anything else."""
    words = interval.lower().removeprefix("interval").split()
    try:
        pairs = zip(words[::2], words[1::2] or [""], strict=True)
        return sum((timedelta(**{f"{unit.rstrip('s')}s": float(number)}) for number, unit in pairs), timedelta())
    except (TypeError, ValueError):
        raise SluiceError(f"'{interval}' is no length of time: a table's property says it as 'interval 7 days'.") from None


def read_table_retention(path: str) -> timedelta:
    """Returns how long files that were removed from a table are kept."""
    return parse_interval_length(read_table_properties(path).get(RETENTION, "interval 7 days"))


def has_plain_reader_protocol(table: DeltaTable) -> bool:
    """Whether a reader that knows only files and columns by name reads a table correctly."""
    protocol = table.protocol()
    return protocol.min_reader_version in _READER_VERSIONS and set(protocol.reader_features or ()) <= _READER_FEATURES


def has_commit_times(table: DeltaTable) -> bool:
    """Whether each commit of a table must hold its time (in-commit timestamps). Spark fails on a log with a commit that lacks it."""
    return "inCommitTimestamp" in (table.protocol().writer_features or ())


def may_have_deletion_vectors(table: DeltaTable) -> bool:
    """Whether files of a table may hold rows that are only marked as deleted. A table keeps the feature when its property is off again."""
    return "deletionVectors" in (table.protocol().reader_features or ())
