"""Writes the epoch into each table when a lease is taken over: a commit of metadata, with which a commit that is under way collides.

Neither Spark nor delta-rs checks the lease at the moment of its commit. A commit that an earlier holder prepared finds its version taken.
Spark then examines the commits in between and gives up, because the metadata changed; delta-rs does not try again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from sluice.delta_rs_commits import NO_COMMIT_HOOKS
from sluice.errors import SluiceError
from sluice.lake.log_files import find_delta_tables
from sluice.lake.written_alike import are_properties_set_alike
from sluice.locations import Location
from sluice.open_tables import open_delta_table
from sluice.stores.commit_settling import settle_store_commit, store_commit_properties
from sluice.table_properties import EPOCH
from sluice.work_progress import count_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 20
"""How many times a commit is tried: an earlier holder's commit can come first, once for each table."""


def commit_epoch_to_tables(root: Location, epoch: int, session: SparkSession | None = None) -> None:
    """Commits the epoch to every table below a folder, declared or not. Call it under the lease, before anything else is committed.

    session: for tables that delta-rs does not write. Raises SluiceError for one of these without a session, and OSError; the takeover is
    then unfinished, and the next holder does it again.
    """
    tables = list(find_delta_tables(root))
    with count_work("tables taken over", len(tables)) as work:
        for table in tables:
            _commit_epoch(str(table), epoch, session)
            work.advance()


def _commit_epoch(path: str, epoch: int, session: SparkSession | None) -> None:
    for _ in range(_ATTEMPTS):
        try:
            table = _open_written_alike(path)
        except TableNotFoundError:  # its first commit was never made
            return
        done = _commit_by_spark(path, epoch, session) if table is None else _commit_by_delta_rs(path, table, epoch)
        if done:
            return
    raise SluiceError(f"Somebody else keeps writing to the table {path}. The lease was not taken over. Run again.")


def _open_written_alike(path: str) -> DeltaTable | None:
    """Returns the table if delta-rs may write it and leaves its protocol as it is. Raises TableNotFoundError.

    Trying would not tell: delta-rs refuses a clustered table with the error of a collision, and gives one with deletion vectors the reader
    feature for VARIANT (deltalake 1.6.6).
    """
    try:
        table = open_delta_table(path)
    except TableNotFoundError:
        raise
    except DeltaError:  # delta-rs does not even know its protocol
        return None
    return table if are_properties_set_alike(table) else None


def _commit_by_delta_rs(path: str, table: DeltaTable, epoch: int) -> bool:
    """Returns whether the commit succeeded; False if another was faster. Raises LeaseLost."""
    properties = store_commit_properties(path)
    try:
        with settle_store_commit(path, table, properties):
            table.alter.set_table_properties(
                {EPOCH: str(epoch)},
                raise_if_not_exists=False,
                commit_properties=properties,
                post_commithook_properties=NO_COMMIT_HOOKS,
            )
    except CommitFailedError:
        return False
    return True


def _commit_by_spark(path: str, epoch: int, session: SparkSession | None) -> bool:
    """Returns whether the commit succeeded, as `_commit_by_delta_rs` does. Raises SluiceError if there is no session."""
    if session is None:
        raise SluiceError(
            f"The table {path} cannot be taken over from a run that ended without giving up its lease: only Spark can write it. "
            "Run the pipeline, which does it, then do this again."
        )
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{EPOCH}' = '{epoch}')")
    except (PySparkException, Py4JJavaError) as error:
        if "DELTA_CONCURRENT" in str(error) or "DELTA_METADATA_CHANGED" in str(error):
            return False
        raise
    return True
