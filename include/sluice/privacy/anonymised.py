"""Facts without the person: bronze rows that stay after their person is erased, and the tables made from them.

A table is always the fold of bronze, so bronze must keep whatever a table is to keep: the row, with NULL in its subject and personal
columns, and a mark. Tables whose rows an erasure deletes do not see marked rows.

For a person in another person's record (`Source(also_subjects=)`), only the cell becomes NULL. The suppression list judges such a cell
as it judges a subject: in its domain's form, and by the time of the record. Bronze marks these rows too, so that tables are folded
again from them and landed files are rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Table
from sluice.declare.ingest.field_names import rescued_text_expression
from sluice.declare.ingest.source import Source
from sluice.declare.lazy_spark import F
from sluice.declare.quoting import quote_column
from sluice.open_tables import find_table_snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MARK = "_anonymised"
"""The bronze column that marks an anonymised row. It is added with the first such row."""


def keeps_anonymised_facts(graph: Graph, source: Source) -> bool:
    """Whether any table keeps the facts from an erased person's records of the source."""
    return any(table.on_erasure == "anonymise" and table.reads[0] == source.table for table in graph.tables.values())


def anonymised_columns(graph: Graph, source: Source) -> frozenset[str]:
    """The columns of a source's bronze table that become NULL, including rescued data, which may hold anything."""
    return frozenset().union(*(one.private for one in graph.feeding(source.table)), ("_rescued_data",))


def find_marked_deliveries(path: str, mark: str = MARK) -> list[int]:
    """The deliveries with anonymised rows in a bronze table. Read without a JVM."""
    there = find_table_snapshot(path)
    if there is None or mark not in there.column_names:
        return []
    found = there.query_rows(f'SELECT DISTINCT "_delivery" FROM t WHERE "{mark}"')
    return [int(number) for number in found["_delivery"].to_pylist()]


def count_marked_rows(path: str) -> int:
    """The number of marked rows in a bronze table; only tables that keep facts see them. Read without a JVM."""
    there = find_table_snapshot(path)
    if there is None or MARK not in there.column_names:
        return 0
    return int(there.query_rows(f'SELECT count("{MARK}") AS marked FROM t')["marked"][0].as_py())


def anonymise_rows(frame: DataFrame, columns: frozenset[str]) -> DataFrame:
    """Marks the rows and puts NULL into these columns; the columns keep their order."""
    kinds = {field.name: field.dataType for field in frame.schema}
    names = {name.lower() for name in columns}
    nothing = {name: F.lit(None).cast(kind) for name, kind in kinds.items() if name.lower() in names}
    return frame.withColumns({**nothing, MARK: F.lit(True)})


def bronze_rows_for_table(table: Table[Any], bronze: DataFrame) -> DataFrame:
    """The rows of bronze that a table is made from."""
    bronze = bronze.drop(CELL_MARK)
    if MARK not in bronze.columns:
        return bronze
    rows = bronze if table.on_erasure == "anonymise" else bronze.where(F.col(MARK).isNull())
    return rows.drop(MARK)


CELL_MARK = "_sluice_without_others"
"""The bronze column that marks a row with an emptied cell. It is added with the first such row."""
RESCUED, RECORD = "_rescued_data", "_record"
_HELD = "_sluice_held_"


def subject_text_in_cell(frame: DataFrame, column: str) -> Column:
    """The person in a cell, as text: from its column, from rescued data, or from an unreadable text beside its name."""
    name = next((one for one in frame.columns if one.lower() == column.lower()), None)
    found = [quote_column(name).cast("string")] if name else []
    found += [F.expr(rescued_text_expression(column))] if RESCUED in frame.columns else []
    if RECORD in frame.columns:
        pattern = f'(?iu)"{column}"\\s*:\\s*"?([^",}}\\s]+)'
        found.append(F.nullif(F.regexp_extract(RECORD, pattern, 1), F.lit("")))
    return F.coalesce(*found, F.lit(None).cast("string"))


def erased_cell_flag(column: str) -> str:
    """The name of the flag column that says whether that cell holds an erased person."""
    return f"{_HELD}{column}"


def empty_flagged_cells(frame: DataFrame, cells: Mapping[str, str]) -> DataFrame:
    """Returns the frame with NULL in flagged cells and without the flags. The rescued data of such a cell goes too."""
    made: dict[str, Column] = {}
    for field in frame.schema:
        of = [name for name in cells if name.lower() == field.name.lower()]
        if of:
            made[field.name] = F.when(~F.col(erased_cell_flag(of[0])), quote_column(field.name)).cast(field.dataType)
    if RESCUED in frame.columns:
        inside = is_any_true([
            F.col(erased_cell_flag(name)) & F.expr(rescued_text_expression(name)).isNotNull() for name in cells
        ])
        made[RESCUED] = F.when(~inside, F.col(RESCUED))
    return frame.withColumns(made).drop(*map(erased_cell_flag, cells))


def is_any_true(conditions: list[Column]) -> Column:
    """Whether any of the columns is true; none of them is NULL."""
    found = F.lit(False)
    for one in conditions:
        found |= F.coalesce(one, F.lit(False))
    return found
