"""How the local Airflow's processes share one SQLite file. Airflow is told of CONNECT_ARGS by a setting; it imports no Airflow."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
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


class OneWriter:
    """A middleware of the API server that lets one request at a time change something.

    A request of the API commits when the server's event loop comes back to it, and another one writes its entry of the audit log
    within that loop. If the first has written already, the second waits for a lock that only the loop itself could free:
    the whole server stands still until `SECONDS` are over, and answers 500 then. Seen on Airflow 3.3.2 with a backfill that was
    cancelled while a task began.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, in its turn if it may write."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        async with self._turn:
            await self._app(scope, receive, send)


def is_used() -> bool:
    """Whether this process's Airflow keeps its database in SQLite; somebody may have chosen another one."""
    return os.environ.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "").startswith("sqlite:")


CONNECT_ARGS: dict[str, Any] = {"factory": Connection, "timeout": SECONDS} if is_used() else {}
"""What the driver is given beside the file."""
