"""`sluice sql` and `sluice show`: rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pyarrow as pa
import typer
from deltalake import DeltaTable, QueryBuilder

from sluice.cli.places import table
from sluice.cli.printing import AsJson, Limit, console, print_json, print_rows
from sluice.runs import ledger
from sluice.settings import Settings, pipeline_names

_HELD_BACK = ("record", "made", "content", "_subject")


def sql(
    text: Annotated[str, typer.Argument(metavar="QUERY", help='A query, as in "SELECT * FROM gym.device_day".')],
    as_of: Annotated[str | None, typer.Option(help="The tables as of this version, date or instant (UTC).")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Ask the tables in SQL, through Spark. A table is <pipeline>.<table>, its quarantine <pipeline>.<table>_quarantine."""
    settings = Settings.current()
    names = {name: path for pipeline in pipeline_names(settings) for name, path in _paths(settings, pipeline).items()}
    from sluice.cli import spark
    from sluice.lake import register

    session = spark.session(settings, "sluice sql")
    register.check_query(session, text)
    register.register(session, settings, register.named(text, names), as_of)
    frame = register.asked(session, text, names)
    found = frame.limit(limit + 1).collect()
    rows = [dict(zip(frame.columns, row, strict=True)) for row in found[:limit]]
    if as_json:
        print_json({"columns": frame.columns, "rows": rows, "more": len(found) > limit})
        return
    print_rows(rows, frame.columns)
    if len(found) > limit:
        console().print(f"... and more; --limit {limit * 10} shows them")


def show(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="<pipeline>.<table>.")],
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show some rows of a table, without Spark."""
    settings = Settings.current()
    _, wanted, path = table(settings, name)
    columns = shown([field.name for field in DeltaTable(path).schema().fields], wanted)
    quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    rows = query(path, f"SELECT {quoted} FROM t LIMIT {limit}")
    if as_json:
        print_json({"table": name, "columns": columns, "rows": rows})
    elif rows:
        print_rows(rows, columns)
    else:
        console().print(f"Table '{name}' is there and empty.")


def shown(columns: Sequence[str], wanted: str) -> list[str]:
    """Of a table's columns those that may be printed: of a quarantine nothing of a record."""
    return [column for column in columns if not (wanted.endswith("_quarantine") and column in _HELD_BACK)]


def query(path: str, text: str) -> list[dict[str, Any]]:
    """Rows of a query over one table, in the query called t, without a JVM."""
    # Not to_pyarrow_table: see sluice.runs.ledger.
    found: list[dict[str, Any]] = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(text)).to_pylist()
    return found


def _paths(settings: Settings, pipeline: str) -> dict[str, str]:
    """Every table of a pipeline that is there, by its name in SQL."""
    return {f"{pipeline}.{ledger.sql_name(row)}": row["path"] for row in ledger.tables(settings, pipeline)}
