"""Stages records on the disk, as Parquet, for the passes that write them, so that neither the plan nor Spark's cache holds them all.

On one machine they are in a folder below the session's local files, beside shuffled and spilt rows: nobody else may read it, and it is removed
with what a killed session leaves. On a cluster, executors share only the lake's disk with the driver: there the folder is below the pipeline's
own, and the next application that stages rows removes a killed one's. The workers load no Spark for this.
"""

from __future__ import annotations

import os
import re
import tempfile
import uuid
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from sluice.locations import Location, is_on_disk, locate, put_file_in_place, remove_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GROUP = 16_000_000
"""About how many bytes of rows are written together."""


_OF_APPLICATION = "of-"
"""The prefix of the names of folders on a shared disk; the id of a Spark application follows."""


def make_staging_folder(session: SparkSession, shared: Location) -> Location:
    """Makes a new empty folder, of mode 0700, that executors reach: below the session's local files, or, on a cluster, below `shared`.

    shared: a folder of the lake in which only the holder of the lease stages rows. It need not be there.
    """
    context = session.sparkContext
    if str(context.master).startswith("local"):
        return locate(tempfile.mkdtemp(prefix="sluice-staged-", dir=context._temp_dir))
    shared.mkdir(parents=True, exist_ok=True, mode=0o700)
    own = f"{_OF_APPLICATION}{context.applicationId}-"
    for left in shared.glob(f"{_OF_APPLICATION}*"):
        if not left.name.startswith(own):
            remove_staging_folder(left)
    if not is_on_disk(shared):
        return shared / f"{own}{uuid.uuid4().hex}"
    return locate(tempfile.mkdtemp(prefix=own, dir=shared))


def _make_executor_folder() -> Location:
    """Makes a folder of mode 0700 below the local files of this executor, which Spark removes with it if it is killed."""
    folders = os.environ.get("SPARK_EXECUTOR_DIRS") or os.environ.get("SPARK_LOCAL_DIRS") or ""
    first = re.split("[:,]", folders)[0]
    if first:
        locate(first).mkdir(parents=True, exist_ok=True, mode=0o700)  # the driver of a cluster has none until it spills
    return locate(tempfile.mkdtemp(prefix="sluice-staged-", dir=first or None))


def remove_staging_folder(folder: Location) -> None:
    """Removes the folder with its rows. Does nothing if it is gone."""
    remove_folder(folder)


def read_staged_rows(session: SparkSession, folder: Location, schema: StructType) -> DataFrame:
    """Returns the rows of all files of a folder, which has at least one. schema: the one that they were written with."""
    return session.read.schema(schema).parquet(str(folder))


class StagedRowsWriter:
    """Writes rows of one schema into one file, which is there when all of them are. Without rows there is none.

    Two workers may write the same file: one whose executor was lost, and is not dead yet, and the one that does its task again.
    """

    def __init__(self, path: Location, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        own = f"_{path.name}.{uuid.uuid4().hex}"  # which Spark does not read
        # What is to go to a store is collected on this machine's disk: a store takes it whole.
        self._partial = path.with_name(own) if is_on_disk(path) else _make_executor_folder() / own
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._writer: parquet.ParquetWriter | None = None

    def __enter__(self) -> StagedRowsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._write_waiting()
        try:
            if self._writer is not None:
                self._writer.close()
                if kind is None:
                    put_file_in_place(self._partial, self._path)
        finally:
            self._partial.unlink(missing_ok=True)
            if self._partial.parent != self._path.parent:
                remove_folder(self._partial.parent)

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
            self._writer = parquet.ParquetWriter(self._partial, self._schema, compression="snappy", write_statistics=False)
        self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
