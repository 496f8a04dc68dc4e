"""Row for row: whether a contestant's tables and views hold what those of DuckDB hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from of_tpch.queries import list_queries
from of_tpch.tables import TABLES

Cell = Any
Row = Mapping[str, Cell]

RELATIVE, ABSOLUTE = 1e-9, 1e-6
"""Means and quotients: Spark rounds a mean of DECIMAL(15, 2) to six digits, and DuckDB gives a DOUBLE."""


def is_same_cell(one: Cell, other: Cell) -> bool:
    """Whether two cells are equal. Two numbers of which one is no exact number need only be close."""
    if isinstance(one, Decimal | float) and isinstance(other, Decimal | float) and float in (type(one), type(other)):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(one == other)


def find_row_difference(rows: Sequence[Row], others: Sequence[Row], keys: Sequence[str]) -> str | None:
    """The first difference of two views in words; None where they are equal, row for row. Raises KeyError for an unknown key."""
    by_key, others_by_key = ({tuple(row[key] for key in keys): row for row in view} for view in (rows, others))
    if len(by_key) != len(rows) or len(others_by_key) != len(others):
        return "a key comes twice"
    if by_key.keys() != others_by_key.keys():
        return f"{len(by_key.keys() - others_by_key.keys())} rows too many, {len(others_by_key.keys() - by_key.keys())} lacking"
    for key, row in by_key.items():
        other = others_by_key[key]
        if row.keys() != other.keys():
            return f"the columns {sorted(row.keys() ^ other.keys())} are in one only"
        for column, cell in row.items():
            if not is_same_cell(cell, other[column]):
                return f"{column} of {key} is {cell!r}, and {other[column]!r} in DuckDB"
    return None


def check_equality(read: Callable[[str], pa.Table], database: str) -> dict[str, int]:
    """The rows of each view. read: a table of the contestant. Raises AssertionError where a table or a view differs from DuckDB's."""
    found = {}
    with duckdb.connect(database, read_only=True) as expected:
        for table in TABLES:
            columns = ", ".join(table.column_names)
            expected.register("of_contestant", read(table.name))
            ours, theirs = f"SELECT {columns} FROM of_contestant", f"SELECT {columns} FROM {table.name}"
            for one, other in ((ours, theirs), (theirs, ours)):
                ((differing,),) = expected.execute(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})").fetchall()
                assert not differing, f"{table.name} differs in {differing} rows"
        for query in list_queries():
            rows = expected.sql(f"FROM {query.name}").to_arrow_table().to_pylist()
            difference = find_row_difference(read(query.name).to_pylist(), rows, query.keys)
            assert difference is None, f"{query.name}: {difference}"
            found[query.name] = len(rows)
    return found
