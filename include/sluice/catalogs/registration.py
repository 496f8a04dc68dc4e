"""Registers the tables and views of a pipeline in a catalog: those that have no name there yet, or another location, columns or comments.

Which ones get a name is decided from the declarations and each table's log. That reads no row, and a catalog gets no value of a cell: only
names, types, comments and locations. Names of tables that are gone are removed.

Each run compares the catalog with what it should hold, so the next run makes up for failures and for names that somebody dropped.
Only entries that Sluice has marked as this pipeline's, with a location in this lake, are ever changed or removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from sluice.catalogs.catalog import Catalog, CatalogAway, CatalogFailed, HeldName, NamedColumn, NamedTable, open_catalog
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.computed import View
from sluice.declare.quoting import quote_identifier
from sluice.delta_log import is_delta_table
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.workspace import PROVENANCE
from sluice.locations import is_on_disk, locate
from sluice.open_tables import open_checked_table
from sluice.stores.opening import hadoop_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["registered", "renewed", "up to date", "removed", "refused", "waiting"]
CHANGES: tuple[State, ...] = ("registered", "renewed", "removed")


@dataclass(frozen=True)
class CatalogPlan:
    """What gets a name in a pipeline. tables: existing ones. views: by name, each after those it reads. left_out: the others, with the reason."""

    tables: Mapping[str, NamedTable]
    views: tuple[str, ...]
    left_out: Mapping[str, str]


def plan_catalog_names(lake: PipelineLake) -> CatalogPlan:
    """Returns which tables and views should have a name, by their declarations and current columns. Raises DamagedLog."""
    tables: dict[str, NamedTable] = {}
    left_out: dict[str, str] = {}
    for declared in lake.graph:
        name = declared.name
        if declared.serves or declared.record_path is not None or lake.graph.table_of(name) != name:
            continue  # a record that Sluice keeps for itself, or a source whose records go into another's table
        if why := _find_reason_against_declared(lake.graph, name):
            left_out[name] = why
        elif (table := _describe_table(lake.graph.pipeline.name, name, lake.path(name))) is None:
            left_out[name] = "has not been made yet"
        elif why := _find_reason_against_columns(lake.graph, table):
            left_out[name] = why
        else:
            tables[name] = table
    views: list[str] = []
    for name, view in lake.graph.computed.items():
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


def _describe_named_view(session: SparkSession, lake: PipelineLake, name: str, described: Mapping[str, NamedTable]) -> NamedTable:
    """Returns a view in SQL. described: its inputs, and others. Spark finds its columns and reads no row; raises what Spark raises."""
    from sluice.lake.register import compute_view_frames

    view, folder = lake.graph.computed[name], locate_for_readers(f"{lake.settings.lake}/{lake.graph.pipeline.name}")
    schema = compute_view_frames(session, lake, [name])[name].schema.jsonValue()
    query = write_view_query(view.sql or "", [described[read] for read in view.reads])
    return NamedTable(lake.graph.pipeline.name, name, folder, _read_columns(schema), view.comment, query)


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
    location = locate(path)
    return location.absolute().as_uri() if is_on_disk(location) else hadoop_url(path)


@dataclass(frozen=True)
class NameOutcome:
    """The result for a name in the catalog. why: the reason if it is refused or waits."""

    name: str
    state: State
    why: str = ""


def register_pipeline(
    lake: PipelineLake,
    session: SparkSession | None = None,
    take_over: bool = False,
    plan: CatalogPlan | None = None,
) -> list[NameOutcome]:
    """Makes the catalog hold exactly the names that the pipeline should have. Returns the result for each, by name.

    session: finds the columns of views; without one, a view whose text is not in the catalog yet waits. take_over: whether to take over names
    that Sluice registered for this pipeline with a table elsewhere, as after a lake was moved. plan: of `plan_catalog_names`, if already
    made. The settings name a catalog. Raises CatalogFailed, CatalogAway (also half way), and DamagedLog.
    """
    assert lake.settings.catalog is not None
    pipeline, plan = lake.graph.pipeline.name, plan or plan_catalog_names(lake)
    with open_catalog(lake.settings.catalog) as catalog:
        held = catalog.list_names(pipeline)
        roots = [locate_for_readers(str(root / pipeline)) for root in lake.settings.table_roots.values()]
        work = _Registration(catalog, pipeline, lake.graph.pipeline.description, held, roots, take_over)
        outcomes = [work.register_name(table) for table in plan.tables.values()]
        outcomes += _register_views(work, lake, plan, session)
        outcomes += work.remove_others({outcome.name for outcome in outcomes})
    return sorted(outcomes, key=lambda outcome: outcome.name)


def _register_views(
    work: _Registration,
    lake: PipelineLake,
    plan: CatalogPlan,
    session: SparkSession | None,
) -> list[NameOutcome]:
    if session is None:
        return [work.look_at_view(name) for name in plan.views]
    described, outcomes = dict(plan.tables), []
    for name in plan.views:
        try:
            described[name] = _describe_named_view(session, lake, name, described)
        except Exception as error:  # Spark's text may quote the query
            outcomes.append(NameOutcome(name, "refused", f"Spark cannot read this view ({type(error).__name__})"))
        else:
            outcomes.append(work.register_name(described[name]))
    return outcomes


@dataclass
class _Registration:
    """The registration of one pipeline's names. held: what the catalog had before. roots: the folders whose tables are this lake's."""

    catalog: Catalog
    pipeline: str
    description: str
    held: Mapping[str, HeldName]
    roots: Sequence[str]
    take_over: bool
    has_database: bool = False

    def register_name(self, table: NamedTable) -> NameOutcome:
        """Registers a table or a view unless the catalog's entry is up to date."""
        there = self.held.get(table.name)
        if there is None:
            return self._change_or_refuse(table.name, "registered", partial(self._create_in_database, table))
        if why := self._find_reason_to_refuse(there):
            return NameOutcome(table.name, "refused", why)
        if self.catalog.is_current(there, table):
            return NameOutcome(table.name, "up to date")
        return self._change_or_refuse(table.name, "renewed", partial(self.catalog.replace_table, there, table))

    def look_at_view(self, name: str) -> NameOutcome:
        """The result for a view whose columns are unknown."""
        there = self.held.get(name)
        if there is None:
            return NameOutcome(name, "waiting", "a view's columns are found by Spark: the next run that starts it registers it")
        if why := self._find_reason_to_refuse(there):
            return NameOutcome(name, "refused", why)
        return NameOutcome(name, "up to date")

    def remove_others(self, names: Iterable[str]) -> list[NameOutcome]:
        """Removes this pipeline's names in this lake that it should no longer have."""
        gone = [one for name, one in self.held.items() if name not in names and self._is_own(one)]
        return [
            self._change_or_refuse(one.name, "removed", partial(self.catalog.remove_name, self.pipeline, one)) for one in gone
        ]

    def _create_in_database(self, table: NamedTable) -> None:
        if not self.has_database:
            self.catalog.create_database(self.pipeline, self.description)
            self.has_database = True
        self.catalog.create_table(table)

    def _find_reason_to_refuse(self, there: HeldName) -> str:
        name = f"{self.pipeline}.{there.name}"
        if there.pipeline != self.pipeline:
            return f"the catalog has '{name}' from somebody else, at {there.location or 'no location'}; rename or drop that there"
        if self._is_own(there) or self.take_over:
            return ""
        return (
            f"the catalog has '{name}' for a table at {there.location}, which is not below this lake; register one of the two lakes in "
            f"another catalog, or, if the lake was moved: sluice catalog {self.pipeline} --take-over"
        )

    def _is_own(self, there: HeldName) -> bool:
        return there.pipeline == self.pipeline and any(
            there.location == root or there.location.startswith(f"{root}/") for root in self.roots
        )

    def _change_or_refuse(self, name: str, done: State, act: Callable[[], None]) -> NameOutcome:
        """Changes one name. If the catalog refuses that, the others still proceed."""
        try:
            act()
        except CatalogAway:
            raise
        except CatalogFailed as error:
            return NameOutcome(name, "refused", str(error))
        return NameOutcome(name, done)
