"""Which files of a table hold rows that are only marked as deleted: by its log, without a JVM."""

from __future__ import annotations

import pyarrow as pa

from sluice.lake import log
from sluice.open_tables import open_checked_table


def count_files_with_deleted_rows(path: str) -> int:
    """Returns how many files of the latest version have a deletion vector. Raises DamagedLog, and TableNotFoundError if there is no table."""
    table = open_checked_table(path)
    if not log.may_have_deletion_vectors(table):
        return 0
    found = pa.RecordBatchReader.from_stream(table.deletion_vectors())
    return sum(batch.num_rows for batch in found)
