"""How large a frame's rows are: what decides whether they may go through the memory of the driver's Python."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class RowsSize:
    """At most so many rows, and at most so many bytes of values whose length is not that of their type; None: nobody knows how many."""

    rows: int
    text_bytes: int | None = None

    def __add__(self, other: RowsSize) -> RowsSize:
        known = self.text_bytes is not None and other.text_bytes is not None
        return RowsSize(self.rows + other.rows, (self.text_bytes or 0) + (other.text_bytes or 0) if known else None)


def measure_rows(rows: DataFrame) -> RowsSize:
    """The size of a frame, in one pass over its rows."""
    found = rows.agg(F.count("*").alias("rows"), sum_text_bytes(rows).alias("bytes")).first()
    return RowsSize(found["rows"], int(found["bytes"] or 0)) if found else RowsSize(0, 0)


def measure_inline_rows(rows: Iterable[Iterable[object]]) -> RowsSize:
    """The size of rows that are here."""
    sizes = [sum(len(str(value)) for value in row) for row in rows]
    return RowsSize(len(sizes), 4 * sum(sizes))  # a letter is four bytes at most


def sum_text_bytes(rows: DataFrame) -> Column:
    """An aggregate: how many bytes the values have whose length is not that of their type."""
    lengths = []
    for field in rows.schema:
        column = F.col(f"`{field.name}`")
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            column = F.to_json(F.struct(column))
        elif field.dataType.typeName() not in ("string", "binary"):
            continue
        lengths.append(F.coalesce(F.octet_length(column), F.lit(0)).cast("long"))
    return F.sum(functools.reduce(lambda a, b: a + b, lengths, F.lit(0).cast("long")))
