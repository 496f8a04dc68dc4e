"""Compares a table with what it should be, row by row: null-safe, in all columns, and without reporting any value.

Large tables, and those made from many rows, are compared part by part; a part is chosen by the hash of the keys.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from sluice.declare.quoting import quote_column, quote_columns
from sluice.lake.nested_types import arrange_nested_fields, find_added_fields, has_other_type, union_columns
from sluice.lake.table_frames import compute_aggregates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BALANCE, _LACKING, _SURPLUS, _KNOWN = "_balance", "_lacking", "_surplus", "_known"


@dataclass(frozen=True)
class RowDifferences:
    """How many rows are missing, surplus, or different under their key, and for how many of these the reason is known."""

    missing: int = 0
    surplus: int = 0
    different: int = 0
    known: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.different)

    @property
    def all_known(self) -> bool:
        """Whether the reason is known for all of them."""
        return self.known == self.missing + self.surplus + self.different

    def __str__(self) -> str:
        counts = ((self.missing, "missing"), (self.surplus, "too many"), (self.different, "different"))
        return ", ".join(f"{count:,} {word}" for count, word in counts if count) or "equal"


def count_row_differences(
    expected: DataFrame, stored: DataFrame, keys: Sequence[str], known: DataFrame | None = None, known_by: Sequence[str] = ()
) -> RowDifferences:
    """Counts the differences. Both frames have the same columns. known: values of the columns `known_by` that explain a difference.

    Rows are counted, so a row that is there twice is one surplus.
    """
    plain = _countable_columns(expected.schema)
    sides = [frame.select(*plain, F.lit(sign).alias(_BALANCE)) for frame, sign in ((expected, 1), (stored, -1))]
    rows = sides[0].unionByName(sides[1]).groupBy(*quote_columns(expected.columns)).agg(F.sum(_BALANCE).alias(_BALANCE))
    by = list(dict.fromkeys((*keys, *known_by)))
    of_key = rows.where(F.col(_BALANCE) != 0).groupBy(*quote_columns(by))
    counted = of_key.agg(
        F.sum(F.greatest(F.col(_BALANCE), F.lit(0))).alias(_LACKING),
        F.sum(F.greatest(-F.col(_BALANCE), F.lit(0))).alias(_SURPLUS),
    )
    return _sum_differences(_mark_known_keys(counted, known, known_by))


def _mark_known_keys(counted: DataFrame, known: DataFrame | None, known_by: Sequence[str]) -> DataFrame:
    if known is None:
        return counted.withColumn(_KNOWN, F.lit(False))
    right = known.select(*(quote_column(name).alias(f"_of_{name}") for name in known_by), F.lit(True).alias(_KNOWN)).distinct()
    same = [quote_column(name).eqNullSafe(F.col(f"`_of_{name}`")) for name in known_by]
    return counted.join(right, same, "left").withColumn(_KNOWN, F.coalesce(_KNOWN, F.lit(False)))


def _sum_differences(counted: DataFrame) -> RowDifferences:
    different = F.least(_LACKING, _SURPLUS)
    found = counted.select(
        (F.col(_LACKING) - different).alias("missing"),
        (F.col(_SURPLUS) - different).alias("surplus"),
        different.alias("different"),
        F.when(F.col(_KNOWN), F.greatest(_LACKING, _SURPLUS)).otherwise(0).alias("known"),
    )
    return RowDifferences(**compute_aggregates(found, *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in found.columns)))


def align_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    """Gives the frame these columns in this order, NULL for those it lacks, followed by its remaining columns. The same for nested fields."""
    frame = arrange_nested_fields(frame, union_columns(schema, frame.schema))
    own = [name for name in frame.columns if name not in schema.names]
    given = [
        quote_column(one.name) if one.name in frame.columns else F.lit(None).cast(one.dataType).alias(one.name) for one in schema
    ]
    return frame.select(*given, *quote_columns(own))


def find_type_differences(expected: StructType, stored: StructType) -> list[str]:
    """The columns that both have with different types. Nested fields that are still to be added to the stored ones do not count."""
    kinds = {field.name: field.dataType for field in stored}
    return [field.name for field in expected if field.name in kinds and not _becomes_type(kinds[field.name], field.dataType)]


def _becomes_type(stored: DataType, expected: DataType) -> bool:
    """Whether adding nested fields makes the expected type of the stored one, be they in another order."""
    return not has_other_type(stored, expected) and not any(find_added_fields(expected, stored, ""))


def _countable_columns(schema: StructType) -> list[Column]:
    """The columns in a form in which equal rows can be counted: a VARIANT as its text."""
    return [
        F.to_json(quote_column(field.name)).alias(field.name)
        if field.dataType.typeName() == "variant"
        else quote_column(field.name)
        for field in schema
    ]


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
