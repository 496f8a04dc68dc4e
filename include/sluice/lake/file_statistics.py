"""Reads from a table's log which files it has, how large they are, and which values they can hold. Without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from sluice.lake.arrow_to_python import list_known_values, list_values_or_texts
from sluice.lake.log import may_have_deletion_vectors
from sluice.open_tables import open_checked_table

_Ends = tuple[Any, Any]


def find_values_in_file_ranges(path: str, column: str, values: Iterable[int]) -> set[int]:
    """Returns the values that may be in the table: those that lie in the range of a file, by its statistics."""
    actions = open_checked_table(path).get_add_actions(flatten=True)
    ranges = _list_ends(actions, column) if len(actions) else []
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
        inside = [so and _overlaps_any_range(ends, ranges) for so, ends in zip(inside, _list_ends(actions, column), strict=True)]
    met = [count for count, so in zip(counts, inside, strict=True) if so]
    return None if None in met else sum(met)


def _list_ends(actions: Any, column: str) -> list[_Ends]:
    """Returns by file the least and the greatest value that it can hold of a column; None where the log does not say.

    A partition's value is both ends. Of the instants in the statistics, the log has only whole milliseconds.
    """
    names = actions.schema.names
    if (partition := f"partition.{column}") in names:
        return [(value, value) for value in list_known_values(pa.chunked_array(actions[partition]))]
    if not {f"min.{column}", f"max.{column}"} <= {*names}:
        return [(None, None)] * len(actions)
    low, high = (list_known_values(pa.chunked_array(actions[f"{end}.{column}"])) for end in ("min", "max"))
    return [(a, _end_of_millisecond(b) if isinstance(b, datetime) else b) for a, b in zip(low, high, strict=True)]


def _end_of_millisecond(at: datetime) -> datetime:
    """The latest instant that the log may mean: it has instants in milliseconds, truncated."""
    last = datetime.max.replace(tzinfo=at.tzinfo)
    return at + timedelta(milliseconds=1) if last - at > timedelta(milliseconds=1) else last


def _overlaps_any_range(ends: _Ends, ranges: Sequence[tuple[Any, Any]]) -> bool:
    """Whether a file's values may be in one of the ranges."""
    low, high = ends
    try:
        return low is None or high is None or any(first <= high and low <= last for first, last in ranges)
    except TypeError:
        return True


def read_highest_value(path: str, column: str) -> tuple[bool, Any]:
    """Returns whether the log knows a column's highest value, and that value: None if the table has none.

    An instant is cut to the millisecond, unless it is a partition's.
    """
    actions = open_checked_table(path).get_add_actions(flatten=True)
    names = actions.schema.names
    if not len(actions):
        return True, None
    if may_have_deletion_vectors(open_checked_table(path)):
        return False, None
    of_files = next((name for name in (f"partition.{column}", f"max.{column}") if name in names), None)
    if of_files is None or "num_records" not in names:
        return False, None
    highest, rows = (list_known_values(pa.chunked_array(actions[name])) for name in (of_files, "num_records"))
    if of_files.startswith("max."):
        nulls = pa.chunked_array(actions[f"null_count.{column}"]).to_pylist()
    else:  # a value that Python cannot hold is no NULL
        there = pa.chunked_array(actions[of_files]).is_valid().to_pylist()
        nulls = [0 if is_there else count for is_there, count in zip(there, rows, strict=True)]
    told = all(
        value is not None or (rows_ is not None and rows_ == null)
        for value, rows_, null in zip(highest, rows, nulls, strict=True)
    )
    return told, max((value for value in highest if value is not None), default=None) if told else None


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
    for size, *values in zip(
        *(list_values_or_texts(pa.chunked_array(actions[name])) for name in ("size_bytes", *columns)), strict=True
    ):
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
    by = [str(name) for name in table.metadata().partition_columns]
    wanted = ["path", "size_bytes", "num_records", *(f"partition.{name}" for name in by)]
    # A partition's value is its name, so it has a text where Python has no value; an end is unknown there.
    listed = {name: list_values_or_texts(pa.chunked_array(actions[name])) for name in wanted if name in names}
    ends_of = {column: _list_ends(actions, column) for column in columns} if names else {}
    found = []
    for position, file in enumerate(listed.get("path", [])):
        partition = {name: listed[f"partition.{name}"][position] for name in by}
        ends = {name: files[position] for name, files in ends_of.items() if None not in files[position]}
        rows = listed["num_records"][position] if "num_records" in listed else None
        found.append(DataFile(file, partition, int(listed["size_bytes"][position]), rows, ends))
    return found


def list_file_values(table: DeltaTable, column: str) -> list[Any]:
    """Returns what the log says about each of a table's files, for one column of its actions."""
    found = table.get_add_actions()
    return pa.chunked_array(found[column]).to_pylist() if len(found) and column in found.schema.names else []
