"""A part of a table, by the hash of its keys: what is compared at a time of a table that is large, or is made of much."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import Column

MOST_ROWS = 250_000
"""Of a table that has more rows, or is made of more, a part is compared at a time: about 5 CPU seconds a run."""
_MOST_PARTS = 64
_WHOLE_VALUES = ("byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz", "boolean")
"""The types of keys that can be hashed: not fractions, of which two may be equal and be written differently."""
_NAMED = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True)
class TablePart:
    """The part `number`, from 1 on, of `of` parts, which are a power of two: so parts of another number of parts lie in these, or hold them."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def holds(self, other: TablePart) -> bool:
        """Whether all rows of the other part are rows of this one."""
        return other.of >= self.of and (other.number - self.number) % self.of == 0

    def condition(self, keys: Sequence[str]) -> Column:
        """The condition on rows of the part. Spark pushes it below groups and windows that are by these keys."""
        return F.pmod(F.xxhash64(*(F.col(f"`{key}`") for key in keys)), F.lit(self.of)) == self.number - 1


WHOLE = TablePart(1, 1)
"""All of a table."""


def parse_table_part(text: str | None) -> TablePart | None:
    """A part as `str` gives it; None where the text is none."""
    named = _NAMED.fullmatch(text or "")
    return TablePart(int(named[1]), int(named[2])) if named else None


def list_table_parts(rows: int, made_of: int) -> list[TablePart]:
    """The parts of a table that are compared one at a time; a single one is all of it. made_of: how many rows it is made of, at most."""
    of = 1
    while of < _MOST_PARTS and of < rows and of * MOST_ROWS < max(rows, made_of):
        of *= 2
    return [TablePart(number, of) for number in range(1, of + 1)]


def are_keys_divisible(schema: StructType, keys: Sequence[str]) -> bool:
    """Whether a table can be taken in parts by these keys."""
    return bool(keys) and all(key in schema.names and schema[key].dataType.typeName() in _WHOLE_VALUES for key in keys)
