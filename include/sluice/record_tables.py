"""The tables of Sluice's own records of a pipeline. They only grow, by a few rows many times a run, and are written without a JVM.

Their cost does not grow with their history: the log has the highest number in each file, a checkpoint is made every ten commits, and
small files are joined, as many as pay for the bytes that this rewrites. A flow may stream such a table, since no commit here changes or
removes a row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Field,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError

from sluice import entries
from sluice.delta_log import is_delta_table
from sluice.delta_rs_commits import NO_COMMIT_HOOKS, complete_commit, remove_checksums_without_commit
from sluice.entries import ENTRY
from sluice.errors import SluiceError
from sluice.open_tables import LastCommit, find_commit, is_still_last, open_checked_table, open_table_to_change
from sluice.own_records import DELIVERIES
from sluice.printable import count_noun, format_size
from sluice.stores.commit_settling import settle_store_commit, store_commit_properties
from sluice.stores.fences import require_open_fences
from sluice.stores.opening import delta_rs_storage_options
from sluice.table_properties import CHECKPOINT_INTERVAL, LOG_RETENTION, REMOVED_UNTIL, RETENTION, STATISTICS, WALKED_AT

RECORD_TABLES = (DELIVERIES, *entries.COUNTED)
"""All these tables."""

_NUMBERS = ("delivery", ENTRY)
"""The columns whose highest values are needed."""
_PROPERTIES = {RETENTION: "interval 30 days", LOG_RETENTION: "interval 37 days", CHECKPOINT_INTERVAL: "10"}
_INDEXED = 32
"""The number of columns with statistics in the log if no columns are named."""
_WRITING = threading.RLock()
"""Flows of a process wait for each other, so that entries increase. Other processes have no lease."""
_OWN: dict[str, tuple[LastCommit, DeltaTable]] = {}
"""By path, the tables that this process has written, each with its last commit: without a later one, it need not be opened again."""
MOST_SMALL_FILES = 32
"""Files are joined if that makes at least this many fewer: opening a small one costs as much as rewriting it."""
LARGE_FILE_BYTES = 16 * 1024 * 1024
"""No joined file is larger than this, which bounds each rewrite."""
LEAST_GROWTH = 1.5
"""The largest file of each join gets at least this many times its own bytes, on average. So a byte is not rewritten again and again: each time
the file that it is in becomes larger by that much."""


def create_record_table(path: str, schema: pa.Schema) -> None:
    """Create a table if it does not exist; add missing columns to one of an older lake. Raises DamagedLog."""
    with _WRITING:
        _keep_own_table(path, _open_complete_table(path, schema))


def append_record_rows(path: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema, mark: str | None = None) -> None:
    """Append rows in one commit. Creates the table if needed, and gives each row its entry if the schema has entries.

    mark: of the commit. Without rows there is no commit. Raises DamagedLog.
    """
    if not rows:
        return
    with _WRITING:
        table = _open_complete_table(path, schema)
        written = entries.give_next_entries(path, rows) if ENTRY in schema.names else list(rows)
        given = pa.Table.from_pylist(written, schema=schema)
        there = pa.schema(table.schema().to_arrow())
        columns = [
            given[field.name].cast(field.type) if field.name in schema.names else pa.nulls(len(written), field.type)
            for field in there
        ]
        properties = _mark_commit(path, mark)
        with settle_store_commit(path, table, properties):
            write_deltalake(
                table,
                pa.Table.from_arrays(columns, schema=there),
                mode="append",
                commit_properties=properties,
                post_commithook_properties=NO_COMMIT_HOOKS,
            )
        _finish_commit(path, table)
        if ENTRY in schema.names:
            entries.note_last_entry(path, table.version(), int(written[-1][ENTRY]))


def update_record_rows(path: str, given: pa.Table, predicate: str, columns: Sequence[str], mark: str | None = None) -> int:
    """Give rows other values in one commit. Returns how many rows. Call this under the lease, of a table that no flow streams.

    given: the values, as `s`; the table is `t`. predicate: which rows; it names columns only. columns: those that get another value.

    Raises DamagedLog, and SluiceError if somebody else writes meanwhile or delta-rs fails: its own errors quote rows.
    """
    with _WRITING:
        table = _open_own_table(path)
        properties = _mark_commit(path, mark)
        merging = table.merge(
            given,
            predicate,
            source_alias="s",
            target_alias="t",
            streamed_exec=True,  # otherwise values of `given` get into the log
            writer_properties=WriterProperties(default_column_properties=ColumnProperties(statistics_enabled="NONE")),
            commit_properties=properties,
            post_commithook_properties=NO_COMMIT_HOOKS,
        )
        done: Mapping[str, Any] = {}
        try:
            with settle_store_commit(path, table, properties):
                done = merging.when_matched_update({name: f"s.{name}" for name in columns}).execute()
        except CommitFailedError:
            raise SluiceError(f"Another process wrote to the table {path} meanwhile. Nothing was changed. Try again.") from None
        except DeltaError as error:
            raise SluiceError(f"The table {path} could not be written: {type(error).__name__}. Nothing was changed.") from None
        done = done or table.history(1)[0].get("operationMetrics") or {}
        _finish_commit(path, table)
    return int(done["num_target_rows_updated"])


def decide_file_join(path: str) -> tuple[FileJoin | None, str]:
    """Returns which of a table's files `join_small_files` would join, and that in words, with its numbers. Raises DamagedLog."""
    sizes = _list_file_sizes(open_checked_table(path))
    join = choose_file_join(sizes)
    return join, _describe_file_join(join, len(sizes))


