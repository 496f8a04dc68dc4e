"""The caller's Spark session, and a sibling session for the engine, which marks commits by session settings."""

from __future__ import annotations

import os
import sys
import threading
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

import sluice
from sluice.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    from pyspark.sql import SparkSession

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
        from pyspark.sql import SparkSession

        with self._lock:
            if not self._inside:
                self._before = SparkSession._activeSession
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        from pyspark.sql import SparkSession

        with self._lock:
            self._inside -= 1
            if not self._inside:
                SparkSession._activeSession = self._before


given_back = _ActiveSessionGuard()
"""Wraps all work of other threads. Runs may overlap; the last to end restores the session from before the first."""
