"""A part of a table by the hash of its keys: large tables, and those made from many rows, are compared part by part."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.quoting import quote_columns

if TYPE_CHECKING:
    from pyspark.sql import Column

MOST_ROWS = 250_000
"""A table that has, or is made from, more rows is compared in parts: one takes about 5 CPU seconds of a run."""
_MOST_PARTS = 64
_WHOLE_VALUES = ("byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz", "boolean")
"""The types of keys that can be hashed. Fractions cannot: two equal ones may be written differently."""
_NAMED = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True)
class TablePart:
    """Part `number`, counted from 1, of `of` parts. `of` is a power of two, so that parts of different counts contain one another."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def holds(self, other: TablePart) -> bool:
        """Whether all rows of the other part are in this one."""
        return other.of >= self.of and (other.number - self.number) % self.of == 0

    def condition(self, keys: Sequence[str]) -> Column:
        """The condition for rows of the part. Spark pushes it below groups and windows by these keys."""
        return F.pmod(F.xxhash64(*quote_columns(keys)), F.lit(self.of)) == self.number - 1


WHOLE = TablePart(1, 1)
"""The whole table."""


def do_parts_cover(parts: Collection[TablePart], whole: TablePart) -> bool:
    """Whether all rows of a part are in these parts together."""
    of = max(whole.of, *(one.of for one in parts)) if parts else whole.of
    smallest = (TablePart(number, of) for number in range(whole.number, of + 1, whole.of))
    return all(any(one.holds(each) for one in parts) for each in smallest)


def parse_table_part(text: str | None) -> TablePart | None:
    """Parses a part as `str` writes it; None if the text is no part."""
    named = _NAMED.fullmatch(text or "")
    return TablePart(int(named[1]), int(named[2])) if named else None


def list_table_parts(rows: int, made_of: int) -> list[TablePart]:
    """The parts to compare one at a time; a single one is the whole table. made_of: the most rows it may be made from."""
    of = 1
    while of < _MOST_PARTS and of < rows and of * MOST_ROWS < max(rows, made_of):
        of *= 2
    return [TablePart(number, of) for number in range(1, of + 1)]


def are_keys_divisible(schema: StructType, keys: Sequence[str]) -> bool:
    """Whether a table can be split into parts by these keys."""
    return bool(keys) and all(key in schema.names and schema[key].dataType.typeName() in _WHOLE_VALUES for key in keys)
