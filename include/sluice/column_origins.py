"""Records where a table's columns come from: names of tables and columns, and how. No value, no condition, no text of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

IDENTITY, TRANSFORMATION, AGGREGATION = "identity", "transformation", "aggregation"
DIRECT = (IDENTITY, TRANSFORMATION, AGGREGATION)
"""How a value comes from another: unchanged, by an expression, or from several rows. In a chain, the last one in this order counts."""
FILTER, JOIN, GROUP_BY, SORT, WINDOW = "filter", "join", "group by", "sort", "window"
INDIRECT = (FILTER, JOIN, GROUP_BY, SORT, WINDOW)
"""How a column decides which rows a table has, without being part of their values."""


@dataclass(frozen=True, order=True)
class Origin:
    """A column of an input, and how it counts: one of DIRECT or INDIRECT."""

    table: str
    column: str
    way: str


@dataclass(frozen=True)
class TracedColumn:
    """A column of a table. type: in Spark's spelling. treated: what replaces a personal value; None if nothing does."""

    name: str
    type: str
    origins: tuple[Origin, ...] = ()
    treated: str | None = None


@dataclass(frozen=True)
class TableOrigins:
    """All columns of a table. rows_by: the columns of inputs that decide which rows there are.

    mark: of the declaration and the inputs' columns from which this was found; if it differs, the table must be traced again.
    """

    table: str
    mark: str
    columns: tuple[TracedColumn, ...]
    rows_by: tuple[Origin, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tables that any of its columns or rows come from."""
        origins = [*self.rows_by, *(one for column in self.columns for one in column.origins)]
        return tuple(sorted({one.table for one in origins}))


def table_origins_to_json(found: TableOrigins) -> dict[str, Any]:
    """The form in which it is recorded."""
    return {
        "mark": found.mark,
        "columns": [
            {
                "name": one.name,
                "type": one.type,
                "from": _origins_to_json(one.origins),
                **({"treated": one.treated} if one.treated else {}),
            }
            for one in found.columns
        ],
        "rows_by": _origins_to_json(found.rows_by),
    }


def table_origins_from_json(table: str, said: Mapping[str, Any]) -> TableOrigins:
    """The recorded origins. Raises KeyError or TypeError if it is no such record."""
    columns = tuple(
        TracedColumn(one["name"], one["type"], _origins_from_json(one["from"]), one.get("treated")) for one in said["columns"]
    )
    return TableOrigins(table, said["mark"], columns, _origins_from_json(said["rows_by"]))


def _origins_to_json(origins: Iterable[Origin]) -> list[dict[str, str]]:
    return [{"table": one.table, "column": one.column, "way": one.way} for one in origins]


def _origins_from_json(said: Iterable[Mapping[str, str]]) -> tuple[Origin, ...]:
    return tuple(Origin(one["table"], one["column"], one["way"]) for one in said)
