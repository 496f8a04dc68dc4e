"""What whoever takes a lease over writes into each table: a commit of metadata, the epoch, with which a commit that was under way collides.

Neither Spark nor delta-rs asks anybody at the moment of its commit. A commit that an earlier holder had computed before finds its version taken;
Spark then looks at what came between and gives up, because the metadata changed, and delta-rs does not try again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from sluice.delta_log import open_delta_table
from sluice.errors import SluiceError
from sluice.lake.actions import find_delta_tables
from sluice.locations import Location
from sluice.stores.settling import settle_store_commit, store_commit_properties
from sluice.table_properties import EPOCH
from sluice.work_progress import count_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_ATTEMPTS = 20
"""How often a commit is tried: what an earlier holder has under way can come first, once a table."""


def commit_epoch_to_tables(root: Location, epoch: int, session: SparkSession | None = None) -> None:
    """Commits the epoch to every table below a folder, declared or not. Call it under the lease, before anything else is committed.

    session: for tables that delta-rs does not write. Raises SluiceError for one of these without a session, and OSError; the takeover is
    then not done, and whoever takes the lease next does it again.
    """
    tables = list(find_delta_tables(root))
    with count_work("tables taken over", len(tables)) as work:
        for table in tables:
            _commit_epoch(str(table), epoch, session)
            work.advance()


def _commit_epoch(path: str, epoch: int, session: SparkSession | None) -> None:
    for _ in range(_ATTEMPTS):
        try:
            table = open_delta_table(path)
        except TableNotFoundError:  # its first commit was never made
            return
        properties = store_commit_properties(path)
        try:
            with settle_store_commit(path, table, properties):
                table.alter.set_table_properties(
                    {EPOCH: str(epoch)},
                    raise_if_not_exists=False,
                    commit_properties=properties,
                    post_commithook_properties=_NO_HOOKS,
                )
        except CommitFailedError:
            continue
        except DeltaError as error:  # its protocol asks for more than delta-rs knows
            if session is None:
                raise SluiceError(
                    f"The table {path} cannot be taken over from a run that ended without giving up its lease: only Spark can write it. "
                    "Run the pipeline, which does it, then do this again."
                ) from error
            session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{EPOCH}' = '{epoch}')")
        return
    raise SluiceError(f"Somebody else keeps writing to the table {path}. The lease was not taken over. Run again.")
