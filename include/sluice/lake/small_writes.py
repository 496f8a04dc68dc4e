"""Small writes through delta-rs: an append, a MERGE or an OPTIMIZE that takes Spark seconds takes delta-rs hundredths of a second.

Spark has computed the rows. Which way a write goes is decided beforehand, by its size and by the table: whatever is not known to come out
the same in both ways is left to Spark. If delta-rs fails all the same, Spark does it. Both ways leave the same rows, change feed, statistics
in the log and note of Sluice. Call these functions under the pipeline's lease, which the driver's Python holds beside its JVM.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.table import TableMerger
from pyspark.sql.types import StructType

from sluice.delta_log import TRANSACTIONS
from sluice.delta_rs_commits import NO_COMMIT_HOOKS, complete_commit
from sluice.errors import SluiceError, table_collision
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.file_statistics import count_rows_in_matching_files, list_file_values
from sluice.lake.flow_report import MergeCounts
from sluice.lake.layout_properties import choose_file_size
from sluice.lake.table_frames import read_spark_schema
from sluice.lake.written_alike import is_written_alike, list_statistics_columns
from sluice.open_tables import keep_written_table, open_checked_table, open_table_to_change
from sluice.printable import count_noun
from sluice.step_times import WRITING, measure_step
from sluice.stores.commit_settling import settle_store_commit, store_commit_properties

OPERATION = "_operation"
"""The column in the rows of a merge that says what to do: INSERT, UPDATE or DELETE."""
INSERT, UPDATE, DELETE = "I", "U", "D"

MOST_ROWS = 10_000
"""The most rows of a merge through delta-rs, which go through the memory of the driver's Python."""
MOST_ROW_BYTES = 16 * 1024 * 1024
"""The most bytes of memory of such rows."""
MOST_TABLE_BYTES = 256 * 1024 * 1024
"""Spark merges into larger tables, because it reads only the files that match and delta-rs all: 23 MiB of 594,591 rows take it 0.7 CPU s."""
MOST_UNBOUNDED_BYTES = 64 * 1024 * 1024
"""The same where no bounds of a key say which files do not matter: delta-rs holds the rows of all others until the merge ends. Bounds that
exclude no file are bounds all the same: then only the number of rows is limited."""
MOST_SCANNED_ROWS = 1_000_000
"""The most rows in the files that matter. Bytes of files say little about memory: 6,000,000 rows of two short texts took 30 MiB of files and
620 MiB of memory, about 100 bytes a row."""

MOST_APPENDED_ROWS = 100_000
"""The most rows of an append through delta-rs, with at most as many bytes as in a merge, to a table of any size."""
MOST_PARTITIONED_ROWS = 1_000
"""The same for a table with partitions: delta-rs keeps a writer open for each partition that the rows fall into."""

MOST_REWRITTEN_BYTES = 64 * 1024 * 1024
"""Spark lays out larger tables, because delta-rs sorts in memory."""
MOST_SORTED_ROWS = 500_000
"""Spark also sorts tables with more rows by columns: bytes in files say little about bytes in memory."""
_FIRST_DAY, _LAST_DAY = ((end - date(1970, 1, 1)).days for end in (date.min, date.max))
_BREAKS_CHECK = "Invalid data found"
"""What delta-rs says about rows that do not meet a CHECK, before it quotes the condition."""

_STATISTICS_LENGTH = 32
"""How many letters of a text Delta on Spark puts into a table's log."""


def is_merged_by_delta_rs(path: str, keys: Sequence[str], rows: int, row_bytes: int, is_bounded: bool) -> bool:
    """Whether a merge of this many rows and bytes goes into the table through delta-rs, as far as is known before the rows are. Raises DamagedLog.

    is_bounded: whether bounds of a key may say which files do not matter. `fits_in_memory` decides once they are known.
    """
    if rows > MOST_ROWS or row_bytes > MOST_ROW_BYTES:
        return False
    table = open_checked_table(path)
    if not is_written_alike(table, keys) or sum(list_file_values(table, "size_bytes")) > MOST_TABLE_BYTES:
        return False
    return is_bounded or fits_in_memory(path, {})