def has_many_small_files(path: str) -> bool:
    """Whether `join_small_files` would rewrite files of a table. Raises DamagedLog."""
    return decide_file_join(path)[0] is not None


def _list_file_sizes(table: DeltaTable) -> list[int]:
    actions = table.get_add_actions(flatten=True)
    return pa.chunked_array(actions["size_bytes"]).to_pylist() if len(actions) else []


def join_small_files(path: str, mark: str | None = None) -> tuple[int, int]:
    """Join small files of a table in one commit, which changes no row. Returns the numbers of files before and after.

    Does nothing if no join is worthwhile. mark: of the commit. Call this under the lease. Raises DamagedLog.
    """
    with _WRITING:
        table = _open_own_table(path)
        before = len(table.file_uris())
        join = choose_file_join(_list_file_sizes(table))
        if join is None:
            _keep_own_table(path, table)
            return before, before
        properties = _mark_commit(path, mark)
        with settle_store_commit(path, table, properties):
            table.optimize.compact(
                target_size=join.target, commit_properties=properties, post_commithook_properties=NO_COMMIT_HOOKS
            )
        after = len(table.file_uris())
        _finish_commit(path, table)
    return before, after


def remove_expired_files(path: str, keep: timedelta, mark: str | None = None) -> None:
    """VACUUM a table in full: remove the files that no version within its retention, `keep`, needs.

    mark, errors: as for `join_small_files`.
    """
    with _WRITING:
        table, began = _open_own_table(path), time.time()
        instants = {WALKED_AT: began, REMOVED_UNTIL: began - keep.total_seconds()}
        said = {**{name: str(int(at * 1000)) for name, at in instants.items()}, **({"userMetadata": mark} if mark else {})}
        properties = store_commit_properties(path, said)
        require_open_fences(path)
        table.vacuum(dry_run=False, full=True, commit_properties=properties, post_commithook_properties=NO_COMMIT_HOOKS)
        _finish_commit(path, table)


def _open_own_table(path: str) -> DeltaTable:
    """A table object that only this process has. Raises DamagedLog, and TableNotFoundError if there is no table."""
    known = _OWN.pop(path, None)
    if known is not None and is_still_last(path, known[0]):
        return known[1]
    remove_checksums_without_commit(path)
    return open_table_to_change(path)


