"""Sets properties of a table in one commit: through delta-rs if its protocol and the properties allow that, else through Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from sluice.declare.sql.schema import sql_literal
from sluice.delta_rs_commits import NO_COMMIT_HOOKS, complete_commit
from sluice.errors import SluiceError
from sluice.lake.commit_marks import read_session_mark
from sluice.lake.layout_properties import PropertyChanges, list_names_unknown_to_spark
from sluice.lake.small_writes import SmallWriteFailed
from sluice.lake.written_alike import are_properties_set_alike
from sluice.open_tables import keep_written_table, open_table_to_change
from sluice.stores.opening import is_store_url
from sluice.stores.settling import settle_store_commit, store_commit_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANY_NAME = "spark.databricks.delta.allowArbitraryProperties.enabled"
"""`complete_commit` decides when a checkpoint is due."""


_ATTEMPTS = 3
"""How often a commit is tried that somebody else's comes before."""


def change_table_properties(session: SparkSession, path: str, changes: PropertyChanges) -> None:
    """Makes the changes; no file is rewritten. Call this under the lease, and only if there are some.

    On a disk they are tried again if somebody else writes meanwhile. On a store that may be whoever took the lease over.

    Raises SluiceError if somebody else keeps writing, SmallWriteFailed for all else.
    """
    if changes.fit_delta_rs and _set_by_delta_rs(path, changes, read_session_mark(session)):
        return
    with allow_layout_properties(session, changes.given):
        if changes.given:
            said = ", ".join(f"'{name}' = {sql_literal(value)}" for name, value in changes.given.items())
            session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({said})")
        if changes.taken:
            gone = ", ".join(f"'{name}'" for name in changes.taken)
            session.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES IF EXISTS ({gone})")


def _set_by_delta_rs(path: str, changes: PropertyChanges, mark: str | None) -> bool:
    """Returns whether it was done: delta-rs does not write every table. Errors are those of `change_table_properties`."""
    for _ in range(1 if is_store_url(path) else _ATTEMPTS):
        table = open_table_to_change(path)
        if not are_properties_set_alike(table):
            return False
        if _commit_properties(path, table, changes, mark):
            return True
    raise SluiceError(
        f"Somebody else wrote to the table {path} when its properties were set, and they were not. "
        "What was committed before stands. Run again."
    )


def _commit_properties(path: str, table: DeltaTable, changes: PropertyChanges, mark: str | None) -> bool:
    """Returns whether it was done; if not, another's commit came first. Raises SmallWriteFailed for all else."""
    properties = store_commit_properties(path, {"userMetadata": mark} if mark else None)
    try:
        with settle_store_commit(path, table, properties):
            table.alter.set_table_properties(
                dict(changes.given),
                raise_if_not_exists=False,  # Sluice's own properties
                commit_properties=properties,
                post_commithook_properties=NO_COMMIT_HOOKS,
            )
    except CommitFailedError:
        return False
    except DeltaError as error:
        raise SmallWriteFailed(f"{path}: {type(error).__name__}") from error
    complete_commit(path, table)
    keep_written_table(path, table)
    return True


@contextmanager
def allow_layout_properties(session: SparkSession, names: Iterable[str]) -> Iterator[None]:
    """Lets Delta on Spark set those of these properties that it does not know. Outside the block, Delta checks all names as usual."""
    if not list_names_unknown_to_spark(names):
        yield
        return
    before = session.conf.get(_ANY_NAME, None)
    session.conf.set(_ANY_NAME, "true")
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_ANY_NAME)
        else:
            session.conf.set(_ANY_NAME, before)
