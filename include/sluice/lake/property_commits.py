"""Sets properties of a table in one commit: through delta-rs if its protocol and the properties allow that, else through Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalake.exceptions import CommitFailedError, DeltaError

from sluice.declare.sql.schema import sql_literal
from sluice.delta_rs_commits import NO_COMMIT_HOOKS, complete_commit
from sluice.errors import table_collision
from sluice.lake.commit_marks import read_session_mark
from sluice.lake.layout_properties import PropertyChanges, list_names_unknown_to_spark
from sluice.lake.small_writes import SmallWriteFailed
from sluice.lake.written_alike import are_properties_set_alike
from sluice.open_tables import keep_written_table, open_table_to_change
from sluice.stores.settling import settle_store_commit, store_commit_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANY_NAME = "spark.databricks.delta.allowArbitraryProperties.enabled"
"""`complete_commit` decides when a checkpoint is due."""


def change_table_properties(session: SparkSession, path: str, changes: PropertyChanges) -> None:
    """Makes the changes; no file is rewritten. Call this under the lease, and only if there are some.

    Raises SluiceError if somebody else writes meanwhile, SmallWriteFailed for all else.
    """
    if changes.fit_delta_rs:
        table = open_table_to_change(path)
        if are_properties_set_alike(table):
            mark = read_session_mark(session)
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
                raise table_collision(path) from None
            except DeltaError as error:
                raise SmallWriteFailed(f"{path}: {type(error).__name__}") from error
            complete_commit(path, table)
            keep_written_table(path, table)
            return
    with allow_layout_properties(session, changes.given):
        if changes.given:
            said = ", ".join(f"'{name}' = {sql_literal(value)}" for name, value in changes.given.items())
            session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({said})")
        if changes.taken:
            gone = ", ".join(f"'{name}'" for name in changes.taken)
            session.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES IF EXISTS ({gone})")


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
