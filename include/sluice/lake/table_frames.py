"""Reads a table's rows as a frame in the cheapest way.

A small table is read by the paths of its files, which delta-rs knows from the log in milliseconds, while Delta's reader needs Spark jobs to
learn them. Delta's reader is used for large tables, of which it reads only the files whose statistics fit, and for everything that the
paths of Parquet files do not say: partitions, required columns, deletion vectors and whatever else a protocol may hold.

Also aggregates the rows of a frame in one query.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sluice import delta_log
from sluice.delta_log import check_table_logs
from sluice.lake import log
from sluice.open_tables import open_checked_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_FILES = 100
"""Making a frame asks for the status of each path: 1,000 of them take two thirds of a second."""

MOST_BYTES = 128 * 1024 * 1024
"""With more bytes than this it pays to leave out the files whose statistics do not fit."""

_FILE_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PATTERN_LETTERS = frozenset("*?[]{}\\")


def read_table(session: SparkSession, path: str, version: int | None = None) -> DataFrame:
    """Returns the table as it is now, or as it was at a version. Raises DamagedLog.

    Later commits may or may not be in the frame: whoever writes must read again.
    """
    frame = _read_small_table(session, path, version)
    if frame is not None:
        return frame
    check_table_logs({path: path})
    reader = session.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(path)


def read_table_columns(session: SparkSession, path: str) -> StructType:
    """Returns the columns that `read_table` gives. Spark is asked only if its own reader reads the table. Raises DamagedLog.

    Files that are lost are noticed only by `read_table`.
    """
    small = _find_small_table(path, None)
    return small.columns if small is not None else read_table(session, path).schema


def _read_small_table(session: SparkSession, path: str, version: int | None) -> DataFrame | None:
    """Reads the table by its files' paths. None if Delta's reader must read it, which also reports what is wrong with a table."""
    small = _find_small_table(path, version)
    if small is None:
        return None
    if not small.files:
        return session.createDataFrame(to_arrow_schema(small.columns, timezone="UTC").empty_table(), small.columns)
    # Not `file_uris`, which encodes the table's folder as in a URL.
    return session.read.schema(small.columns).parquet(*(f"{path}/{name}" for name in small.files))


@dataclass(frozen=True)
class _SmallTable:
    """A table that is read by its files' paths. files: their names in the table's folder."""

    columns: StructType
    files: tuple[str, ...]


def _find_small_table(path: str, version: int | None) -> _SmallTable | None:
    if _PATTERN_LETTERS & set(path) or not delta_log.is_delta_table(path):  # Spark would read such a path as a pattern
        return None
    try:
        table = open_checked_table(path, version)
    except DeltaError:
        return None
    schema = read_spark_schema(table)
    if not (_is_plain_parquet(table) and is_nullable_throughout(schema)):
        return None
    actions = table.get_add_actions()
    names, sizes = (pa.chunked_array(actions[column]).to_pylist() for column in ("path", "size_bytes"))
    # A name with a folder belongs to a partition, or to another table's file that a shallow clone reads.
    if len(names) > MOST_FILES or sum(sizes) > MOST_BYTES or any(not _FILE_NAME.fullmatch(name) for name in names):
        return None
    return _SmallTable(schema, tuple(names))


def read_spark_schema(table: DeltaTable) -> StructType:
    """Returns the columns of an open table as Spark types."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def _is_plain_parquet(table: DeltaTable) -> bool:
    """Whether a table's rows are exactly what its files hold, under the names of its columns."""
    return log.has_plain_reader_protocol(table) and not table.metadata().partition_columns


def is_nullable_throughout(schema: StructType) -> bool:
    """Whether NULL may stand everywhere: Spark's Parquet reader gives frames of such schemas only, and Arrow has no NULL elsewhere."""
    said = schema.json()
    return '"nullable":false' not in said and '"containsNull":false' not in said and '"valueContainsNull":false' not in said


def compute_aggregates(rows: DataFrame, *asked: Column) -> dict[str, Any]:
    """Returns the aggregates of all rows, by name.

    The one row is collected as it is: `first` would put a LIMIT above it, with which Spark analyses and plans the query once more.
    """
    (row,) = rows.agg(*asked).collect()
    found: dict[str, Any] = row.asDict()
    return found
