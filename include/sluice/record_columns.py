"""The columns of Sluice's record tables, made from the classes that declare them, a field each.

A class is a dataclass or a TypedDict, or a NamedTuple if Spark writes the rows. A new column is one more field. Tables of older lakes get it
with their next row (`sluice.record_tables`), and it is NULL in earlier rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa

_KINDS = {
    str: (pa.string(), "STRING"),
    int: (pa.int64(), "BIGINT"),
    float: (pa.float64(), "DOUBLE"),
    datetime: (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
}
"""How values are stored: for Arrow, and for Spark's DDL."""


def make_record_schema(*declared: type, all_nullable: bool = False) -> pa.Schema:
    """The schema of a table whose columns these classes declare, in their order. A mapping is stored as the text of a JSON object.

    A column may be NULL if its type allows None or its field has a default. all_nullable: every column may.
    """
    return pa.schema([
        pa.field(name, _KINDS[kind][0], nullable=all_nullable or optional)
        for one in declared
        for name, kind, optional in _list_columns(one)
    ])


def build_record_ddl(declared: type) -> str:
    """The columns that a class declares as Spark's DDL; each may be NULL."""
    return ", ".join(f"{name} {_KINDS[kind][1]}" for name, kind, _ in _list_columns(declared))


def list_object_columns(*declared: type) -> tuple[str, ...]:
    """The names of the columns that hold a JSON object."""
    return tuple(name for one in declared for name, hint in get_type_hints(one).items() if _is_object(hint))


def _list_columns(declared: type) -> Iterator[tuple[str, type, bool]]:
    """Yields the name of each column, its type, a mapping being text, and whether it may be NULL."""
    for name, hint in get_type_hints(declared).items():
        of = [one for one in get_args(hint) if one is not NoneType]
        optional = NoneType in get_args(hint)
        yield name, str if _is_object(hint) else of[0] if optional else hint, optional or name in vars(declared)


def _is_object(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)
