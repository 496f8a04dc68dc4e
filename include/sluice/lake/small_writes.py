"""Small writes through delta-rs: a MERGE or an OPTIMIZE that takes Spark two seconds takes it hundredths of one.

Spark has computed the rows. Which way a write goes is decided before it, by its size and by what the table is: whatever is not known to
come out the same in both ways is left to Spark. Both ways leave the same rows, change feed, statistics of the log and note of Sluice.
To be called under the pipeline's lease, which the driver's Python holds beside its JVM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import ColumnProperties, CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql.types import ArrayType, DataType, DecimalType, StructType

from sluice.delta_log import LOG, open_checked_table, open_table_to_change
from sluice.durable_files import write_json_durably
from sluice.errors import SluiceError
from sluice.lake.report import MergeCounts
from sluice.lake.table_frames import has_plain_reader_protocol, read_spark_schema
from sluice.lake.tables import INSTANTS, LOG_RETENTION, MICROSECONDS, RETENTION, STATISTICS, has_misread_statistics

OPERATION = "_operation"
"""The column of the rows of a merge that says what is to be done: INSERT, UPDATE or DELETE."""
INSERT, UPDATE, DELETE = "I", "U", "D"

MOST_ROWS = 10_000
"""So many rows a merge through delta-rs has at most: they go through the memory of the driver's Python."""
MOST_ROW_BYTES = 16 * 1024 * 1024
"""And so many bytes of text in them."""
MOST_TABLE_BYTES = 256 * 1024 * 1024
"""Of a larger table Spark merges into the files that match: delta-rs looks at all of them. 23 MiB of 594,591 rows take it 0.7 CPU s."""

MOST_REWRITTEN_BYTES = 64 * 1024 * 1024
"""A larger table Spark lays out: delta-rs sorts it in memory."""
MOST_SORTED_ROWS = 500_000
"""And one of more rows where they are sorted by columns: bytes in files say little of what they are in memory."""
_ONE_FILE = 1024 * 1024 * 1024
"""The size of files that Delta's OPTIMIZE makes."""

