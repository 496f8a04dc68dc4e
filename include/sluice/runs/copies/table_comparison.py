"""Compares two states of a table by key: which rows only one has, which differ, and in which columns. Shows no personal value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from sluice.declare.quoting import quote_column, quote_identifier
from sluice.errors import UsageError
from sluice.lake.arrow_to_python import collect_rows_with_texts
from sluice.lake.table_frames import compute_aggregates
from sluice.lake.workspace import PROVENANCE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

OF_ARRIVAL = (*PROVENANCE, "_file", "_ingested_at", "quarantined_at")
"""Columns that say only where a row came from and when."""

ONLY_HERE, ONLY_THERE, DIFFERENT = "only here", "only there", "different"
_SIDE, _ROWS = "_sluice_side", "_sluice_rows"
_KIND = "_sluice_kind"


@dataclass(frozen=True)
class Comparison:
    """What differs. columns: by column, in how many rows. arrival: the same for provenance, in rows that are otherwise equal.

    repeated: keys that a side has more than once; their rows are counted and not compared. types: both types of columns that are not compared.
    examples: the kind of difference, with those values of the key that are not personal.
    """

    keys: tuple[str, ...]
    rows: Mapping[str, int]
    equal: int
    columns: Mapping[str, int]
    arrival: Mapping[str, int]
    repeated: int = 0
    only_here: tuple[str, ...] = ()
    only_there: tuple[str, ...] = ()
    types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def same(self) -> bool:
        """Whether both have the same rows and columns, wherever the rows came from."""
        return not (any(self.rows.values()) or self.repeated or self.only_here or self.only_there or self.types)


def compare_table_states(
    here: DataFrame, there: DataFrame, keys: Sequence[str], private: frozenset[str], examples: int = 5
) -> Comparison:
    """Compares two frames by key. private: columns, in any case, whose values are not shown. Raises UsageError if a key is not in both."""
    kinds = [{one.name: one.dataType for one in frame.schema} for frame in (here, there)]
    shared = [name for name in here.columns if name in kinds[1]]
    types = {
        name: (kinds[0][name].simpleString(), kinds[1][name].simpleString())
        for name in shared
        if kinds[0][name].simpleString() != kinds[1][name].simpleString()
    }
    for key in keys:
        if key not in shared or key in types:
            raise UsageError(f"The key '{key}' is not a column of one type on both sides: rows cannot be matched.")
    values = [name for name in shared if name not in keys and name not in types]
    content = [name for name in values if name not in OF_ARRIVAL]
    matched = _match_rows_by_key(here, there, keys, values)
    judged = matched.select(*(quote_column(key, "key").alias(key) for key in keys), *_matched_row_columns(content, values))
    judged = judged.persist()
    try:
        found = compute_aggregates(judged, *_difference_count_columns(content, [name for name in values if name not in content]))
        hidden = {name.lower() for name in private}  # to Spark, upper and lower case are one
        shown = _collect_example_rows(judged, [key for key in keys if key.lower() not in hidden], examples)
    finally:
        judged.unpersist()
    return Comparison(
        keys=tuple(keys),
        rows={kind: found[kind] or 0 for kind in (ONLY_HERE, ONLY_THERE, DIFFERENT)},
        equal=found["equal"] or 0,
        columns={name: number for name in content if (number := found[f"c_{name}"])},
        arrival={name: number for name in values if name not in content and (number := found[f"c_{name}"])},
        repeated=found["repeated"] or 0,
        only_here=tuple(name for name in here.columns if name not in kinds[1]),
        only_there=tuple(name for name in there.columns if name not in kinds[0]),
        types=types,
        examples=shown,
    )


def _match_rows_by_key(here: DataFrame, there: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """Returns one row per key: how many rows each side has, and one row of each. Grouping makes NULLs equal and needs one shuffle."""
    sides = []
    for side, frame in (("h", here), ("t", there)):
        key = F.struct(*(quote_column(name).alias(name) for name in keys)).alias("key")
        kinds = {one.name: one.dataType for one in frame.schema}
        row = F.struct(F.lit(True).alias(_ROWS), *(_comparable_column(name, kinds[name]).alias(name) for name in values)).alias(
            "row"
        )
        sides.append(frame.select(key, F.lit(side).alias(_SIDE), row))
    of = {side: F.when(F.col(_SIDE) == side, F.col("row")) for side in ("h", "t")}
    return (
        sides[0]
        .unionByName(sides[1])
        .groupBy("key")
        .agg(
            *(F.count(one).alias(f"n_{side}") for side, one in of.items()),
            *(F.first(one, ignorenulls=True).alias(side) for side, one in of.items()),
        )
    )


def _matched_row_columns(content: Sequence[str], values: Sequence[str]) -> list[Column]:
    """Returns how a key's rows relate, how many each side has, and by column whether they differ."""
    differs = {name: ~quote_column(name, "h").eqNullSafe(quote_column(name, "t")) for name in values}
    any_differs = F.lit(False)
    for name in content:
        any_differs |= differs[name]
    kind = (
        F
        .when((F.col("n_h") > 1) | (F.col("n_t") > 1), "repeated")
        .when(F.col("n_t") == 0, ONLY_HERE)
        .when(F.col("n_h") == 0, ONLY_THERE)
        .when(any_differs, DIFFERENT)
        .otherwise("equal")
    )
    both = (F.col("n_h") == 1) & (F.col("n_t") == 1)
    return [kind.alias(_KIND), *((both & one).alias(f"c_{name}") for name, one in differs.items())]


def _difference_count_columns(content: Sequence[str], arrival: Sequence[str]) -> list[Column]:
    kinds = [F.count_if(F.col(_KIND) == kind).alias(kind) for kind in (ONLY_HERE, ONLY_THERE, DIFFERENT, "equal", "repeated")]
    differing = [F.count_if(F.col(f"`c_{name}`")).alias(f"c_{name}") for name in content]
    # If a row differs anyway, its provenance says nothing.
    return [
        *kinds,
        *differing,
        *(F.count_if(F.col(f"`c_{name}`") & (F.col(_KIND) == "equal")).alias(f"c_{name}") for name in arrival),
    ]


def _collect_example_rows(judged: DataFrame, keys: Sequence[str], number: int) -> tuple[dict[str, Any], ...]:
    if not keys or not number:
        return ()
    differing = judged.where(F.col(_KIND) != "equal").select(_KIND, *(quote_identifier(key) for key in keys))
    found = collect_rows_with_texts(differing.limit(number))
    return tuple({"row": row[_KIND], "key": {key: row[key] for key in keys}} for row in found)


def _comparable_column(name: str, kind: DataType) -> Column:
    """Returns a column that can be compared. A map becomes a text, with its entries in order if the map is the column itself."""
    column = quote_column(name)
    if isinstance(kind, MapType):
        return F.to_json(F.array_sort(F.transform(F.map_entries(column), lambda one: F.to_json(F.struct(one.alias("entry"))))))
    return F.to_json(F.struct(column)) if _has_map_type(kind) else column


def _has_map_type(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map_type(one.dataType) for one in kind)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map_type(kind.elementType))
