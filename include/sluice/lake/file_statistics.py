"""Reads from a table's log which files it has, how large they are, which values they can hold, and how many of their rows are deleted. Without a JVM.

A reader opens rows that are only marked as deleted, and leaves them out. A rewrite writes the rows that stay. So it is worth it when more
than half of the rows are marked: what is written is then less than what is gone, however often that comes. Delta's OPTIMIZE takes a file
from 5% on, which costs 19 times as much, and Iceberg's from 30% on, more than twice. Which files of a partition are rewritten cannot be
chosen: Delta's OPTIMIZE (4.4) never takes one that is alone, and its REORG takes all with such rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sluice.lake import log
from sluice.lake.log import may_have_deletion_vectors
from sluice.lake.python_values import list_known_values, list_values_or_texts
from sluice.open_tables import open_checked_table
from sluice.printable import count_noun, format_size, match_number

REWRITE_ABOVE_SHARE = 0.5
"""The files of a partition with marked rows are rewritten if a larger share of their rows is marked."""


def find_values_in_file_ranges(path: str, column: str, values: Iterable[int]) -> set[int]:
    """Returns the values that may be in the table: those that lie in the range of a file, by its statistics."""
    actions = open_checked_table(path).get_add_actions(flatten=True)
    if not len(actions) or f"min.{column}" not in actions.schema.names:
        return set(values) if len(actions) else set()
    low, high = (list_known_values(pa.chunked_array(actions[f"{end}.{column}"])) for end in ("min", "max"))
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
        value = f"partition.{column}"
        ends = [value, value] if value in names else [f"{end}.{column}" for end in ("min", "max")]
        if all(end in names for end in ends):
            low, high = (list_known_values(pa.chunked_array(actions[end])) for end in ends)
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
    listed = {name: _list_file_facts(actions, name) for name in names if _is_wanted(name, columns)}
    by = [str(name) for name in table.metadata().partition_columns]
    known = {name: list_known_values(pa.chunked_array(actions[f"partition.{name}"])) for name in by if name in columns and names}
    found = []
    for place, file in enumerate(listed.get("path", [])):
        partition = {name: listed[f"partition.{name}"][place] for name in by}
        ends = {name: (values[place], values[place]) for name, values in known.items() if values[place] is not None}
        for column in columns:
            low, high = (listed[f"{end}.{column}"][place] if f"{end}.{column}" in listed else None for end in ("min", "max"))
            if low is not None and high is not None:
                ends[column] = (low, _end_of_millisecond(high) if isinstance(high, datetime) else high)
        rows = listed["num_records"][place] if "num_records" in listed else None
        found.append(DataFile(file, partition, int(listed["size_bytes"][place]), rows, ends))
    return found


def _end_of_millisecond(at: datetime) -> datetime:
    """The latest instant that the log may mean: it has instants in milliseconds, truncated."""
    last = datetime.max.replace(tzinfo=at.tzinfo)
    return at + timedelta(milliseconds=1) if last - at > timedelta(milliseconds=1) else last


def _list_file_facts(actions: Any, name: str) -> list[Any]:
    """Returns one column of the actions. A partition's value is its name, so it has a text where Python has no value; an end is unknown then."""
    column = pa.chunked_array(actions[name])
    return list_values_or_texts(column) if name.startswith("partition.") else list_known_values(column)


def _is_wanted(name: str, columns: Sequence[str]) -> bool:
    kind, _, column = name.partition(".")
    return name in ("path", "size_bytes", "num_records") or kind == "partition" or (kind in ("min", "max") and column in columns)


def list_file_values(table: DeltaTable, column: str) -> list[Any]:
    """Returns what the log says about each of a table's files, for one column of its actions."""
    found = table.get_add_actions()
    return pa.chunked_array(found[column]).to_pylist() if len(found) and column in found.schema.names else []


@dataclass(frozen=True)
class MarkedFile:
    """A file with rows that are only marked as deleted, and how many these are of its rows."""

    file: DataFile
    marked: int
    rows: int


def write_purge_statement(path: str, where: str = "") -> str:
    """Returns the statement by which Spark writes anew all files with marked rows. where: "" or " WHERE ..." on columns of partitions."""
    return f"REORG TABLE delta.`{path}`{where} APPLY (PURGE)"


def count_files_with_deleted_rows(path: str) -> int:
    """Returns how many files of the latest version have a deletion vector. Raises DamagedLog, and TableNotFoundError if there is no table."""
    return len(_count_deleted_rows(open_checked_table(path)))


def list_files_with_deleted_rows(path: str) -> list[MarkedFile]:
    """Returns the files of the latest version that have a deletion vector, and whose rows the log counts. Errors: as above."""
    counts = _count_deleted_rows(open_checked_table(path))
    files = {_join_spellings(one.path): one for one in list_data_files(path)} if counts else {}
    # A file of another table, as a shallow clone has, may be under a name that is not known here.
    known = [(files[name], marked) for name, marked in sorted(counts.items()) if name in files]
    return [MarkedFile(one, marked, one.rows) for one, marked in known if one.rows]


def choose_marked_files(files: Sequence[MarkedFile]) -> tuple[Sequence[MarkedFile], str]:
    """Returns the files of those partitions that are worth a rewrite, and what was found, with its numbers. files: those with such rows."""
    by_partition: dict[tuple[object, ...], list[MarkedFile]] = {}
    for one in files:
        by_partition.setdefault(tuple(one.file.partition.values()), []).append(one)
    chosen = [one for some in by_partition.values() if _share_marked(some) > REWRITE_ABOVE_SHARE for one in some]
    if chosen:
        marked, rows = sum(one.marked for one in chosen), sum(one.rows for one in chosen)
        left = format_size(sum(round(one.file.size * (1 - one.marked / one.rows)) for one in chosen))
        said = (
            f"{marked:,} of {count_noun(rows, 'row')} of {count_noun(len(chosen), 'file')} "
            f"{match_number(marked, 'is', 'are')} only marked as deleted; the others, about {left}, are rewritten"
        )
        return chosen, said
    if not files:
        return (), ""
    most = f"{max(map(_share_marked, by_partition.values())):.1%} of their rows"
    return (
        (),
        f"{count_noun(len(files), 'file')} with rows only marked as deleted, {most}; worth it above {REWRITE_ABOVE_SHARE:.0%}",
    )


def _share_marked(files: Sequence[MarkedFile]) -> float:
    return sum(one.marked for one in files) / sum(one.rows for one in files)


def _count_deleted_rows(table: DeltaTable) -> dict[str, int]:
    """Returns the number of rows that are marked, by file. A vector ends at the last of them."""
    if not log.may_have_deletion_vectors(table):
        return {}
    root = _join_spellings(table.table_uri.rstrip("/") + "/").removeprefix("file://")
    found: dict[str, int] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for uri, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            name = _join_spellings(uri).removeprefix("file://").removeprefix(root)
            found[name] = len(kept.values) - (pc.sum(kept.values).as_py() or 0)
    return found


def _join_spellings(name: str) -> str:
    """Returns one spelling of a file's name: names of partitions are escaped once or twice, in the log and in addresses."""
    return unquote(unquote(name))
