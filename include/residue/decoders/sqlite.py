"""SQLite: the cells of all tables, read without changing or locking anything. Free pages are in the search over raw bytes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from residue.cells import open_cells
from residue.damage import DamagedContent
from residue.inspection import Inspection

_ROWS = 1000


def search_sqlite_database(path: Path | None, content: bytes | None, inspection: Inspection) -> None:
    """All texts, blobs and whole numbers of a database. path: the file; content: its bytes, where it is within another one."""
    try:
        if path is not None:
            connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
        else:
            connection = sqlite3.connect(":memory:")
            connection.deserialize(content or b"")
    except sqlite3.Error:
        raise DamagedContent("the SQLite database cannot be opened") from None
    try:
        connection.text_factory = _SqliteText
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            _search_sqlite_table(connection, name.decode("utf-8", "replace"), inspection)
    except sqlite3.Error:
        raise DamagedContent("the SQLite database cannot be read") from None
    finally:
        connection.close()


class _SqliteText(bytes):
    """The bytes of a text, to tell it from a blob."""


def _search_sqlite_table(connection: sqlite3.Connection, name: str, inspection: Inspection) -> None:
    quoted = name.replace('"', '""')
    try:
        found = connection.execute(f'SELECT * FROM "{quoted}"')
    except sqlite3.OperationalError as error:
        if "no such module" in str(error):  # a virtual table: what it shows is kept in tables of its own
            return
        raise
    columns = [column[0] for column in found.description]
    while rows := found.fetchmany(_ROWS):
        for number, column in enumerate(columns):
            _search_sqlite_column([row[number] for row in rows], column, inspection)


def _search_sqlite_column(values: list[Any], column: str, inspection: Inspection) -> None:
    inspection.several("sqlite", (value for value in values if isinstance(value, bytes)), column)
    open_cells((value for value in values if type(value) is bytes), inspection)
    numbers = [value for value in values if isinstance(value, int)]
    if numbers:
        inspection.numbers("sqlite", column, np.array(numbers, np.int64))
    floats = [value for value in values if isinstance(value, float)]
    if floats:
        inspection.numbers("sqlite", column, np.array(floats, np.float64))
