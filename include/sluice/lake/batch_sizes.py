"""How large a batch's rows are, which decides how Spark evaluates it and whether its rows may go through the memory of the driver's Python.

A small batch is planned once, interpreted, and run in one task: anything else takes longer than its work. A triggered job is a process of
a minute, in which every query is new. In gym's silver, with eleven small tables, generating and compiling Java took a third of the time.
Compiled code is several times faster per row, so large batches get it. Adaptive execution plans a query again after every shuffle, and
each shuffle is then a Spark job: without it a small run has half the jobs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from sluice.declare.quoting import quote_column, quote_columns
from sluice.lake import log
from sluice.lake.table_frames import compute_aggregates, is_nullable_throughout

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FIXED = 16
"""How many bytes a value of fixed length takes at most; for a text, the bytes of its offset."""
_OF_JSON = 4
"""How many bytes a nested value takes at most for each byte of its JSON: "1," stands for a number of eight bytes."""
_ROW = "_row"
SMALL = 15_000
"""A batch is interpreted if it involves at most this many rows, including those of the tables that it reads and writes."""
_PARTITIONS = "spark.sql.shuffle.partitions"
_OF_FEW = {"spark.sql.adaptive.enabled": "false", _PARTITIONS: "1"}


@dataclass(frozen=True)
class RowsSize:
    """The most rows that there can be, and the most bytes of memory that they can take. bytes: None if unknown."""

    rows: int
    bytes: int | None = None

    def __add__(self, other: RowsSize) -> RowsSize:
        known = self.bytes is not None and other.bytes is not None
        return RowsSize(self.rows + other.rows, (self.bytes or 0) + (other.bytes or 0) if known else None)


def measure_rows(rows: DataFrame) -> RowsSize:
    """Returns the size of a frame, in one pass over its rows."""
    found = compute_aggregates(rows, F.count("*").alias("rows"), sum_row_bytes(rows).alias("bytes"))
    return RowsSize(found["rows"], int(found["bytes"] or 0))


def measure_inline_rows(rows: Iterable[Iterable[object]]) -> RowsSize:
    """Returns the size of rows that are in memory."""
    sizes = [sum(_FIXED + 4 * len(str(value)) for value in row) for row in rows]  # a letter takes four bytes at most
    return RowsSize(len(sizes), sum(sizes))


def collect_few_rows(rows: DataFrame, at_most: int, most_bytes: int) -> pa.Table | None:
    """Collects rows in one pass, without another one that sums their bytes before. at_most: how many the caller expects.

    Returns None if there are more, of which one more is brought here, or if a row takes more than its share of the bytes; such a row is not
    brought here, but NULL, which any column must take.
    """
    if not is_nullable_throughout(rows.schema):
        return None
    fitting = F.when(_row_bytes(rows) <= most_bytes // max(at_most, 1), F.struct(*quote_columns(rows.columns)))
    found = rows.select(fitting.alias(_ROW)).limit(at_most + 1).toArrow()[_ROW]
    return None if found.null_count or len(found) > at_most else pa.Table.from_struct_array(found)


def sum_row_bytes(rows: DataFrame) -> Column:
    """Returns an aggregate of how many bytes of memory the rows take at most."""
    return F.sum(_row_bytes(rows))


def _row_bytes(rows: DataFrame) -> Column:
    """Returns how many bytes of memory a row takes at most."""
    lengths = [F.lit(_FIXED * len(rows.columns)).cast("long")]
    for field in rows.schema:
        column = quote_column(field.name)
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            text = F.to_json(F.struct(column), {"ignoreNullFields": "false"})
            lengths.append(F.octet_length(text).cast("long") * _OF_JSON)
        elif field.dataType.typeName() in ("string", "binary"):
            lengths.append(F.coalesce(F.octet_length(column), F.lit(0)).cast("long"))
    return functools.reduce(lambda a, b: a + b, lengths)


def choose_evaluation_settings(
    session: SparkSession, tables: Iterable[str], rows: int | None = 0, *, keeps_state: bool = False
) -> None:
    """Chooses the settings for the session's next queries. tables: the paths read and written. rows: further rows read; None: unknown.

    keeps_state: whether the query has state, which stays in as many partitions as its first run had.
    """
    known = [rows, *(state.rows if (state := log.read_table_state(path)) else 0 for path in tables)]
    small = None not in known and sum(count for count in known if count) <= SMALL
    session.conf.set("spark.sql.codegen.wholeStage", str(not small).lower())
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if small else "FALLBACK")
    for name, of_few in _OF_FEW.items():
        configured = _read_configured_value(session, name)
        few = small and not (keeps_state and name == _PARTITIONS)
        session.conf.set(name, of_few if few else configured)


def _read_configured_value(session: SparkSession, name: str) -> str:
    """Returns a setting as it was before anything was chosen for the session. Sessions made from it return the same."""
    kept = f"sluice.configured.{name}"
    value = session.conf.get(kept, None)
    if value is None:
        value = str(session.conf.get(name))
        session.conf.set(kept, value)
    return value