def fits_in_memory(path: str, bounds: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the rows that delta-rs holds during a merge with these bounds are few. Raises DamagedLog."""
    if not bounds and sum(list_file_values(open_checked_table(path), "size_bytes")) > MOST_UNBOUNDED_BYTES:
        return False
    rows = count_rows_in_matching_files(path, {name: [ends] for name, ends in bounds.items()})
    return rows is not None and rows <= MOST_SCANNED_ROWS


@measure_step(WRITING)
def merge_few_rows(
    path: str, rows: pa.Table, keys: Sequence[str], bounds: Mapping[str, tuple[int, int]], mark: str | None
) -> MergeCounts:
    """Applies rows with an OPERATION to a table in one commit. Each key comes once; `is_merged_by_delta_rs` and `fits_in_memory` must have said yes.

    bounds: by key, the integers between which its values lie; they get into the table's history. mark: of the commit.

    Raises SluiceError if somebody else writes meanwhile or a row lacks a value for a column that is NOT NULL, SmallWriteFailed for all else.
    """
    table = open_table_to_change(path)
    schema = pa.schema(table.schema().to_arrow())
    _refuse_missing_values(path, schema, rows)
    with _errors_without_rows(path):
        source = rows.select([OPERATION, *schema.names]).cast(pa.schema([pa.field(OPERATION, pa.string()), *schema]))
    assigned = {f'"{name}"': f's."{name}"' for name in schema.names}

    def add_clauses(merging: TableMerger) -> TableMerger:
        return (
            merging
            .when_matched_delete(f"s.\"{OPERATION}\" = '{DELETE}'")
            .when_matched_update(assigned, predicate=f"s.\"{OPERATION}\" = '{UPDATE}'")
            .when_not_matched_insert(assigned, predicate=f"s.\"{OPERATION}\" = '{INSERT}'")
        )

    return _merge_into_table(path, table, source, keys, bounds, mark, add_clauses)


@measure_step(WRITING)
def delete_few_rows(path: str, rows: pa.Table, bounds: Mapping[str, tuple[int, int]], mark: str | None) -> int:
    """Deletes the table's rows that equal one of `rows` in all columns that those have, in one commit. Returns how many it deleted.

    rows: each comes once. What must have said yes before a merge must have said it, with their columns as keys. bounds, mark: as for a merge.
    Without a row to delete there is no commit. Raises SluiceError if somebody else writes meanwhile, SmallWriteFailed for all else.
    """
    table = open_table_to_change(path)
    schema = pa.schema(table.schema().to_arrow())
    with _errors_without_rows(path):
        source = rows.cast(pa.schema([schema.field(name).with_nullable(True) for name in rows.schema.names]))
    return _merge_into_table(path, table, source, rows.schema.names, bounds, mark, TableMerger.when_matched_delete).deleted


def _merge_into_table(
    path: str,
    table: DeltaTable,
    source: pa.Table,
    keys: Sequence[str],
    bounds: Mapping[str, tuple[int, int]],
    mark: str | None,
    add_clauses: Callable[[TableMerger], TableMerger],
) -> MergeCounts:
    same = [f'(t."{key}" IS NOT DISTINCT FROM s."{key}")' for key in keys]
    near = [f'(t."{key}" BETWEEN {low} AND {high})' for key, (low, high) in bounds.items()]
    properties = _mark_commit(path, mark)
    merging = table.merge(
        source,
        " AND ".join(same + near),
        source_alias="s",
        target_alias="t",
        streamed_exec=True,  # otherwise the values of the source's keys get into the log
        writer_properties=_choose_file_statistics(table),
        commit_properties=properties,
        post_commithook_properties=NO_COMMIT_HOOKS,
    )
    done: Mapping[str, Any] = {}
    with _errors_without_rows(path), settle_store_commit(path, table, properties):
        done = add_clauses(merging).execute()
    done = done or _read_last_metrics(table)
    _finish_commit(path, table)
    inserted, updated, deleted = (int(done[f"num_target_rows_{what}"]) for what in ("inserted", "updated", "deleted"))
    return MergeCounts(inserted, updated, deleted)


def is_appended_by_delta_rs(path: str, columns: StructType, size: RowsSize) -> bool:
    """Whether rows with these columns are appended to the table through delta-rs: only if it has these columns already. Raises DamagedLog."""
    if size.bytes is None or size.rows > MOST_APPENDED_ROWS or size.bytes > MOST_ROW_BYTES:
        return False
    table = open_checked_table(path)
    if table.metadata().partition_columns and size.rows > MOST_PARTITIONED_ROWS:
        return False
    there = {field.name: field.dataType.simpleString() for field in read_spark_schema(table)}
    return is_written_alike(table) and all(there.get(field.name) == field.dataType.simpleString() for field in columns)


def are_dates_within_reach(rows: pa.Table) -> bool:
    """Whether delta-rs can write the rows' dates into the log: it knows years of four digits, and a few more."""
    days = [rows[field.name].cast(pa.int32()) for field in rows.schema if pa.types.is_date32(field.type)]
    ends = [end for column in days for end in pc.min_max(column).as_py().values() if end is not None]
    return all(_FIRST_DAY <= end <= _LAST_DAY for end in ends)


def append_few_rows(path: str, rows: pa.Table, mark: str | None, once: tuple[str, int] | None = None) -> None:
    """Appends rows to a table in one commit; a column that they lack is NULL. `is_appended_by_delta_rs` must have said yes.

    mark: of the commit. once: an application and the number of its transaction; nothing is done if the table has had it.

    Raises SluiceError if a row lacks a value for a column that is NOT NULL, SmallWriteFailed for all else.
    """
    table = open_table_to_change(path)
    last = table.transaction_version(once[0]) if once is not None else None
    if once is not None and last is not None and last >= once[1]:
        return
    schema = pa.schema(table.schema().to_arrow())
    with _errors_without_rows(path):
        columns = [
            rows[field.name].cast(field.type) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        given = pa.Table.from_arrays(columns, names=schema.names)
        _refuse_missing_values(path, schema, given)
        properties = _mark_commit(path, mark, once)
        with settle_store_commit(path, table, properties):
            write_deltalake(
                table,
                given.cast(schema),
                mode="append",
                writer_properties=_choose_file_statistics(table),
                commit_properties=properties,
                post_commithook_properties=NO_COMMIT_HOOKS,
            )
    _finish_commit(path, table)


def is_laid_out_by_delta_rs(path: str, zorder: Sequence[str]) -> bool:
    """Whether all files of a table are laid out by delta-rs. zorder: see `lay_out_small_table`. Raises DamagedLog."""
    table = open_checked_table(path)
    if not is_written_alike(table, zorder) or sum(list_file_values(table, "size_bytes")) > MOST_REWRITTEN_BYTES:
        return False
    rows = list_file_values(table, "num_records") if zorder else []
    return None not in rows and sum(rows) <= MOST_SORTED_ROWS


def lay_out_small_table(path: str, zorder: Sequence[str], mark: str | None) -> tuple[int, int]:
    """Optimises a table in one commit and returns the number of files before and after. zorder: the columns by which near rows lie together.

    `is_laid_out_by_delta_rs` must have said yes. Raises SluiceError if somebody else writes meanwhile, SmallWriteFailed for all else.
    """
    table = open_table_to_change(path)
    properties = _mark_commit(path, mark)
    options: dict[str, Any] = {
        "target_size": choose_file_size(path, bool(zorder)),
        "writer_properties": _choose_file_statistics(table),
        "commit_properties": properties,
        "post_commithook_properties": NO_COMMIT_HOOKS,
    }
    done: Mapping[str, Any] = {}
    with _errors_without_rows(path), settle_store_commit(path, table, properties):
        done = table.optimize.z_order(list(zorder), **options) if zorder else table.optimize.compact(**options)
    done = done or _read_last_metrics(table)
    _finish_commit(path, table)
    return int(done["numFilesRemoved"]), int(done["numFilesAdded"])


def _read_last_metrics(table: DeltaTable) -> Mapping[str, Any]:
    """What the last commit says it did: for a commit that was made although delta-rs got the answer that it was not."""
    said: Mapping[str, Any] = table.history(1)[0].get("operationMetrics") or {}
    return said


def _finish_commit(path: str, table: DeltaTable) -> None:
    """Does what follows a commit, and keeps the table open for the next reader."""
    complete_commit(path, table)
    keep_written_table(path, table)


class SmallWriteFailed(Exception):
    """delta-rs failed to write a table, and nothing was committed. Its own error, which may quote rows, is the context of this one."""


@contextmanager
def leave_failure_to_spark() -> Iterator[None]:
    """Ends the block where delta-rs fails at a write, and says so: what follows has Spark do it.

    Other rows of the files that it rewrites may be such that it cannot write them, and nobody's rows may wait for that for ever.
    """
    try:
        yield
    except SmallWriteFailed as failed:
        print(f"sluice: delta-rs could not write {failed}. Spark does.", file=sys.stderr, flush=True)


@contextmanager
def _errors_without_rows(path: str) -> Iterator[None]:
    try:
        yield
    except CommitFailedError:
        raise table_collision(path) from None
    except (DeltaError, pa.ArrowException) as error:
        if _BREAKS_CHECK in str(error):
            raise SluiceError(
                f"Rows do not meet a CHECK of the table {path}. Nothing was changed. Its CHECKs are table properties, delta.constraints.<name>."
            ) from None
        raise SmallWriteFailed(f"{path}: {type(error).__name__}") from None


def _refuse_missing_values(path: str, schema: pa.Schema, rows: pa.Table) -> None:
    """Raises SluiceError if rows lack a value for a column that is NOT NULL."""
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            raise SluiceError(
                f"The column '{field.name}' of the table {path} is NOT NULL, "
                f"and {count_noun(rows[field.name].null_count, 'row', 'has', 'have')} no value for it. "
                "Nothing was changed."
            )


def _mark_commit(path: str, mark: str | None, once: tuple[str, int] | None = None) -> CommitProperties:
    said = {"userMetadata": mark} if mark else {}
    transactions = [Transaction(*once)] if once is not None else []
    return store_commit_properties(path, said | ({TRANSACTIONS: "1"} if transactions else {}), transactions)


def _choose_file_statistics(table: DeltaTable) -> WriterProperties:
    """Makes files whose footers hold least and greatest values only for the columns that have them in the log.

    For fractions a footer holds nothing at all, not even a dictionary: Spark finds NaN and -0.0 only if it reads the rows.
    """
    chosen = {
        name: ColumnProperties(statistics_enabled="PAGE") for name in list_statistics_columns(table.metadata().configuration)
    }
    for field in read_spark_schema(table):
        if field.dataType.typeName() in ("float", "double"):
            chosen[field.name] = ColumnProperties(statistics_enabled="NONE", dictionary_enabled=False)
    return WriterProperties(
        compression="SNAPPY",
        statistics_truncate_length=_STATISTICS_LENGTH,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties=chosen or None,
    )
