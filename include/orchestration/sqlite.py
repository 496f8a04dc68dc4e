"""How the local Airflow's processes share one SQLite file. Airflow is told of CONNECT_ARGS by a setting; it imports no Airflow."""

from __future__ import annotations

import os
import sqlite3
from typing import Any, Self

SECONDS = 60.0
"""How long a process waits for another that writes. SQLite has one writer at a time; its own patience is 5 seconds."""


class Cursor(sqlite3.Cursor):
    """Takes the lock for writing before a savepoint that begins a transaction.

    Python's driver begins a transaction before a write, but not before a savepoint. What is read in one that began by a savepoint
    may be outdated when it comes to writing, and SQLite then answers "database is locked" at once, however long one would wait:
    Airflow makes the runs of a backfill in such savepoints, while the scheduler writes.
    """

    def execute(self, statement: str, parameters: Any = (), /) -> Self:
        """Run a statement."""
        if statement.startswith("SAVEPOINT") and not self.connection.in_transaction:
            super().execute("BEGIN IMMEDIATE")
        super().execute(statement, parameters)
        return self


class Connection(sqlite3.Connection):
    """Gives such cursors."""

    def cursor(self, factory: Any = Cursor) -> Any:
        """A cursor of this connection."""
        return super().cursor(factory)


def _connect_args() -> dict[str, Any]:
    """What the driver is given beside the file; nothing where somebody has chosen another database."""
    if not os.environ.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "").startswith("sqlite:"):
        return {}
    return {"factory": Connection, "timeout": SECONDS}


CONNECT_ARGS = _connect_args()
