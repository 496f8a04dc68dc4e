"""`sluice sql` and `sluice show`: read rows of tables. `sluice sql --role` queries only a role's views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from sluice.cli.name_lookup import find_computed_view_lake, load_lake_if_readable, resolve_table_name
from sluice.cli.printing import AsJson, Limit, TableName, escaping_console, print_json, print_rows
from sluice.declare.assembly.graph import Graph
from sluice.errors import UsageError, nearest_name_hint
from sluice.lake.arrow_to_python import collect_rows_with_texts, list_rows_with_texts
from sluice.lake.pipeline_lake import PipelineLake
from sluice.open_tables import open_table_snapshot
from sluice.pipeline_records import PERSONAL_IN_QUARANTINE, PipelineRecords, list_pipeline_records, name_quarantined_table
from sluice.runs import run_ledger
from sluice.settings import Settings, list_pipeline_names


def sql(
    text: Annotated[str, typer.Argument(metavar="QUERY", help='A query, as in "SELECT * FROM gym.device_day".')],
    as_of: Annotated[str | None, typer.Option(help="Read the tables as of this version, date or instant (UTC).")] = None,
    role: Annotated[str | None, typer.Option(metavar="ROLE", help="Read only what this role may see.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Query tables and views in SQL, through Spark. A table is <pipeline>.<table>, its quarantine <pipeline>.<table>_quarantine."""
    settings = Settings.current()
    if role is not None:
        _print_query_result(*query_as_role(settings, role, text, as_of, limit), limit, as_json)
        return
    from sluice.lake import register
    from sluice.lake.sql_judgement import analyse_query, check_query_relations, parse_allowed_query
    from sluice.session import start_spark_session

    session = start_spark_session(settings, "sluice sql").newSession()
    query = parse_allowed_query(session, text)
    every = list_pipeline_records(settings)
    tables = {name: path for records in every for name, path in _find_table_paths(records).items()}
    named = {name.lower().partition(".")[0] for name in query.relations}
    wanted = [records for records in every if query.lists or records.pipeline in named]
    lakes = [lake for records in wanted if (lake := load_lake_if_readable(settings, records.pipeline)) is not None]
    views = [f"{lake.graph.pipeline.name}.{view}" for lake in lakes for view in lake.graph.computed]
    reads = check_query_relations(query, [*tables, *views])
    register.register_tables(session, {name: path for name, path in tables.items() if name in reads}, as_of)
    for lake in lakes:
        register.register_computed_views(session, lake, reads, as_of, query.lists)
    frame = analyse_query(session, query, reads)
    _print_query_result(frame.columns, collect_rows_with_texts(frame.limit(limit + 1)), limit, as_json)


def _print_query_result(columns: list[str], found: list[dict[str, Any]], limit: int, as_json: bool) -> None:
    """found: one row more than the limit if there are more."""
    if as_json:
        print_json({"columns": columns, "rows": found[:limit], "more": len(found) > limit})
        return
    if columns == ["plan"]:  # the result of EXPLAIN: one text of many lines
        for row in found:
            escaping_console().print(str(row["plan"]), soft_wrap=True)
        return
    print_rows(found[:limit], columns)
    if len(found) > limit:
        escaping_console().print(f"... and more; --limit {limit * 10} shows them")


def show(
    name: TableName,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show some rows of a table (no Spark) or of a @view (starts Spark)."""
    settings = Settings.current()
    if (found := find_computed_view_lake(settings, name)) is not None:
        _print_view_rows(found, name, limit, as_json)
        return
    _, wanted, path = resolve_table_name(settings, name)
    columns = select_printable_columns(open_table_snapshot(path).column_names, wanted)
    quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    rows = query_delta_table(path, f"SELECT {quoted} FROM t LIMIT {limit}")
    _print_table_rows(name, columns, rows, as_json, f"Table '{name}' is empty.")


def _print_view_rows(lake: PipelineLake, name: str, limit: int, as_json: bool) -> None:
    from sluice.lake import register
    from sluice.session import start_spark_session

    own = name.partition(".")[2]
    frame = register.compute_view_frames(start_spark_session(lake.settings, "sluice show").newSession(), lake, [own])[own]
    _print_table_rows(
        name, frame.columns, collect_rows_with_texts(frame.limit(limit)), as_json, f"View '{name}' has no rows now."
    )


def _print_table_rows(name: str, columns: list[str], rows: list[dict[str, Any]], as_json: bool, none: str) -> None:
    if as_json:
        print_json({"table": name, "columns": columns, "rows": rows})
    elif rows:
        print_rows(rows, columns)
    else:
        escaping_console().print(none)


def select_printable_columns(columns: Sequence[str], wanted: str) -> list[str]:
    """The columns of a table that may be printed: for a quarantine, none with a part of a record."""
    return [column for column in columns if not (name_quarantined_table(wanted) and column in PERSONAL_IN_QUARANTINE)]


def query_delta_table(path: str, text: str) -> list[dict[str, Any]]:
    """Rows of a query over one table, whose name in the query is t, without a JVM."""
    return list_rows_with_texts(open_table_snapshot(path).query_rows(text))


def _find_table_paths(records: PipelineRecords) -> dict[str, str]:
    """Every existing table of a pipeline, by its name in SQL."""
    return {f"{records.pipeline}.{run_ledger.sql_name(row)}": row["path"] for row in run_ledger.list_pipeline_tables(records)}


def query_as_role(
    settings: Settings, role: str, text: str, as_of: str | None, limit: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows of a query; one row more than the limit if there are more.

    Raises UsageError for an unknown role, for a query of anything but the role's views, and for earlier versions, which hold erased people.
    """
    lakes = [lake for name in list_pipeline_names(settings) if (lake := load_lake_if_readable(settings, name)) is not None]
    views = list_role_views([lake.graph for lake in lakes], role)
    if as_of is not None:
        raise UsageError("A role reads only current versions: leave out --as-of or --role.")
    from sluice.lake import register
    from sluice.lake.sql_judgement import analyse_query, check_query_relations, parse_allowed_query
    from sluice.session import start_spark_session

    session = start_spark_session(settings, "sluice sql").newSession()
    query = parse_allowed_query(session, text)
    reads = check_query_relations(query, views, role)
    for lake in lakes:
        register.register_computed_views(session, lake, reads)
    frame = analyse_query(session, query, reads)
    return frame.columns, collect_rows_with_texts(frame.limit(limit + 1))


def list_role_views(graphs: Sequence[Graph], role: str) -> list[str]:
    """The views of a role, as <pipeline>.<view>. Raises UsageError for one that no pipeline names."""
    known = {name for graph in graphs for name in graph.pipeline.roles}
    if role not in known:
        raise UsageError(
            f"No pipeline names a role '{role}'.{nearest_name_hint(role, known)} Roles are named in Pipeline(roles=...)."
        )
    return [
        f"{graph.pipeline.name}.{view}" for graph in graphs for view, declared in graph.computed.items() if declared.role == role
    ]
