"""The Spark session. Its configuration is one file, spark_jobs/conf/spark-defaults.conf, for jobs, the CLI and tests alike."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice import session_folders
from sluice.private_folder import make_private_folder
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark_session(settings: Settings, name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The process's session, started if need be. A process under spark-submit has its JVM already; any other starts one here.

    conf: what this process wants otherwise than the file says; heard by the first start only.
    """
    for variable, value in settings.spark_environment().items():
        os.environ[variable] = value
    # PySpark hands out instants in the zone of the process; it must be the session's.
    os.environ["TZ"] = "UTC"
    time.tzset()
    make_private_folder(settings.spark_local)  # shuffled and spilt rows, of restricted tables, too
    session_folders.remove_empty_session_folders(settings)
    from pyspark.sql import SparkSession

    _silence_query_logs()
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder.appName(name).config("spark.sql.warehouse.dir", str(settings.state / "warehouse"))
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _keep_standard_output_from_jvm(session)
    return session


def _keep_standard_output_from_jvm(session: SparkSession) -> None:
    """Take standard output from the JVM: it belongs to the job, and Delta's VACUUM prints "Deleted 0 files" to it."""
    jvm: Any = session._jvm
    console = getattr(getattr(jvm.scala, "Console$"), "MODULE$")
    console.setOutDirect(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))


def _silence_query_logs() -> None:
    """Keep PySpark from logging each query that fails with its stack trace and its plan, which may hold data."""
    if os.environ.get("SLUICE_DEBUG"):
        return
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # Of a JVM that is gone Py4J logs a stack trace for each call that was under way, far more than the line that says so; by the root
    # logger, whose others' messages are kept.
    logging.getLogger().addFilter(_is_not_of_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"
