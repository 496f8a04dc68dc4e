"""Writes files anew of which some rows are only marked as deleted, so that these rows are gone with the old files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.errors import SluiceError
from sluice.lake.deletion_vectors import count_files_with_deleted_rows
from sluice.lake.log_files import read_cluster_columns
from sluice.lake.table_creation import cluster_from_now_on
from sluice.printable import count_noun, match_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def purge_marked_rows(session: SparkSession, path: str, where: str = "") -> tuple[int, int]:
    """Writes all files with such rows anew. Returns how many there were, and how many are in their place.

    where: "" or " WHERE ..." on columns of partitions. REORG (Delta 4.4) passes over what OPTIMIZE has clustered, without a word. Such a table
    is rewritten while it is clustered by nothing; a run that is killed meanwhile leaves it so until its declaration is applied again.

    Raises SluiceError if a file is left that has such rows.
    """
    statement = f"REORG TABLE delta.`{path}`{where} APPLY (PURGE)"
    before, after = rewrite_files(session, statement)
    clustered = () if where or not count_files_with_deleted_rows(path) else read_cluster_columns(path)
    if clustered:
        cluster_from_now_on(session, path, ())
        try:
            were, are = rewrite_files(session, statement)
        finally:
            cluster_from_now_on(session, path, clustered)
        before, after = before + were, after + are
    left = 0 if where else count_files_with_deleted_rows(path)
    if left:
        raise SluiceError(
            f"{count_noun(left, 'file')} of the table {path} still {match_number(left, 'has', 'have')} rows only marked as deleted."
        )
    return before, after


def rewrite_files(session: SparkSession, statement: str) -> tuple[int, int]:
    """Carries out an OPTIMIZE or a REORG. Returns how many files it removed and added."""
    metrics = session.sql(statement).select("metrics.numFilesRemoved", "metrics.numFilesAdded").first()
    return (metrics[0], metrics[1]) if metrics else (0, 0)
