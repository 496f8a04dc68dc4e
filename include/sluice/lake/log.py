"""Reads what a table's log says, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError, TableNotFoundError

from sluice.delta_log import LOG, list_log_versions
from sluice.delta_log import is_delta_table as is_delta_table  # also imported from here
from sluice.locations import Location, locate
from sluice.open_tables import open_checked_table
from sluice.table_properties import RETENTION

_READER_VERSIONS = frozenset({1, 3})
_READER_FEATURES = frozenset({"timestampNtz"})
_COUNTS = ("num_records", "size_bytes")
DELTA_RS, SPARK, SLUICE = "delta-rs", "Spark", "Sluice"
"""Who makes commits. Sluice itself makes those of a VACUUM by inventory, which add no file."""
_NAMES_OF_SPARK = {"num_added_rows": "num_output_rows"}
"""Metrics for which delta-rs has another name, not only another spelling."""


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


def find_values_in_file_ranges(path: str, column: str, values: Iterable[int]) -> set[int]:
    """Returns the values that may be in the table: those that lie in the range of a file, by its statistics."""
    actions = open_checked_table(path).get_add_actions(flatten=True)
    if not len(actions) or f"min.{column}" not in actions.schema.names:
        return set(values) if len(actions) else set()
    low, high = (pa.chunked_array(actions[f"{end}.{column}"]).to_pylist() for end in ("min", "max"))
    ranges = list(zip(low, high, strict=True))
    return {value for value in values if any(a is None or b is None or a <= value <= b for a, b in ranges)}


def count_rows_in_matching_files(path: str, limits: Mapping[str, Sequence[tuple[Any, Any]]]) -> int | None:
    """Returns how many rows are in files that can hold a row with each column in one of its ranges, both ends included.

    Goes by the files' statistics. None if a file's rows are not counted. A column without comparable statistics excludes no file.
    """
    actions = open_checked_table(path).get_add_actions(flatten=True)
    if not len(actions):
        return 0
    names = actions.schema.names
    if "num_records" not in names:
        return None
    counts = pa.chunked_array(actions["num_records"]).to_pylist()
    inside = [True] * len(counts)
    for column, ranges in limits.items():
        ends = [f"{end}.{column}" for end in ("min", "max")]
        if all(end in names for end in ends):
            low, high = (pa.chunked_array(actions[end]).to_pylist() for end in ends)
            inside = [so and _overlaps_any_range(a, b, ranges) for so, a, b in zip(inside, low, high, strict=True)]
    met = [count for count, so in zip(counts, inside, strict=True) if so]
    return None if None in met else sum(met)


def _overlaps_any_range(low: Any, high: Any, ranges: Sequence[tuple[Any, Any]]) -> bool:
    """Whether a file's values may be in one of the ranges."""
    try:
        return low is None or high is None or any(first <= high and low <= last for first, last in ranges)
    except TypeError:
        return True


def read_highest_value(path: str, column: str) -> tuple[bool, Any]:
    """Returns whether the log knows a column's highest value, and that value: None if the table has none."""
    actions = open_checked_table(path).get_add_actions(flatten=True)
    names = actions.schema.names
    if not len(actions):
        return True, None
    if may_have_deletion_vectors(open_checked_table(path)):
        return False, None
    of_files = next((name for name in (f"partition.{column}", f"max.{column}") if name in names), None)
    if of_files is None or "num_records" not in names:
        return False, None
    highest, rows = (pa.chunked_array(actions[name]).to_pylist() for name in (of_files, "num_records"))
    nulls = pa.chunked_array(actions[f"null_count.{column}"]).to_pylist() if of_files.startswith("max.") else rows
    told = all(
        value is not None or (rows_ is not None and rows_ == null)
        for value, rows_, null in zip(highest, rows, nulls, strict=True)
    )
    return told, max((value for value in highest if value is not None), default=None) if told else None


def table_change_mark(path: str) -> str | None:
    """Returns the table's identity and version, which change with every commit or new creation. None if there is no table."""
    try:
        table = open_checked_table(path)
    except TableNotFoundError:
        return None
    return f"{table.metadata().id}:{table.version()}"


