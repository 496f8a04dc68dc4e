"""Keeps records that were read on the disk, as Parquet, for the passes that write them, so that neither the plan nor Spark's cache holds all.

They lie in a folder below the session's local files, beside shuffled and spilt rows: nobody else may read it, and what a killed session leaves
is removed with it. Workers load no Spark for it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GROUP = 16_000_000
"""About how many bytes of rows are written together."""


def make_staging_folder(session: SparkSession) -> Path:
    """Makes a new empty folder below the session's local files, with mode 0700."""
    return Path(tempfile.mkdtemp(prefix="sluice-staged-", dir=session.sparkContext._temp_dir))


def remove_staging_folder(folder: Path) -> None:
    """Removes the folder with its rows. Does nothing if it is gone."""
    shutil.rmtree(folder, ignore_errors=True)


def read_staged_rows(session: SparkSession, folder: Path, schema: StructType) -> DataFrame:
    """Returns the rows of all files of a folder, which has at least one. schema: the one that they were written with."""
    return session.read.schema(schema).parquet(str(folder))


class StagedRowsWriter:
    """Writes rows of one schema into one file. The first row creates the file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._writer: parquet.ParquetWriter | None = None

    def __enter__(self) -> StagedRowsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._write_waiting()
        if self._writer is not None:
            self._writer.close()

    def add_rows(self, rows: pa.Table) -> None:
        """Writes rows after the others, or keeps them until there are enough."""
        if not rows.num_rows:
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _GROUP:
            self._write_waiting()

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, self._schema, compression="snappy", write_statistics=False)
        self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
