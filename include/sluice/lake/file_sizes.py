"""How large OPTIMIZE makes the files of a table, and from which size on a file stays as it is."""

from __future__ import annotations

from sluice.lake import log
from sluice.table_properties import TARGET_FILE_SIZE

ONE_FILE = 1024 * 1024 * 1024
"""The size of the files that Delta's OPTIMIZE makes."""
ORDERED_FILE = 16 * 1024 * 1024
"""The size of the files for ordered rows: a query then opens only some of them."""


def read_declared_file_size(path: str) -> int | None:
    """Returns the bytes that a table's property says its files should have; None if it says nothing, or no number. Raises DamagedLog."""
    said = log.read_table_properties(path).get(TARGET_FILE_SIZE, "")
    return int(said) if said.isdecimal() and int(said) > 0 else None


def choose_file_size(path: str, ordered: bool) -> int:
    """Returns how many bytes OPTIMIZE should give each of the table's files. ordered: whether an order of rows is declared."""
    return read_declared_file_size(path) or (ORDERED_FILE if ordered else ONE_FILE)
