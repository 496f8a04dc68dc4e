"""Views that are computed when they are read: as frames, and by the names that they have in SQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.expansion.stored import passing
from sluice.errors import SluiceError
from sluice.lake import log, register
from sluice.lake.workspace import PROVENANCE
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def missing(settings: Settings, graph: Graph, name: str) -> str | None:
    """A table that the view is made of and that has not been made yet; None where all are there."""
    made_of = (read for view in passing(graph.computed, (name,)) for read in view.reads if read not in graph.computed)
    return next((read for read in made_of if not log.exists(graph.location(settings, read))), None)


def frames(
    session: SparkSession, settings: Settings, graph: Graph, names: Iterable[str], as_of: str | None = None
) -> dict[str, DataFrame]:
    """The views of these names, as their transforms make them of the tables as they are now, or of those of `as_of`.

    Raises SluiceError where a table that they are made of is not there yet, UsageError where it has no such version.
    """
    wanted = list(names)
    for name in wanted:
        if (lacking := missing(settings, graph, name)) is not None:
            pipeline = graph.pipeline.name
            raise SluiceError(
                f"The view '{pipeline}.{name}' is made of '{lacking}', which has not been made yet. Run: sluice run {pipeline}"
            )
    known: dict[str, DataFrame] = {}
    for view in passing(graph.computed, wanted):
        for read in view.reads:
            if read not in known:
                known[read] = _stored(session, settings, graph, read, as_of)
        known[view.name] = view(*(known[read] for read in view.reads))
    return {name: known[name] for name in wanted}


def name(session: SparkSession, pipeline: str, views: Mapping[str, DataFrame], readable: bool = True) -> None:
    """Make frames known to the session as <pipeline>.<name>. readable: whether queries may read them, and not only list and describe them.

    What a function makes has no SQL text. So the view in the catalog has one that reads a temporary view, which it names among those that
    it may read; the statement that makes a view refuses to write this down, therefore it is added afterwards.
    """
    session.sql(f"CREATE SCHEMA IF NOT EXISTS `{pipeline}`")
    for own, frame in views.items():
        temporary = f"_{pipeline}_{own}"
        session.catalog.dropTempView(temporary)
        session.sql(f"CREATE OR REPLACE VIEW `default`.`{temporary}` AS SELECT {_typed(frame)}")
        session.sql(f"CREATE OR REPLACE VIEW `{pipeline}`.`{own}` AS SELECT * FROM `{temporary}`")
        session.sql(f"DROP VIEW `default`.`{temporary}`")
        may_read = json.dumps([[temporary]])
        session.sql(f"ALTER VIEW `{pipeline}`.`{own}` SET TBLPROPERTIES ('view.referredTempViewNames' = '{may_read}')")
        if readable:
            frame.createOrReplaceTempView(temporary)


def _typed(frame: DataFrame) -> str:
    """A select list of the frame's columns without a value."""
    fields: Any = frame._jdf.schema().fields()
    return ", ".join(f"CAST(NULL AS {field.dataType().sql()}) AS `{field.name().replace('`', '``')}`" for field in fields)


def _stored(session: SparkSession, settings: Settings, graph: Graph, name: str, as_of: str | None) -> DataFrame:
    """A table as transforms see it: without the columns that Sluice adds to silver."""
    return register.version_of(session, f"{graph.pipeline.name}.{name}", graph.location(settings, name), as_of).drop(*PROVENANCE)


def register_views(
    session: SparkSession, settings: Settings, graph: Graph, reads: Collection[str], as_of: str | None = None, lists: bool = False
) -> None:
    """Make those of a pipeline's computed views known that are in `reads`, by <pipeline>.<view>. lists: they are listed, and not read."""
    pipeline = graph.pipeline.name
    wanted = [view for view in graph.computed if f"{pipeline}.{view}" in reads]
    if lists:
        wanted = [view for view in wanted if missing(settings, graph, view) is None]
    if wanted:
        name(session, pipeline, frames(session, settings, graph, wanted, as_of), readable=not lists)
