"""Opens Delta tables with intact logs, keeps them open, and reads them without a JVM. All reads of an open table see one snapshot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from sluice.delta_log import LOG, check_table_logs, measure_log_bytes
from sluice.errors import UsageError
from sluice.locations import identify_file, locate
from sluice.stores.opening import delta_rs_storage_options

_CATALOG_MANAGED = "catalog-managed table"
"""The word in delta-rs' error for a table whose commits belong to a catalog."""


class CatalogOwnsCommits(UsageError):
    """Each commit to the table must go through a catalog: it may not be read or written by its path."""


@dataclass(frozen=True)
class LastCommit:
    """The commit that was a log's last one. file: its identity by `identify_file`."""

    version: int
    file: tuple[int | str, ...]


def find_commit(path: str, version: int) -> LastCommit | None:
    """A version's commit; None if its file does not exist."""
    try:
        return LastCommit(version, identify_file(locate(path, LOG, f"{version:020d}.json")))
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_still_last(path: str, commit: LastCommit) -> bool:
    """Whether it is still the same table, with no later commit. Examines only two files, however long the log is."""
    return find_commit(path, commit.version) == commit and not locate(path, LOG, f"{commit.version + 1:020d}.json").is_file()


@dataclass(frozen=True)
class _OpenTable:
    table: DeltaTable
    commit: LastCommit
    log_bytes: int
    answers: dict[str, pa.Table] = field(default_factory=dict)


