"""Where autoload_to_table writes: a table, by its catalog name or its path, through a sibling of the caller's Spark session.

The table exists or is made now. The engine has a session of its own, since it marks commits by session settings.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import sluice
from sluice import delta_log
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.source import Source
from sluice.errors import UsageError
from sluice.flows.bronze.table_shape import TECHNICAL
from sluice.lake import table_creation, table_frames
from sluice.lake.nested_types import has_other_type
from sluice.lake.table_creation import TableShape

_CONFIGURATION = {
    # The settings that the engine relies on, whatever the caller's session has.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.sql.legacy.javaCharsets": "true",
    # These logs are short; the default of 50 partitions is made for long ones.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def find_active_session() -> SparkSession:
    """The session of the calling thread. Raises UsageError if there is none, or if it lacks Delta Lake."""
    context: Any = SparkContext._active_spark_context
    if context is None:
        raise UsageError(
            "autoload_to_table works in the active Spark session of this process, and there is none. Start one first."
        )
    # Asks the JVM: PySpark would return the session that last made a frame, in any thread.
    of_jvm = context._jvm.org.apache.spark.sql.classic.SparkSession
    found = of_jvm.getActiveSession()
    session = SparkSession(context, (found if found.isDefined() else of_jvm.getDefaultSession()).get())
    extensions = str(session.conf.get("spark.sql.extensions", ""))
    catalog = str(session.conf.get("spark.sql.catalog.spark_catalog", ""))
    if "DeltaSparkSessionExtension" not in extensions or "DeltaCatalog" not in catalog:
        raise UsageError(
            "The active Spark session has no Delta Lake. Start it with spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
            "and spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog."
        )
    return session


def open_sibling_session(caller: SparkSession) -> SparkSession:
    """Opens a new session with the caller's catalogs and database."""
    session = caller.newSession()
    for name, value in caller.conf.getAll.items():
        if name.startswith("spark.sql.catalog."):
            session.conf.set(name, value)
    for name, value in _CONFIGURATION.items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.shuffle.partitions", max(2, caller.sparkContext.defaultParallelism))
    session.catalog.setCurrentCatalog(caller.catalog.currentCatalog())
    session.catalog.setCurrentDatabase(caller.catalog.currentDatabase())
    _configure_python_workers(caller.sparkContext)
    return session


def _configure_python_workers(context: SparkContext) -> None:
    """Makes Python workers, which read large batches, run this process's Python: on one machine, unless the caller chose another."""
    if not str(context.master).startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable
    try:
        distribution("sluice")
    except PackageNotFoundError:  # it is not installed, only on this process's path
        known = context.environment.get("PYTHONPATH", "")
        ours = str(Path(sluice.__file__).parents[1])
        if ours not in known.split(os.pathsep):
            context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (known, ours)))


