"""The caller's Spark session, and one of its kind for the engine, which marks commits by settings of the session."""

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
    # What the engine relies on, whatever the caller's session is set to.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.sql.legacy.javaCharsets": "true",
    # Logs are short: made for long ones, their state is 50 partitions.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def find_active_session() -> SparkSession:
    """The session of the calling thread. Raises UsageError where there is none, or where it has no Delta Lake."""
    from pyspark.sql import SparkSession

    context: Any = SparkContext._active_spark_context
    if context is None:
        raise UsageError(
            "autoload_to_table works in the active Spark session of this process, and there is none. Start one first."
        )
    # Asked in the JVM: PySpark's own answer is whichever session made a frame last, in any thread.
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
    """A session of its own with the caller's catalogs and database."""
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
    """Large batches are read by Python workers. On one machine, and unless the caller says which, they are of this process's Python."""
    if not str(context.master).startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable
    try:
        distribution("sluice")
    except PackageNotFoundError:  # it is only on this process's path
        known = context.environment.get("PYTHONPATH", "")
        ours = str(Path(sluice.__file__).parents[1])
        if ours not in known.split(os.pathsep):
            context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (known, ours)))


class _ActiveSessionGuard:
    """Lets PySpark's active session be the same afterwards: it is one variable for all threads, which making a frame sets."""

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
"""Around all work of other threads; runs may overlap, and the last to end restores what was before the first."""
