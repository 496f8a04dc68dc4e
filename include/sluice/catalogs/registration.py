"""Registers tables that have no name in the catalog yet, or another location, columns or comments there; removes names of tables that are gone.

Each run compares the catalog with what it should hold, so the next run makes up for failures and for names that somebody dropped.
Only entries that Sluice has marked as this pipeline's, with a location in this lake, are ever changed or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from sluice.catalogs.catalog import Catalog, CatalogAway, CatalogFailed, HeldName, NamedTable, open_catalog
from sluice.catalogs.named_tables import (
    CatalogPlan,
    describe_named_view,
    locate_for_readers,
    plan_catalog_names,
)
from sluice.declare.assembly.graph import Graph
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["registered", "renewed", "up to date", "removed", "refused", "waiting"]
CHANGES: tuple[State, ...] = ("registered", "renewed", "removed")


@dataclass(frozen=True)
class NameOutcome:
    """The result for a name in the catalog. why: the reason if it is refused or waits."""

    name: str
    state: State
    why: str = ""


def register_pipeline(
    settings: Settings,
    graph: Graph,
    session: SparkSession | None = None,
    take_over: bool = False,
    plan: CatalogPlan | None = None,
) -> list[NameOutcome]:
    """Makes the catalog hold exactly the names that the pipeline should have. Returns the result for each, by name.

    session: finds the columns of views; without one, a view whose text is not in the catalog yet waits. take_over: whether to take over names
    that Sluice registered for this pipeline with a table elsewhere, as after a lake was moved. plan: of `plan_catalog_names`, if already
    made. The settings name a catalog. Raises CatalogFailed, CatalogAway (also half way), and DamagedLog.
    """
    assert settings.catalog is not None
    pipeline, plan = graph.pipeline.name, plan or plan_catalog_names(settings, graph)
    with open_catalog(settings.catalog) as catalog:
        held = catalog.list_names(pipeline)
        roots = [locate_for_readers(f"{root}/{pipeline}") for root in (settings.lake, settings.restricted)]
        work = _Registration(catalog, pipeline, graph.pipeline.description, held, roots, take_over)
        outcomes = [work.register_name(table) for table in plan.tables.values()]
        outcomes += _register_views(work, settings, graph, plan, session)
        outcomes += work.remove_others({outcome.name for outcome in outcomes})
    return sorted(outcomes, key=lambda outcome: outcome.name)


def _register_views(
    work: _Registration,
    settings: Settings,
    graph: Graph,
    plan: CatalogPlan,
    session: SparkSession | None,
) -> list[NameOutcome]:
    if session is None:
        return [work.look_at_view(name) for name in plan.views]
    described, outcomes = dict(plan.tables), []
    for name in plan.views:
        try:
            described[name] = describe_named_view(session, settings, graph, name, described)
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
            return f"the catalog has '{name}' from somebody else, at {there.location or 'no place'}; rename or drop that there"
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