def read_commit_history(path: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Returns the commits, newest first: version, at (UTC), writer, operation, parameters, metrics, and Sluice's note if it made the commit.

    writer: DELTA_RS, SPARK or SLUICE. Metrics have the names that Spark gives them, whoever made the commit.
    """
    table = open_checked_table(path)
    found = []
    for entry in _read_commit_infos(path, table, limit):
        note = entry.get("userMetadata")
        found.append({
            "version": entry.get("version"),
            "at": datetime.fromtimestamp(entry["timestamp"] / 1000, UTC) if "timestamp" in entry else None,
            "writer": next((one for one in (DELTA_RS, SLUICE) if str(entry.get("engineInfo")).startswith(one)), SPARK),
            "operation": entry.get("operation"),
            "parameters": entry.get("operationParameters", {}),
            "metrics": {_name_as_spark_does(name): value for name, value in entry.get("operationMetrics", {}).items()},
            "note": _parse_commit_note(note),
        })
    return found


def _read_commit_infos(path: str, table: DeltaTable, limit: int | None) -> list[dict[str, Any]]:
    """Returns what each commit says about itself, newest first, with its version.

    delta-rs refuses the whole history if a commit has a number that it does not expect: a shallow clone by Spark has -1 as the version read.
    """
    try:
        return table.history(limit)
    except DeltaProtocolError:
        commits, _ = list_log_versions(locate(path) / LOG)
        newest = sorted((version for version in commits if version <= table.version()), reverse=True)[:limit]
        return [{**_read_commit_info(commits[version]), "version": version} for version in newest]


def _read_commit_info(commit: Location) -> dict[str, Any]:
    actions = (json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines() if line.strip())
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


@dataclass(frozen=True)
class NewVersions:
    """What the commits of a table after a version did. writers: such as "delta-rs, Spark"; None if there is no such commit.

    files_added, files_removed, rows_copied: by the commits' metrics; a commit without metrics counts as zero. rows_copied: rows that a MERGE
    wrote again unchanged, because they lay in the same files as those that it changed.
    """

    writers: str | None = None
    files_added: int = 0
    files_removed: int = 0
    rows_copied: int = 0


_FILES_ADDED = ("numTargetFilesAdded", "numAddedFiles", "numFilesAdded", "numFiles")
_FILES_REMOVED = ("numTargetFilesRemoved", "numRemovedFiles", "numFilesRemoved")
_ROWS_COPIED = ("numTargetRowsCopied",)


def summarize_new_versions(path: str, since: int | None) -> NewVersions:
    """Returns what the commits of a table after a version did. since: None means before the first."""
    latest = latest_table_version(path)
    new = 0 if latest is None else latest - (-1 if since is None else since)
    commits = read_commit_history(path, new) if new > 0 else []
    writers = {str(one["writer"]) for one in commits}
    return NewVersions(
        ", ".join(sorted(writers, key=str.lower)) or None,
        *(sum(_first_metric(one["metrics"], names) for one in commits) for names in (_FILES_ADDED, _FILES_REMOVED, _ROWS_COPIED)),
    )


def _first_metric(metrics: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((int(metrics[name]) for name in names if str(metrics.get(name, "")).isdigit()), 0)


def _name_as_spark_does(metric: str) -> str:
    """Returns Spark's name of a metric, such as numTargetRowsInserted for delta-rs' num_target_rows_inserted."""
    first, *others = _NAMES_OF_SPARK.get(metric, metric).split("_")
    return first + "".join(other.title() for other in others)


def _parse_commit_note(text: Any) -> dict[str, Any]:
    try:
        loaded = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return loaded if isinstance(loaded, dict) else {}


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


def read_partition_columns(path: str) -> list[str]:
    """Returns the columns that a table is partitioned by."""
    return [str(name) for name in open_checked_table(path).metadata().partition_columns]


@dataclass(frozen=True)
class PartitionFiles:
    """A partition's values by column (empty for a table without partitions), and the sizes of its files in bytes."""

    values: Mapping[str, Any]
    file_sizes: Sequence[int]


def list_partition_file_sizes(path: str) -> list[PartitionFiles]:
    """Returns the partitions of a table as it is now, by their values: one for a table without partitions, none if it has no file."""
    actions = open_checked_table(path).get_add_actions(flatten=True)
    columns = [name for name in actions.schema.names if name.startswith("partition.")]
    sizes: dict[tuple[Any, ...], list[int]] = {}
    for size, *values in zip(*(pa.chunked_array(actions[name]).to_pylist() for name in ("size_bytes", *columns)), strict=True):
        sizes.setdefault(tuple(values), []).append(int(size))
    names = [name.removeprefix("partition.") for name in columns]
    return [PartitionFiles(dict(zip(names, values, strict=True)), sizes[values]) for values in sorted(sizes, key=repr)]


@dataclass(frozen=True)
class DataFile:
    """A file of a table: its path as in the log, the values of its partition, its size in bytes, its rows (None: not counted).

    ends: by column, the least and the greatest value that it can hold; a column that the log does not know is missing. partition: by column;
    the file's own value is both ends.
    """

    path: str
    partition: Mapping[str, Any]
    size: int
    rows: int | None
    ends: Mapping[str, tuple[Any, Any]]


def list_data_files(path: str, columns: Sequence[str] = ()) -> list[DataFile]:
    """Returns the files of a table as it is now. columns: those whose ends are wanted. Raises DamagedLog."""
    table = open_checked_table(path)
    actions = table.get_add_actions(flatten=True)
    names = actions.schema.names if len(actions) else []
    listed = {name: pa.chunked_array(actions[name]).to_pylist() for name in names if _is_wanted(name, columns)}
    by = [str(name) for name in table.metadata().partition_columns]
    found = []
    for place, file in enumerate(listed.get("path", [])):
        partition = {name: listed[f"partition.{name}"][place] for name in by}
        ends = {name: (value, value) for name, value in partition.items() if name in columns and value is not None}
        for column in columns:
            low, high = (listed[f"{end}.{column}"][place] if f"{end}.{column}" in listed else None for end in ("min", "max"))
            if low is not None and high is not None:
                # The log has instants in milliseconds, truncated.
                ends[column] = (low, high + timedelta(milliseconds=1) if isinstance(high, datetime) else high)
        rows = listed["num_records"][place] if "num_records" in listed else None
        found.append(DataFile(file, partition, int(listed["size_bytes"][place]), rows, ends))
    return found


def _is_wanted(name: str, columns: Sequence[str]) -> bool:
    kind, _, column = name.partition(".")
    return name in ("path", "size_bytes", "num_records") or kind == "partition" or (kind in ("min", "max") and column in columns)


def parse_interval_length(interval: str) -> timedelta:
    """Returns the length of an interval such as "7 days" or "interval 1 week"."""
    number, unit = interval.removeprefix("interval").split()[:2]
    return timedelta(**{f"{unit.rstrip('s')}s": float(number)})


def read_table_retention(path: str) -> timedelta:
    """Returns how long files that were removed from a table are kept."""
    return parse_interval_length(read_table_properties(path).get(RETENTION, "interval 7 days"))


def has_plain_reader_protocol(table: DeltaTable) -> bool:
    """Whether a reader that knows only files and columns by name reads a table correctly."""
    protocol = table.protocol()
    return protocol.min_reader_version in _READER_VERSIONS and set(protocol.reader_features or ()) <= _READER_FEATURES


def may_have_deletion_vectors(table: DeltaTable) -> bool:
    """Whether files of a table may hold rows that are only marked as deleted. A table keeps the feature when its property is off again."""
    return "deletionVectors" in (table.protocol().reader_features or ())


def list_file_values(table: DeltaTable, column: str) -> list[Any]:
    """Returns what the log says about each of a table's files, for one column of its actions."""
    found = table.get_add_actions()
    return pa.chunked_array(found[column]).to_pylist() if len(found) and column in found.schema.names else []