_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_WRITER_VERSIONS = frozenset({2, 3, 4, 7})
_WRITER_FEATURES = frozenset({"appendOnly", "changeDataFeed", "checkConstraints", "invariants", "timestampNtz"})
_PROPERTIES = frozenset({
    *(STATISTICS, RETENTION, LOG_RETENTION, _CHECKPOINT_INTERVAL),
    *("delta.enableChangeDataFeed", "delta.enableDeletionVectors", "delta.appendOnly", "delta.enableExpiredLogCleanup"),
})
"""Delta's properties that a table may have. What Delta on Spark does by another one, delta-rs may not do."""
_FIELD_NOTES = frozenset({"comment"})
"""What a column may say beside its type: generated, identity and default columns say more."""
_PARTITIONED_BY = frozenset({"date", "integer", "long"})
"""Not by texts: an empty one is NULL to Spark's writer alone."""
_WHOLE = ("boolean", "byte", "short", "integer", "long", "string", "binary", "date", "timestamp", "timestamp_ntz")
_FRACTIONS = ("float", "double", "decimal")
_NAME = re.compile(r"\w+")
_ELSEWHERE = re.compile(r"/|[A-Za-z][\w+.-]*:")
"""How the path of a file begins that lies in another table, as those of a shallow clone do."""
_STATISTICS_LENGTH = 32
"""So many letters of a text Delta on Spark puts into a table's log."""
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""When a checkpoint is due, `_keep_checkpoints` says."""


def is_merged_by_delta_rs(path: str, keys: Sequence[str], rows: int, row_bytes: int) -> bool:
    """Whether a merge of so many rows, with so many bytes of text, goes into the table through delta-rs. Raises DamagedLog."""
    if "://" in path or rows > MOST_ROWS or row_bytes > MOST_ROW_BYTES:
        return False
    table = open_checked_table(path)
    return _is_known_to_be_kept(table, keys) and sum(_list_file_values(table, "size_bytes")) <= MOST_TABLE_BYTES


def merge_few_rows(
    path: str, rows: pa.Table, keys: Sequence[str], bounds: Mapping[str, tuple[int, int]], note: str | None
) -> MergeCounts:
    """Apply rows with an OPERATION to a table in one commit. Each key comes once; `is_merged_by_delta_rs` has said yes.

    bounds: by key, between which integers its values are; they get into the table's history. note: the mark of the commit.

    Raises SluiceError where somebody else writes meanwhile, or a row has no value for a column that is NOT NULL; SmallWriteFailed for all else.
    """
    table = open_table_to_change(path)
    schema = pa.schema(table.schema().to_arrow())
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            raise SluiceError(
                f"The column '{field.name}' of the table {path} is NOT NULL, and {rows[field.name].null_count} rows have no value for it. "
                "Nothing was changed."
            )
    source = rows.select([OPERATION, *schema.names]).cast(pa.schema([pa.field(OPERATION, pa.string()), *schema]))
    assigned = {f'"{name}"': f's."{name}"' for name in schema.names}
    same = [f'(t."{key}" IS NOT DISTINCT FROM s."{key}")' for key in keys]
    near = [f'(t."{key}" BETWEEN {low} AND {high})' for key, (low, high) in bounds.items()]
    merging = table.merge(
        source,
        " AND ".join(same + near),
        source_alias="s",
        target_alias="t",
        streamed_exec=True,  # else the values of the source's keys get into the log
        writer_properties=_choose_file_statistics(table),
        commit_properties=_mark_commit(note),
        post_commithook_properties=_NO_HOOKS,
    )
    merging = (
        merging
        .when_matched_delete(f"s.\"{OPERATION}\" = '{DELETE}'")
        .when_matched_update(assigned, predicate=f"s.\"{OPERATION}\" = '{UPDATE}'")
        .when_not_matched_insert(assigned, predicate=f"s.\"{OPERATION}\" = '{INSERT}'")
    )
    with _errors_without_rows(path):
        done = merging.execute()
    _keep_log_as_spark_does(table, path)
    inserted, updated, deleted = (int(done[f"num_target_rows_{what}"]) for what in ("inserted", "updated", "deleted"))
    return MergeCounts(inserted, updated, deleted, merged_by="delta-rs")


def is_laid_out_by_delta_rs(path: str, zorder: Sequence[str]) -> bool:
    """Whether all files of a table are laid out anew through delta-rs. zorder: see `lay_out_small_table`. Raises DamagedLog."""
    if "://" in path:
        return False
    table = open_checked_table(path)
    if not _is_known_to_be_kept(table, zorder) or sum(_list_file_values(table, "size_bytes")) > MOST_REWRITTEN_BYTES:
        return False
    rows = _list_file_values(table, "num_records") if zorder else []
    return None not in rows and sum(rows) <= MOST_SORTED_ROWS


def lay_out_small_table(path: str, zorder: Sequence[str], note: str | None) -> tuple[int, int]:
    """OPTIMIZE a table, in one commit. zorder: the columns by which rows that are near each other lie together. Returns files before, after.

    `is_laid_out_by_delta_rs` has said yes. Raises SluiceError where somebody else writes meanwhile; SmallWriteFailed for all else.
    """
    table = open_table_to_change(path)
    options: dict[str, Any] = {
        "target_size": _ONE_FILE,
        "writer_properties": _choose_file_statistics(table),
        "commit_properties": _mark_commit(note),
        "post_commithook_properties": _NO_HOOKS,
    }
    with _errors_without_rows(path):
        done = table.optimize.z_order(list(zorder), **options) if zorder else table.optimize.compact(**options)
    _keep_log_as_spark_does(table, path)
    return int(done["numFilesRemoved"]), int(done["numFilesAdded"])


class SmallWriteFailed(Exception):
    """delta-rs did not write a table. Its own error, which may quote rows, is the context of this one: `sluice.runs.failures` looks there."""


@contextmanager
def _errors_without_rows(path: str) -> Iterator[None]:
    try:
        yield
    except CommitFailedError:
        raise SluiceError(f"Somebody else wrote to the table {path} meanwhile. Nothing was changed. Run again.") from None
    except DeltaError as error:
        raise SmallWriteFailed(f"{path}: {type(error).__name__}") from None


def _is_known_to_be_kept(table: DeltaTable, keys: Sequence[str] = ()) -> bool:
    """Whether rows that delta-rs writes are in the table as if Spark had written them, for every reader.

    keys: the columns by which they are merged or sorted.
    """
    protocol, properties = table.protocol(), table.metadata().configuration
    if not has_plain_reader_protocol(table):
        return False
    if protocol.min_writer_version not in _WRITER_VERSIONS or not set(protocol.writer_features or ()) <= _WRITER_FEATURES:
        return False
    # Conditions (`delta.constraints.`) Spark alone judges as Spark understands them; where the columns with statistics are not named,
    # personal ones have some.
    if STATISTICS not in properties or any(name.startswith("delta.") and name not in _PROPERTIES for name in properties):
        return False
    if any(properties.get(name, "false") != "false" for name in ("delta.appendOnly", "delta.enableDeletionVectors")):
        return False
    if any(_ELSEWHERE.match(file) for file in _list_file_values(table, "path")):
        return False
    schema = read_spark_schema(table)
    if "timestamp" in _type_names(schema) and properties.get(INSTANTS) != MICROSECONDS:
        return False
    # Fractions are no keys: to Spark, NaN is itself, and -0.0 is 0.0.
    if any(key not in schema.names or schema[key].dataType.typeName() not in _WHOLE for key in keys):
        return False
    by, with_statistics = set(table.metadata().partition_columns), set(_columns_with_statistics(properties))
    return all(
        _NAME.fullmatch(field.name)
        and set(field.metadata) <= _FIELD_NOTES
        and (field.dataType.typeName() in _PARTITIONED_BY if field.name in by else _is_kept_equally(field.dataType))
        and not (field.name in with_statistics and has_misread_statistics(field.dataType))
        for field in schema
    )


def _is_kept_equally(kind: DataType, inside_struct: bool = False) -> bool:
    """Whether both write values of a type alike. Of fractions inside structs the statistics of a file cannot be left out."""
    if isinstance(kind, StructType):
        return all(
            _NAME.fullmatch(one.name) and one.nullable and not one.metadata and _is_kept_equally(one.dataType, True)
            for one in kind
        )
    if isinstance(kind, ArrayType):
        return kind.containsNull and _is_kept_equally(kind.elementType, inside_struct)
    name = "decimal" if isinstance(kind, DecimalType) else kind.typeName()
    return name in _WHOLE or (name in _FRACTIONS and not inside_struct)


def _mark_commit(note: str | None) -> CommitProperties:
    return CommitProperties(custom_metadata={"userMetadata": note} if note else None)


def _type_names(kind: DataType) -> set[str]:
    if isinstance(kind, StructType):
        return {name for field in kind for name in _type_names(field.dataType)}
    return _type_names(kind.elementType) if isinstance(kind, ArrayType) else {kind.typeName()}


def _columns_with_statistics(properties: Mapping[str, str | None]) -> list[str]:
    return [name.strip(" `") for name in (properties.get(STATISTICS) or "").split(",") if name]


def _list_file_values(table: DeltaTable, column: str) -> list[Any]:
    """What the log says of each of a table's files."""
    found = table.get_add_actions()
    return pa.chunked_array(found[column]).to_pylist() if len(found) and column in found.schema.names else []


