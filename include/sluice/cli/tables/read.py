"""`sluice sql` and `sluice show`: rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pyarrow as pa
import typer
from deltalake import QueryBuilder

from sluice.cli.places import readable, table, view
from sluice.cli.printing import AsJson, Limit, console, print_json, print_rows
from sluice.cli.tables import as_role
from sluice.declare.assembly.graph import Graph
from sluice.delta_log import opened_table
from sluice.runs import ledger
from sluice.settings import Settings, pipeline_names

_HELD_BACK = ("record", "made", "content", "_subject")


def sql(
    text: Annotated[str, typer.Argument(metavar="QUERY", help='A query, as in "SELECT * FROM gym.device_day".')],
    as_of: Annotated[str | None, typer.Option(help="The tables as of this version, date or instant (UTC).")] = None,
    role: Annotated[str | None, typer.Option(metavar="ROLE", help="Read what this role may see, and nothing else.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Ask the tables and views in SQL, through Spark. A table is <pipeline>.<table>, its quarantine <pipeline>.<table>_quarantine."""
    settings = Settings.current()
    if role is not None:
        _print_query(*as_role.asked(settings, role, text, as_of, limit), limit, as_json)
        return
    from sluice.cli import spark
    from sluice.lake import computed, register
    from sluice.lake.sql_judgement import check_relations, frame_of_query, parse_query

    session = spark.session(settings, "sluice sql")
    query = parse_query(session, text)
    tables = {name: path for pipeline in pipeline_names(settings) for name, path in _paths(settings, pipeline).items()}
    named = {name.lower().partition(".")[0] for name in query.relations}
    wanted = [pipeline for pipeline in pipeline_names(settings) if query.lists or pipeline in named]
    graphs = [graph for pipeline in wanted if (graph := readable(settings, pipeline)) is not None]
    views = [f"{graph.pipeline.name}.{view}" for graph in graphs for view in graph.computed]
    reads = check_relations(query, [*tables, *views])
    register.register(session, {name: path for name, path in tables.items() if name in reads}, as_of)
    for graph in graphs:
        computed.register_views(session, settings, graph, reads, as_of, query.lists)
    frame = frame_of_query(session, query, reads)
    found = frame.limit(limit + 1).collect()
    _print_query(frame.columns, [dict(zip(frame.columns, row, strict=True)) for row in found], limit, as_json)


def _print_query(columns: list[str], found: list[dict[str, Any]], limit: int, as_json: bool) -> None:
    """found: a row more than is printed where there are more."""
    if as_json:
        print_json({"columns": columns, "rows": found[:limit], "more": len(found) > limit})
        return
    if columns == ["plan"]:  # what EXPLAIN gives: one text of many lines
        for row in found:
            console().print(str(row["plan"]), soft_wrap=True)
        return
    print_rows(found[:limit], columns)
    if len(found) > limit:
        console().print(f"... and more; --limit {limit * 10} shows them")


def show(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="<pipeline>.<table>.")],
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show some rows of a table, without Spark, or of a @view, for which Spark is started."""
    settings = Settings.current()
    if (found := view(settings, name)) is not None:
        _show_view(settings, name, found, limit, as_json)
        return
    _, wanted, path = table(settings, name)
    columns = shown([field.name for field in opened_table(path).schema().fields], wanted)
    quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    rows = query(path, f"SELECT {quoted} FROM t LIMIT {limit}")
    _print(name, columns, rows, as_json, f"Table '{name}' is there and empty.")


def _show_view(settings: Settings, name: str, graph: Graph, limit: int, as_json: bool) -> None:
    from sluice.cli import spark
    from sluice.lake import computed

    own = name.partition(".")[2]
    frame = computed.frames(spark.session(settings, "sluice show"), settings, graph, [own])[own]
    rows = [dict(zip(frame.columns, row, strict=True)) for row in frame.limit(limit).collect()]
    _print(name, frame.columns, rows, as_json, f"View '{name}' has no rows now.")


def _print(name: str, columns: list[str], rows: list[dict[str, Any]], as_json: bool, none: str) -> None:
    if as_json:
        print_json({"table": name, "columns": columns, "rows": rows})
    elif rows:
        print_rows(rows, columns)
    else:
        console().print(none)


def shown(columns: Sequence[str], wanted: str) -> list[str]:
    """Of a table's columns those that may be printed: of a quarantine nothing of a record."""
    return [column for column in columns if not (wanted.endswith("_quarantine") and column in _HELD_BACK)]


def query(path: str, text: str) -> list[dict[str, Any]]:
    """Rows of a query over one table, in the query called t, without a JVM."""
    # Not to_pyarrow_table: see sluice.runs.ledger.
    found: list[dict[str, Any]] = pa.table(QueryBuilder().register("t", opened_table(path)).execute(text)).to_pylist()
    return found


def _paths(settings: Settings, pipeline: str) -> dict[str, str]:
    """Every table of a pipeline that is there, by its name in SQL."""
    return {f"{pipeline}.{ledger.sql_name(row)}": row["path"] for row in ledger.tables(settings, pipeline)}
