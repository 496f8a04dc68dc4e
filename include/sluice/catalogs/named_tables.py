"""Decides which tables and views of a pipeline get names in a catalog, and describes them: from the declarations and each table's log.

It reads no row, and a catalog gets no value of a cell: only names, types, comments and locations.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.catalogs.catalog import NamedColumn, NamedTable
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.computed import View
from sluice.declare.quoting import quote_identifier
from sluice.delta_log import is_delta_table
from sluice.lake.workspace import PROVENANCE
from sluice.locations import is_on_disk, locate
from sluice.open_tables import open_checked_table
from sluice.settings import Settings
from sluice.stores.opening import hadoop_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class CatalogPlan:
    """What gets a name in a pipeline. tables: existing ones. views: by name, each after those it reads. left_out: the others, with the reason."""

    tables: Mapping[str, NamedTable]
    views: tuple[str, ...]
    left_out: Mapping[str, str]


def plan_catalog_names(settings: Settings, graph: Graph) -> CatalogPlan:
    """Returns which tables and views should have a name, by their declarations and current columns. Raises DamagedLog."""
    tables: dict[str, NamedTable] = {}
    left_out: dict[str, str] = {}
    for declared in graph:
        name = declared.name
        if declared.serves or declared.place is not None or graph.table_of(name) != name:
            continue  # a record that Sluice keeps for itself, or a source whose records go into another's table
        if why := _find_reason_against_declared(graph, name):
            left_out[name] = why
        elif (table := _describe_table(graph.pipeline.name, name, graph.location(settings, name))) is None:
            left_out[name] = "has not been made yet"
        elif why := _find_reason_against_columns(graph, table):
            left_out[name] = why
        else:
            tables[name] = table
    views: list[str] = []
    for name, view in graph.computed.items():
        if why := _find_reason_against_view(view, {*tables, *views}):
            left_out[name] = why
        else:
            views.append(name)
    return CatalogPlan(tables, tuple(views), left_out)


def _find_reason_against_declared(graph: Graph, name: str) -> str:
    if any(one.restricted for one in graph.sharing(graph[name])):
        return "is restricted"
    if name in graph.sources and name not in graph.pipeline.publishes:
        return "holds records as they were delivered, and `publishes` does not name it"
    return ""


def _find_reason_against_columns(graph: Graph, table: NamedTable) -> str:
    """Why a table gets no name; "" if it gets one. Tables in `publishes` are offered to others by decision."""
    private = {column.lower() for one in graph.sharing(graph[table.name]) for column in one.private}
    personal = [column.name for column in table.columns if column.name.lower() in private]
    if personal and table.name not in graph.pipeline.publishes:
        return f"has personal columns ({', '.join(personal)}), and `publishes` does not name it"
    return ""


def _find_reason_against_view(view: View[Any], named: Collection[str]) -> str:
    """Like `_find_reason_against_columns`. named: the tables and views that have names. A personal table has no name, or is published."""
    if view.role is not None:
        return f"is what the role '{view.role}' may see; a catalog shows a view to everybody"
    if view.sql is None:
        return "is a function in Python; other tools read views in SQL only"
    unnamed = [read for read in view.reads if read not in named]
    return f"reads '{unnamed[0]}', which has no name in the catalog" if unnamed else ""


def _describe_table(pipeline: str, name: str, path: str) -> NamedTable | None:
    """A table as its log describes it now; None if there is none."""
    if not is_delta_table(path):
        return None
    table = open_checked_table(path)
    columns = _read_columns(json.loads(table.schema().to_json()))
    return NamedTable(pipeline, name, locate_for_readers(path), columns, table.metadata().description or "")


def describe_named_view(
    session: SparkSession, settings: Settings, graph: Graph, name: str, described: Mapping[str, NamedTable]
) -> NamedTable:
    """Returns a view in SQL. described: its inputs, and others. Spark finds its columns and reads no row; raises what Spark raises."""
    from sluice.lake.register import compute_view_frames

    view, folder = graph.computed[name], locate_for_readers(f"{settings.lake}/{graph.pipeline.name}")
    schema = compute_view_frames(session, settings, graph, [name])[name].schema.jsonValue()
    query = write_view_query(view.sql or "", [described[read] for read in view.reads])
    return NamedTable(graph.pipeline.name, name, folder, _read_columns(schema), view.comment, query)


def write_view_query(sql: str, reads: Sequence[NamedTable]) -> str:
    """Returns a view's text for other tools: its inputs have their database's name, and lack the columns that Sluice adds."""
    inputs = ", ".join(
        f"{quote_identifier(read.name)} AS (SELECT {_list_columns(read)} FROM {quote_identifier(read.pipeline)}.{quote_identifier(read.name)})"
        for read in reads
    )
    return f"WITH {inputs} SELECT * FROM (\n{sql.strip().rstrip(';')}\n)"


def _list_columns(table: NamedTable) -> str:
    return ", ".join(quote_identifier(column.name) for column in table.columns if column.name not in PROVENANCE)


def _read_columns(schema: Mapping[str, Any]) -> tuple[NamedColumn, ...]:
    """The columns of a schema in JSON, as Delta and Spark write it."""
    return tuple(
        NamedColumn(field["name"], field["type"], str(field["metadata"].get("comment", ""))) for field in schema["fields"]
    )


def locate_for_readers(path: str) -> str:
    """A location as a URL that Spark and other tools on Hadoop's file systems read: file:///... or s3a://..."""
    place = locate(path)
    return place.absolute().as_uri() if is_on_disk(place) else hadoop_url(path)