def _choose_file_statistics(table: DeltaTable) -> WriterProperties:
    """Files whose footers hold least and greatest values of those columns alone of which the log holds them.

    Of fractions a footer says nothing at all, not even which values there are: NaN and -0.0 are found by Spark only where it looks.
    """
    chosen = {
        name: ColumnProperties(statistics_enabled="PAGE") for name in _columns_with_statistics(table.metadata().configuration)
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


def _keep_log_as_spark_does(table: DeltaTable, path: str) -> None:
    """Write what Spark writes beside a commit: its version checksum and, where one is due, a checkpoint. Where that fails, the commit stands.

    Expired commits are removed when Spark makes a checkpoint: it removes what belongs to them, too.
    """
    with suppress(OSError, ValueError, KeyError):  # Spark looks into the log then
        _write_version_checksum(table, Path(path) / LOG)
    with suppress(DeltaError, OSError, ValueError):  # the next one holds what this one would
        if table.version() % max(1, int(table.metadata().configuration.get(_CHECKPOINT_INTERVAL) or 10)) == 0:
            table.create_checkpoint()
            # The checksum that Spark wrote of its own: it would be taken for one of this checkpoint.
            (Path(path) / LOG / "._last_checkpoint.crc").unlink(missing_ok=True)


def _write_version_checksum(table: DeltaTable, log_folder: Path) -> None:
    """Write `N.crc` of the latest version, from which Spark knows schema and protocol without two jobs that look for them in the log.

    Both are as the version before has them, whose file says them exactly; where that is not there, none is written. Source: Delta's
    PROTOCOL.md, Version Checksum File.
    """
    version, sizes = table.version(), _list_file_values(table, "size_bytes")
    before = json.loads((log_folder / f"{version - 1:020d}.crc").read_text())
    same = {name: before[name] for name in ("numMetadata", "numProtocol", "metadata", "protocol")}
    write_json_durably(log_folder / f"{version:020d}.crc", {"tableSizeBytes": sum(sizes), "numFiles": len(sizes), **same})
