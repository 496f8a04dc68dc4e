"""Facts without the person: rows of bronze that no longer say which erased person they are about, and the tables made of them.

A table is always the fold of bronze. So what a table is to keep, bronze keeps: the row, with NULL for its subject and its personal columns,
and a mark. Tables whose rows an erasure deletes do not see marked rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Table
from sluice.declare.ingest.source import Source
from sluice.declare.lazy import F
from sluice.delta_log import find_table_snapshot
from sluice.privacy import other_subjects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK = "_anonymised"
"""The column of bronze that says so. It comes with the first such row."""


def keeps_anonymised_facts(graph: Graph, source: Source) -> bool:
    """Whether a table keeps the facts in an erased person's records of the source."""
    return any(table.on_erasure == "anonymise" and table.reads[0] == source.table for table in graph.tables.values())


def anonymised_columns(graph: Graph, source: Source) -> frozenset[str]:
    """The columns of a source's bronze table that become NULL; rescued data is among them, since it may hold anything."""
    return frozenset().union(*(one.private for one in graph.feeding(source.table)), ("_rescued_data",))


def find_marked_deliveries(path: str, mark: str = MARK) -> list[int]:
    """The deliveries that have rows without their person in a bronze table. Read without a JVM."""
    there = find_table_snapshot(path)
    if there is None or mark not in there.column_names:
        return []
    found = there.query_rows(f'SELECT DISTINCT "_delivery" FROM t WHERE "{mark}"')
    return [int(number) for number in found["_delivery"].to_pylist()]


def count_marked_rows(path: str) -> int:
    """How many rows of a bronze table are marked; only tables that keep facts see them. Read without a JVM."""
    there = find_table_snapshot(path)
    if there is None or MARK not in there.column_names:
        return 0
    return int(there.query_rows(f'SELECT count("{MARK}") AS marked FROM t')["marked"][0].as_py())


def anonymise_rows(frame: DataFrame, columns: frozenset[str]) -> DataFrame:
    """The rows, marked, with NULL in these columns; the others in the same order."""
    kinds = {field.name: field.dataType for field in frame.schema}
    names = {name.lower() for name in columns}
    nothing = {name: F.lit(None).cast(kind) for name, kind in kinds.items() if name.lower() in names}
    return frame.withColumns({**nothing, MARK: F.lit(True)})


def bronze_rows_for_table(table: Table[Any], bronze: DataFrame) -> DataFrame:
    """The rows of bronze that a table is made of."""
    bronze = bronze.drop(other_subjects.MARK)
    if MARK not in bronze.columns:
        return bronze
    rows = bronze if table.on_erasure == "anonymise" else bronze.where(F.col(MARK).isNull())
    return rows.drop(MARK)