class _ActiveSessionGuard:
    """Restores PySpark's active session afterwards: it is one variable for all threads, and making a frame sets it."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._before: SparkSession | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = SparkSession._activeSession
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                SparkSession._activeSession = self._before


given_back = _ActiveSessionGuard()
"""Wraps all work of other threads. Runs may overlap; the last to end restores the session from before the first."""


_BY_PATH = re.compile(r"delta\.`(.+)`", re.IGNORECASE)
_LOCAL = re.compile(r"^file:/+")


@dataclass(frozen=True)
class AutoloadTarget:
    """A table. said: as the caller named it. name: in the catalog; None for a path. path: None until the catalog chooses one."""

    said: str
    name: str | None
    path: str | None

    @property
    def short(self) -> str:
        """The last part of its name in lower-case snake case, as a name for the source."""
        last = Path(self.path).name if self.name is None and self.path else (self.name or "").replace("`", "").split(".")[-1]
        return re.sub(r"[^a-z0-9]+", "_", last.lower()).strip("_0123456789") or "records"


def resolve_local_folder(said: str | Path, what: str) -> Path:
    """Resolves a folder on this machine, from "/x", "file:/x" or a relative path. Raises UsageError for any other address."""
    text = _LOCAL.sub("/", str(said))
    if "://" in text or re.match(r"[a-z][a-z0-9+.-]+:/", text):
        raise UsageError(f"autoload_to_table: {what} is a folder on a local disk, not '{said}'.")
    return Path(text).resolve()


def find_autoload_target(session: SparkSession, table_name: str) -> AutoloadTarget:
    """The table of that name or path. Raises UsageError for an empty name, or if it is no Delta table on a local disk."""
    quoted = _BY_PATH.fullmatch(table_name)
    if quoted or "/" in table_name:
        return AutoloadTarget(
            table_name,
            None,
            str(resolve_local_folder(quoted.group(1).replace("``", "`") if quoted else table_name, "table_name")),
        )
    try:
        if not session.catalog.tableExists(table_name):
            _refuse_missing_database(session, table_name)
            return AutoloadTarget(table_name, table_name, None)
        detail = session.sql(f"DESCRIBE DETAIL {table_name}").select("format", "location").collect()[0]
    except AnalysisException as error:
        raise UsageError(
            f"autoload_to_table: '{table_name}' is no table that rows can be added to: {str(error).splitlines()[0]}"
        ) from None
    if detail.format != "delta":
        raise UsageError(
            f"autoload_to_table: the table '{table_name}' has the format '{detail.format}'; it must be a Delta table."
        )
    return AutoloadTarget(table_name, table_name, str(resolve_local_folder(detail.location, f"the location of '{table_name}'")))


def create_autoload_target(session: SparkSession, target: AutoloadTarget, shape: TableShape) -> str:
    """Makes the table unless it exists, and adds Sluice's columns. Returns its path. Raises as `find_autoload_target` does."""
    try:
        if target.path is None:
            table_creation.create_catalog_table(session, target.said, shape)
            return str(find_autoload_target(session, target.said).path)
        made = table_creation.create_table(session, target.path, shape)
    except AnalysisException as error:
        raise UsageError(f"autoload_to_table: '{target.said}' cannot be made: {str(error).splitlines()[0]}") from None
    if not made:
        _add_technical_columns(session, target)
    return target.path


def has_delta_table(target: AutoloadTarget) -> bool:
    """Whether a Delta table already exists."""
    return target.path is not None and delta_log.is_delta_table(target.path)


def read_own_columns(session: SparkSession, path: str) -> StructType:
    """The table's columns without Sluice's."""
    schema = table_frames.read_table(session, path).schema
    return StructType([schema[name] for name in delivered_columns(schema.names)])


def refuse_conflicting_types(session: SparkSession, target: AutoloadTarget, source: Source) -> None:
    """Raises UsageError if the source declares a column of the table with another type: that would make the table anew."""
    there = {field.name.lower(): field.dataType for field in read_own_columns(session, str(target.path))}
    for option, ddl in (("schema", source.ddl), ("schema_hints", source.schema_hints)):
        for field in table_creation.parse_ddl_schema(ddl or ""):
            found = there.get(field.name.lower(), field.dataType)
            if has_other_type(found, field.dataType) and not source.widen_types:
                raise UsageError(
                    f"autoload_to_table: the table '{target.said}' has the column {field.name} as {found.simpleString()}, {option} says "
                    f"{field.dataType.simpleString()}. Say the table's type, or choose another table."
                )


def _refuse_missing_database(session: SparkSession, name: str) -> None:
    """For a name such as database.table, checks that the database exists before a table is made in it."""
    database = name.rpartition(".")[0]
    if database and not session.catalog.databaseExists(database):
        raise UsageError(f"autoload_to_table: there is no database '{database}'. Make it first: CREATE DATABASE {database}")


def _add_technical_columns(session: SparkSession, target: AutoloadTarget) -> None:
    """Adds Sluice's columns to a table that somebody else made; they are NULL in its existing rows."""
    path = str(target.path)
    there = {field.name.lower(): field.dataType for field in table_frames.read_table(session, path).schema}
    wanted = table_creation.parse_ddl_schema(TECHNICAL)
    for field in wanted:
        found = there.get(field.name, field.dataType)
        if found != field.dataType:
            raise UsageError(
                f"autoload_to_table: the table '{target.said}' has a column {field.name} of type {found.simpleString()}, which Sluice "
                f"needs as {field.dataType.simpleString()}. Rename it there, or choose another table."
            )
    missing = [f"{field.name} {field.dataType.simpleString()}" for field in wanted if field.name not in there]
    if missing:
        escaped = path.replace("`", "``")
        session.sql(f"ALTER TABLE delta.`{escaped}` ADD COLUMNS ({', '.join(missing)})")
