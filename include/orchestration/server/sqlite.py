"""Lets the local Airflow's processes share one SQLite file. A setting of Airflow names CONNECT_ARGS. Imports no Airflow."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Self

SECONDS = 60.0
"""How long a process waits for another that writes. SQLite allows one writer at a time, and by itself waits 5 seconds."""

LARGEST_BODY = 32 << 20
"""The most bytes of a request that may write. It is read before its sender has to log in."""
BODY_SECONDS = 30.0
"""How long such a request may take to arrive."""


class Cursor(sqlite3.Cursor):
    """Takes the lock for writing before a savepoint that begins a transaction.

    Python's driver begins a transaction before a write, but not before a savepoint. Data read in a transaction that began by a savepoint
    may be outdated when it is about to write, and SQLite then answers "database is locked" at once, without waiting:
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

    A turn never waits for the sender of the request, who need not even have logged in: the body has arrived before the turn begins, and
    the answer is sent after it.
    """

    def __init__(
        self, app: Callable[..., Awaitable[None]], largest: int = LARGEST_BODY, body_seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self._largest = largest
        self._body_seconds = body_seconds
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, in its turn if it may write."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._body_seconds):
                body = await self._whole_body(receive)
        except TimeoutError:
            await _send_refusal(send, 408, f"The body did not come within {self._body_seconds:g} seconds.")
            return
        except ValueError:
            await _send_refusal(send, 413, f"The body has more than {self._largest} bytes.")
            return
        if body is None:
            return
        answer: list[Any] = []

        async def keep(message: Any) -> None:
            answer.append(message)

        async with self._turn:
            await self._app(scope, _replay_received_body(body, receive), keep)
        for message in answer:
            await send(message)

    async def _whole_body(self, receive: Any) -> bytes | None:
        """The body; None if the sender has gone. Raises ValueError if it is too large."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > self._largest:
                raise ValueError
            if not message.get("more_body", False):
                return bytes(body)


def _replay_received_body(body: bytes, receive: Any) -> Callable[[], Awaitable[Any]]:
    """Returns a function that gives a received body again, and then what follows it."""
    waiting: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Any:
        return waiting.pop() if waiting else await receive()

    return next_message


async def _send_refusal(send: Any, status: int, why: str) -> None:
    """Answer without asking Airflow. The connection ends, since the rest of the body may still come on it."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{why}\n".encode()})


def is_sqlite_used() -> bool:
    """Whether this process's Airflow keeps its database in SQLite; somebody may have chosen another one."""
    return os.environ.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "").startswith("sqlite:")


CONNECT_ARGS: dict[str, Any] = {"factory": Connection, "timeout": SECONDS} if is_sqlite_used() else {}
"""Arguments of the driver besides the file."""
