"""Airflow's one database file, while others write it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orchestration.sqlite import Connection


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


def read_and_write(connection: sqlite3.Connection) -> None:
    """As Airflow makes the run of a backfill."""
    cursor = connection.cursor()
    cursor.execute("SAVEPOINT one")
    cursor.execute("SELECT count(*) FROM theirs").fetchall()
    time.sleep(0.02)
    cursor.execute("INSERT INTO ours VALUES (1)")
    cursor.execute("RELEASE SAVEPOINT one")
    connection.commit()


def test_what_was_read_in_a_savepoint_is_not_outdated_when_it_comes_to_writing(file: Path) -> None:
    with another_that_writes(file), closing(sqlite3.connect(file, timeout=60, factory=Connection)) as connection:
        for _ in range(20):
            read_and_write(connection)
        assert connection.cursor().execute("SELECT count(*) FROM ours").fetchone() == (20,)


def test_without_it_sqlite_refuses_at_once(file: Path) -> None:
    """Where this passes no more, Python's driver does it by itself and the subclass can go."""
    with (
        another_that_writes(file),
        closing(sqlite3.connect(file, timeout=60)) as connection,
        pytest.raises(sqlite3.OperationalError, match="database is locked"),
    ):
        for _ in range(20):
            read_and_write(connection)
