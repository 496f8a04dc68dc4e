"""Registers tables and computed views under their SQL names, for reading only.

Tables are registered as views in the session's in-memory catalog. Nothing can be written through a view, and a view can stand for an
earlier version. Registering a table reads its log, so only those that a query names are registered. Computed views are registered as
frames, under names of the same kind.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sluice import delta_log
from sluice.declare.expansion import resolve_computed_views
from sluice.errors import SluiceError
from sluice.lake import log, versions
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.workspace import PROVENANCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def register_tables(session: SparkSession, names: Mapping[str, str], as_of: str | None = None) -> None:
    """Registers tables by name in the session. names: paths by '<pipeline>.<table>'. as_of: a version, date or instant.

    Raises UsageError if a table has no such version, or if as_of is none of these.
    """
    for schema in sorted({name.split(".")[0] for name in names}):
        session.sql(f"CREATE SCHEMA IF NOT EXISTS `{schema}`")
    for name, path in sorted(names.items()):
        schema, table = name.split(".")
        session.sql(f"CREATE OR REPLACE VIEW `{schema}`.`{table}` AS {_select_statement(name, path, as_of)}")


def _read_table_as_of(session: SparkSession, name: str, path: str, as_of: str | None) -> DataFrame:
    """Returns a table as a frame. Arguments and errors are those of `register_tables`."""
    return session.sql(_select_statement(name, path, as_of))


def _select_statement(name: str, path: str, as_of: str | None) -> str:
    version = "" if as_of is None else f" VERSION AS OF {_find_version_as_of(name, path, as_of)}"
    return f"SELECT * FROM delta.`{path}`{version}"


def _find_version_as_of(name: str, path: str, as_of: str) -> int:
    """Returns the version of a table that a version number, date or instant means."""
    if log.latest_table_version(path) is None:
        raise SluiceError(f"Table '{name}' is gone.")
    return versions.resolve_version(name, path, as_of)


def _find_missing_input_table(lake: PipelineLake, name: str) -> str | None:
    """Returns a table that the view reads and that does not exist yet, or None if all exist."""
    made_of = (
        read
        for view in resolve_computed_views(lake.graph.computed, (name,))
        for read in view.reads
        if read not in lake.graph.computed
    )
    return next((read for read in made_of if not delta_log.is_delta_table(lake.path(read))), None)


def compute_view_frames(
    session: SparkSession, lake: PipelineLake, names: Iterable[str], as_of: str | None = None
) -> dict[str, DataFrame]:
    """Returns the views of these names, computed by their transforms from the tables as they are now or as of `as_of`.

    Raises SluiceError if a table that they read does not exist yet, and UsageError if it has no such version.
    """
    wanted = list(names)
    for name in wanted:
        if (lacking := _find_missing_input_table(lake, name)) is not None:
            pipeline = lake.graph.pipeline.name
            raise SluiceError(
                f"The view '{pipeline}.{name}' is made of '{lacking}', which has not been made yet. Run: sluice run {pipeline}"
            )
    known: dict[str, DataFrame] = {}
    for view in resolve_computed_views(lake.graph.computed, wanted):
        for read in view.reads:
            if read not in known:
                known[read] = _read_table_without_provenance(session, lake, read, as_of)
        known[view.name] = view(*(known[read] for read in view.reads))
    return {name: known[name] for name in wanted}


def _register_view_frames(session: SparkSession, pipeline: str, views: Mapping[str, DataFrame], readable: bool = True) -> None:
    """Registers frames as <pipeline>.<name> in the session. readable: whether queries may read them, or only list and describe them.

    A function's result has no SQL text. So the view in the catalog has a text that reads a temporary view, and names that view among those that
    it may read. The statement that creates a view refuses to store this, so it is added afterwards.
    """
    session.sql(f"CREATE SCHEMA IF NOT EXISTS `{pipeline}`")
    for own, frame in views.items():
        temporary = f"_{pipeline}_{own}"
        session.catalog.dropTempView(temporary)
        session.sql(f"CREATE OR REPLACE VIEW `default`.`{temporary}` AS SELECT {_typed_null_select_list(frame)}")
        session.sql(f"CREATE OR REPLACE VIEW `{pipeline}`.`{own}` AS SELECT * FROM `{temporary}`")
        session.sql(f"DROP VIEW `default`.`{temporary}`")
        may_read = json.dumps([[temporary]])
        session.sql(f"ALTER VIEW `{pipeline}`.`{own}` SET TBLPROPERTIES ('view.referredTempViewNames' = '{may_read}')")
        if readable:
            frame.createOrReplaceTempView(temporary)


def _typed_null_select_list(frame: DataFrame) -> str:
    """Returns a select list with the frame's columns, each as NULL of its type."""
    fields: Any = frame._jdf.schema().fields()
    return ", ".join(f"CAST(NULL AS {field.dataType().sql()}) AS `{field.name().replace('`', '``')}`" for field in fields)


def _read_table_without_provenance(session: SparkSession, lake: PipelineLake, name: str, as_of: str | None) -> DataFrame:
    """Returns a table as transforms see it: without the columns that Sluice adds to silver."""
    return _read_table_as_of(session, f"{lake.graph.pipeline.name}.{name}", lake.path(name), as_of).drop(*PROVENANCE)


def register_computed_views(
    session: SparkSession, lake: PipelineLake, reads: Collection[str], as_of: str | None = None, lists: bool = False
) -> None:
    """Registers the computed views of a pipeline that are in `reads`, as <pipeline>.<view>. lists: they are only listed, not read."""
    pipeline = lake.graph.pipeline.name
    wanted = [view for view in lake.graph.computed if f"{pipeline}.{view}" in reads]
    if lists:
        wanted = [view for view in wanted if _find_missing_input_table(lake, view) is None]
    if wanted:
        _register_view_frames(session, pipeline, compute_view_frames(session, lake, wanted, as_of), readable=not lists)
