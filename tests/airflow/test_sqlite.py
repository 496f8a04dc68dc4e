"""Airflow's one database file, while others write it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestration.server.sqlite import Connection, OneWriter


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "airflow.db"
    with closing(sqlite3.connect(found)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE theirs (number INTEGER)")
        connection.execute("CREATE TABLE ours (number INTEGER)")
    return found


@contextmanager
def another_that_writes(file: Path) -> Iterator[None]:
    stopped = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(file, timeout=60)) as connection:
            while not stopped.is_set():
                with connection:
                    connection.execute("INSERT INTO theirs VALUES (1)")
                time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stopped.set()
        writer.join()


def read_and_write(connection: sqlite3.Connection, meanwhile: Callable[[], None]) -> None:
    """Makes a run as Airflow does for a backfill. meanwhile: what happens between its reading and its writing."""
    cursor = connection.cursor()
    cursor.execute("SAVEPOINT one")
    cursor.execute("SELECT count(*) FROM theirs").fetchall()
    meanwhile()
    cursor.execute("INSERT INTO ours VALUES (1)")
    cursor.execute("RELEASE SAVEPOINT one")
    connection.commit()


def test_what_was_read_in_a_savepoint_is_not_outdated_when_it_comes_to_writing(file: Path) -> None:
    with another_that_writes(file), closing(sqlite3.connect(file, timeout=60, factory=Connection)) as connection:
        for _ in range(20):
            read_and_write(connection, lambda: time.sleep(0.02))
        assert connection.cursor().execute("SELECT count(*) FROM ours").fetchone() == (20,)


def test_without_it_sqlite_refuses_at_once(file: Path) -> None:
    """If this test fails, Python's driver does it by itself, and the subclass can go."""
    with closing(sqlite3.connect(file, timeout=60)) as connection, closing(sqlite3.connect(file)) as another:

        def write() -> None:
            with another:
                another.execute("INSERT INTO theirs VALUES (1)")

        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            read_and_write(connection, write)


class Server:
    """Writes as Airflow's API server does: its audit log within the loop, the rest in a thread, whose commit goes through the loop."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.under_way = self.most = 0
        self.holds_lock = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if scope["method"] != "GET":
            with closing(sqlite3.connect(self.file, timeout=0.2)) as log, log:
                log.execute("INSERT INTO theirs VALUES (1)")
        with closing(sqlite3.connect(self.file, timeout=0.2, check_same_thread=False)) as connection:
            if scope["method"] != "GET":
                await asyncio.to_thread(connection.execute, "INSERT INTO ours VALUES (1)")
                self.holds_lock.set()
            await asyncio.sleep(0.01)
            await asyncio.to_thread(connection.commit)
        self.under_way -= 1


async def whole() -> Any:
    return {"type": "http.request", "body": b"{}"}


def ask(application: Any, method: str) -> list[BaseException | None]:
    async def together() -> Any:
        requests = [application({"type": "http", "method": method}, whole, None) for _ in range(10)]
        return await asyncio.gather(*requests, return_exceptions=True)

    return asyncio.run(together())  # type: ignore[no-any-return]


def test_requests_that_write_do_not_wait_for_each_other_within_the_loop(file: Path) -> None:
    assert ask(OneWriter(Server(file)), "PUT") == [None] * 10


def test_without_turns_the_server_waits_for_itself(file: Path) -> None:
    """What Airflow 3.3.2 did: the waiting ends by SQLite's patience only."""
    server, request = Server(file), {"type": "http", "method": "PUT"}

    async def ask_while_another_is_served() -> None:
        first = asyncio.create_task(server(request, whole, None))
        await server.holds_lock.wait()
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            await server(request, whole, None)
        await first

    asyncio.run(ask_while_another_is_served())


def test_requests_that_read_go_together(file: Path) -> None:
    server = Server(file)
    assert ask(OneWriter(server), "GET") == [None] * 10
    assert server.most > 1


class Echo:
    """Answers with the body that it was sent."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert not message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": message["body"]})


Sent = list[dict[str, Any]]


async def ask_in_parts(application: Any, parts: Sent, answered: Sent, stalls_at_answer: bool = False) -> None:
    """One request whose body comes in these parts; after the last of them nothing comes any more."""
    coming = iter(parts)

    async def receive() -> Any:
        for message in coming:
            return message
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        answered.append(message)
        if stalls_at_answer:
            await asyncio.Event().wait()

    await application({"type": "http", "method": "POST"}, receive, send)


def part(body: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_nobody_who_sends_no_body_or_takes_no_answer_keeps_others_from_their_turn() -> None:
    async def three() -> tuple[Sent, Sent]:
        application = OneWriter(Echo(), body_seconds=3)
        slow: Sent = []
        other: Sent = []
        silent = asyncio.create_task(ask_in_parts(application, [part(b"{", True)], slow))
        deaf = asyncio.create_task(ask_in_parts(application, [part(b"", False)], [], stalls_at_answer=True))
        await asyncio.sleep(0)
        await asyncio.wait_for(ask_in_parts(application, [part(b"a", True), part(b"b", False)], other), 60)
        assert not silent.done(), "it kept nobody waiting"
        await silent
        deaf.cancel()
        return slow, other

    slow, other = asyncio.run(three())
    assert [message.get("status", message.get("body")) for message in other] == [200, b"ab"]
    assert slow[0]["status"] == 408 and b"3 seconds" in slow[1]["body"]


def test_a_body_that_is_too_large_is_refused_and_one_who_has_gone_is_not_served() -> None:
    answered: Sent = []
    application = OneWriter(Echo(), largest=3)
    asyncio.run(ask_in_parts(application, [part(b"ab", True), part(b"cd", True)], answered))
    assert answered[0]["status"] == 413 and (b"connection", b"close") in answered[0]["headers"]
    answered.clear()
    asyncio.run(ask_in_parts(application, [part(b"ab", True), {"type": "http.disconnect"}], answered))
    assert answered == []
