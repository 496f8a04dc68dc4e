"""`sluice lineage`: the columns that a table or column comes from, and what uses it; from the pipeline's record, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from sluice.cli.printing import AsJson, escaping_console, print_json, print_rows
from sluice.column_origins import Origin, TableOrigins, TracedColumn
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.runs.status.column_lineage_record import (
    ColumnUse,
    list_column_uses,
    list_first_columns,
    read_column_lineage,
    require_traced_column,
    require_traced_table,
)
from sluice.settings import Settings


def lineage(
    of: Annotated[str, typer.Argument(metavar="PIPELINE.TABLE[.COLUMN]", help="The table or column.")],
    as_json: AsJson = False,
) -> None:
    """Say which columns a table or column comes from, and what uses it. The last runs found that."""
    pipeline, _, rest = of.partition(".")
    table, _, column = rest.partition(".")
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    if not table:
        raise UsageError(f"'{of}' names no table. Write {pipeline}.TABLE or {pipeline}.TABLE.COLUMN.")
    known = read_column_lineage(records)
    found = require_traced_table(known, pipeline, table)
    if column:
        require_traced_column(found, pipeline, column)
    told = describe_column_lineage(known, found, [one for one in found.columns if not column or one.name == column])
    if as_json:
        print_json({"pipeline": pipeline, **told})
        return
    print_rows(
        [
            {
                "column": one["column"] + (f" ({one['treated']})" if one["treated"] else ""),
                "type": one["type"],
                "comes from": ", ".join(one["comes_from"]),
                "first of all from": ", ".join(one["first_from"]),
                "used by": ", ".join(one["used_by"]),
            }
            for one in told["columns"]
        ],
        ("column", "type", "comes from", "first of all from", "used by"),
        title=f"{pipeline}.{table}",
    )
    if told["rows_by"]:
        escaping_console().print(f"Columns that decide which rows it has: {', '.join(told['rows_by'])}", soft_wrap=True)


def describe_column_lineage(
    known: Mapping[str, TableOrigins], found: TableOrigins, columns: Iterable[TracedColumn]
) -> dict[str, Any]:
    """Describes a table's columns: for each the columns it is made from, the first columns of that chain, and what uses it."""
    return {
        "table": found.table,
        "columns": [
            {
                "column": one.name,
                "type": one.type,
                "treated": one.treated,
                "comes_from": [_describe_origin(origin) for origin in one.origins],
                "first_from": [f"{origin.table}.{origin.column}" for origin in list_first_columns(known, found.table, one.name)],
                "used_by": [_describe_use(use) for use in list_column_uses(known, found.table, one.name)],
            }
            for one in columns
        ],
        "rows_by": [_describe_origin(origin) for origin in found.rows_by],
    }


def _describe_origin(origin: Origin) -> str:
    return f"{origin.table}.{origin.column} ({origin.way})"


def _describe_use(use: ColumnUse) -> str:
    return f"{use.table}.{use.column} ({use.way})" if use.column else f"rows of {use.table} ({use.way})"