@dataclass
class OpenTables:
    """The open tables of this process, each with its last commit: a stage opens each table a dozen times, and few tables change meanwhile.

    most_bytes: the limit for the total size of their logs. The least recently used tables are dropped first; a table whose log alone is
    larger is not kept.
    """

    most_bytes: int = 128 * 1024 * 1024
    _tables: dict[str, _OpenTable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open_latest(self, path: str) -> DeltaTable:
        """The table at its latest version. Raises DamagedLog, and TableNotFoundError if there is no table."""
        return self.open_snapshot(path).table

    def open_snapshot(self, path: str) -> TableSnapshot:
        """The table at its latest version, with the answers it has given. Errors: as of `open_latest`."""
        path = str(locate(path).absolute())
        with self._lock:
            known = self._tables.pop(path, None)
            if known is not None and is_still_last(path, known.commit):
                self._tables[path] = known
                return TableSnapshot(known.table, known.answers)
        table = open_table_to_change(path)
        self.keep(path, table)
        kept = self._tables.get(path)
        return TableSnapshot(table, kept.answers if kept is not None and kept.table is table else {})

    def keep(self, path: str, table: DeltaTable) -> None:
        """Keep an open table for the next readers. It must not be changed any more. After a later commit it is opened again."""
        path = str(locate(path).absolute())
        commit = find_commit(path, table.version())
        if commit is not None:
            with self._lock:
                self._tables.pop(path, None)
                self._tables[path] = _OpenTable(table, commit, measure_log_bytes(path))
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        sizes = {path: one.log_bytes for path, one in self._tables.items()}
        for path in [path for path in sizes if sizes[path] > self.most_bytes]:
            del self._tables[path], sizes[path]
        while sum(sizes.values()) > self.most_bytes:
            oldest = next(iter(sizes))
            del self._tables[oldest], sizes[oldest]


_OPEN_TABLES = OpenTables()


_SMALL_ANSWER, _MOST_ANSWERS = 1 << 20, 16
"""The most bytes of an answer that is kept, and the most answers kept of one version of a table."""


def open_checked_table(path: str, version: int | None = None) -> DeltaTable:
    """A table at its latest or the given version, to read in Python. Do not change it: other readers share the object.

    Raises DamagedLog, and TableNotFoundError if there is no table.
    """
    if version is None:
        return _OPEN_TABLES.open_latest(path)
    check_table_logs({path: path})
    return open_delta_table(path, version)


def keep_written_table(path: str, table: DeltaTable) -> None:
    """Keep the object by which a table was written, so that the next readers need not open the table. Do not change it any more."""
    _OPEN_TABLES.keep(path, table)


def open_table_to_change(path: str) -> DeltaTable:
    """A table object for the caller alone, who may change it. Raises DamagedLog, and TableNotFoundError if there is no table."""
    check_table_logs({path: path})
    return open_delta_table(path)


def open_delta_table(path: str, version: int | None = None) -> DeltaTable:
    """A table by delta-rs, without a check of its log. Raises TableNotFoundError if there is no table, and CatalogOwnsCommits."""
    try:
        return DeltaTable(path, version=version, storage_options=delta_rs_storage_options(path) or None)
    except DeltaError as error:
        if _CATALOG_MANAGED not in str(error):
            raise
        raise CatalogOwnsCommits(
            f"The commits of the table {path} belong to a catalog (its log has the feature catalogManaged): they must go through that "
            "catalog, and Sluice commits to a table's own log. Give Sluice another location."
        ) from None


@dataclass(frozen=True)
class TableSnapshot:
    """An open table at one version. It does not see later commits: after a write, open it again."""

    table: DeltaTable
    answers: dict[str, pa.Table] = field(default_factory=dict)
    """Small results by their query: a stage repeats the same queries many times between two commits."""

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """The table's columns. A table of an older lake may lack some."""
        return tuple(field.name for field in self.table.schema().fields)

    def query_rows(self, sql: str) -> pa.Table:
        """The result of a query, in which the table's name is `t`."""
        if (known := self.answers.get(sql)) is not None:
            return known
        # Not to_pyarrow_table: its reader threads abort the process at exit (deltalake 1.6.6 with pyarrow 26).
        found = pa.table(QueryBuilder().register("t", self.table).execute(sql))
        if found.nbytes <= _SMALL_ANSWER and len(self.answers) < _MOST_ANSWERS:
            self.answers[sql] = found
        return found

    def query_batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The result of a query, as `query_rows`, one batch at a time."""
        return map(pa.record_batch, QueryBuilder().register("t", self.table).execute(sql))

    def read_columns(self, schema: pa.Schema) -> pa.Table:
        """The columns of the schema, in its types. A column that the table lacks is all NULL."""
        return self.query_rows(self._select_columns(schema)).cast(schema)

    def read_column_batches(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """The same as `read_columns`, some thousand rows at a time. Keeping a part of a batch does not keep the whole batch in memory.

        A column that is not copied would hold the whole batch, with its pages of the file.
        """
        for batch in self.query_batches(self._select_columns(schema)):
            rows = pa.Table.from_batches([batch]).cast(schema)
            yield pa.concat_tables([rows, rows.slice(0, 0)]).combine_chunks()

    def _select_columns(self, schema: pa.Schema) -> str:
        wanted = ", ".join(f'"{name}"' if name in self.column_names else f'NULL AS "{name}"' for name in schema.names)
        return f"SELECT {wanted} FROM t"

    def read_rows(self) -> list[dict[str, Any]]:
        """All rows, with all of the table's columns."""
        found: list[dict[str, Any]] = self.query_rows("SELECT * FROM t").to_pylist()
        return found


def open_table_snapshot(path: str, version: int | None = None) -> TableSnapshot:
    """A table at its latest or the given version. Raises DamagedLog, and TableNotFoundError if there is no table."""
    return _OPEN_TABLES.open_snapshot(path) if version is None else TableSnapshot(open_checked_table(path, version))


def find_table_snapshot(path: str) -> TableSnapshot | None:
    """A table at its latest version; None if there is no table. Raises DamagedLog."""
    try:
        return open_table_snapshot(path)
    except TableNotFoundError:
        return None


def read_snapshot_rows(path: str) -> list[dict[str, Any]]:
    """All rows of a table at its latest version; [] if there is no table. Raises DamagedLog."""
    found = find_table_snapshot(path)
    return found.read_rows() if found else []