def _open_complete_table(path: str, schema: pa.Schema) -> DeltaTable:
    """A table object of this process alone, with all columns, and with statistics of the numbers in its files."""
    numbers = [name for name in _NUMBERS if name in schema.names]
    if not is_delta_table(path):
        configuration = {**_PROPERTIES, STATISTICS: ",".join(numbers)}
        options = delta_rs_storage_options(path) or None
        _finish_commit(path, DeltaTable.create(path, schema, mode="ignore", configuration=configuration, storage_options=options))
    table = _open_own_table(path)
    present = [field.name for field in table.schema().fields]
    lacking = [Field.from_arrow(field) for field in schema if field.name not in present]
    if lacking:
        properties = _mark_commit(path, None)
        with settle_store_commit(path, table, properties):
            table.alter.add_columns(lacking, commit_properties=properties, post_commithook_properties=NO_COMMIT_HOOKS)
        present += [field.name for field in lacking]
    wanted = {CHECKPOINT_INTERVAL: _PROPERTIES[CHECKPOINT_INTERVAL]}
    if set(numbers) & set(present[_INDEXED:]):
        wanted[STATISTICS] = ",".join(numbers)
    changed = {name: value for name, value in wanted.items() if name not in table.metadata().configuration}
    if changed:
        properties = _mark_commit(path, None)
        with settle_store_commit(path, table, properties):
            table.alter.set_table_properties(changed, commit_properties=properties, post_commithook_properties=NO_COMMIT_HOOKS)
    if lacking or changed:
        _finish_commit(path, table)
        return _open_own_table(path)
    return table


def _finish_commit(path: str, table: DeltaTable) -> None:
    if complete_commit(path, table):
        # Spark does this when it makes a checkpoint, but it makes none for these tables.
        table.cleanup_metadata()
        remove_checksums_without_commit(path)
    _keep_own_table(path, table)


def _keep_own_table(path: str, table: DeltaTable) -> None:
    commit = find_commit(path, table.version())
    if commit is not None:
        _OWN[path] = (commit, table)


def _mark_commit(path: str, mark: str | None) -> CommitProperties:
    return store_commit_properties(path, {"userMetadata": mark} if mark else None)


@dataclass(frozen=True)
class FileJoin:
    """What delta-rs joins if it is given a target size: files that lie side by side in the log become one of up to that size.

    files, bytes: what is rewritten. into: how many files that becomes. largest: the bytes of the largest file of each.
    """

    target: int
    files: int = 0
    into: int = 0
    bytes: int = 0
    largest: int = 0

    @property
    def fewer(self) -> int:
        """How many files fewer there are afterwards."""
        return self.files - self.into

    @property
    def is_worthwhile(self) -> bool:
        """Whether it makes many files fewer, and rewrites no good file for the sake of a few tiny ones."""
        return self.fewer >= MOST_SMALL_FILES and self.bytes - self.largest >= LEAST_GROWTH * self.largest


def choose_file_join(sizes: Sequence[int]) -> FileJoin | None:
    """Returns the join of a table's files that costs the fewest bytes for each file that is gone; None if none is worthwhile.

    sizes: the bytes of the files, in the order of the log. delta-rs takes no list of files, only a size, so the size decides which it takes.
    """
    found: list[FileJoin] = []
    target = 2 * max(1, min(sizes, default=LARGE_FILE_BYTES))
    while len(sizes) > MOST_SMALL_FILES:
        found.append(_measure_file_join(sizes, min(target, LARGE_FILE_BYTES)))
        if target >= LARGE_FILE_BYTES:
            break
        target *= 2
    return min((one for one in found if one.is_worthwhile), key=lambda one: one.bytes / one.fewer, default=None)


def _measure_file_join(sizes: Sequence[int], target: int) -> FileJoin:
    found, together = FileJoin(target), list[int]()
    for size in (*sizes, target + 1):
        if sum(together) + size <= target:
            together.append(size)
            continue
        if len(together) > 1:
            found = FileJoin(
                target,
                found.files + len(together),
                found.into + 1,
                found.bytes + sum(together),
                found.largest + max(together),
            )
        together = [size] if size <= target else []
    return found


def _describe_file_join(join: FileJoin | None, files: int) -> str:
    """Describes a join of a table's files, or says why none is worth it. files: how many the table has."""
    if join is None:
        return f"{count_noun(files, 'file')}; no join makes {MOST_SMALL_FILES} fewer without rewriting large ones for a few small ones"
    return f"{join.files} of {count_noun(files, 'file')}, {format_size(join.bytes)}, become {join.into}"
