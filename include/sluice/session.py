"""The Spark session, what Python keeps of its JVM, and the folders of sessions' local files.

Its configuration is one file, spark_jobs/conf/spark-defaults.conf, for jobs, the CLI and tests alike. A session's folder has blocks,
shuffled and spilt rows. The session removes it at its end, unless it is killed. The environment of a live process names its folder.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil  # type: ignore[import-untyped]  # it ships no types

from sluice.call_sites import are_call_sites_recorded
from sluice.private_files import make_private_folder
from sluice.settings import Settings
from sluice.spark_process import OF_SESSION, build_spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Py4J has found in the JVM by its name is kept, instead of asked for at each use.
#
# Py4J asks anew for each part of each name, each time: PySpark's `F.col("a")` is three requests, of which two only find `functions` and `col`. And
# a name that is a package's, or that Py4J tries in each imported package, is looked up in all jars, of which there are three hundred. An increment
# asks thousands of times, for some hundred names. Which name is a package, a class or a method stays the same as long as the JVM lives.


def keep_java_lookups() -> None:
    """Make Py4J keep the packages, classes and static methods that it finds, for as long as its view of the JVM lives.

    Values of static fields are asked for each time: they may change. Calling this again changes nothing.
    """
    from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

    kept = (JavaPackage, JavaClass, JavaMember)
    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _keep_answers(kind.__getattr__, kept)


def _keep_answers(ask: Callable[[Any, str], Any], kept: tuple[type, ...]) -> Callable[[Any, str], Any]:
    @functools.wraps(ask)
    def find(holder: Any, name: str) -> Any:
        found = ask(holder, name)
        if isinstance(found, kept):
            vars(holder)[name] = found  # Python calls __getattr__ only for what is not there
        return found

    return find


def start_spark_session(settings: Settings, name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The process's session, started if needed. A process under spark-submit already has its JVM; any other starts one here.

    conf: properties that override the file; they only take effect at the first start.
    """
    began = time.time()
    # Under spark-submit the JVM exists already, with what it needs; if a cluster started it, that is nothing of this machine's.
    has_jvm = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.update(settings.driver_environment() if has_jvm else build_spark_environment(settings))
    # PySpark returns instants in the time zone of the process, which must be that of the session.
    os.environ["TZ"] = "UTC"
    time.tzset()
    make_private_folder(settings.spark_local)  # shuffled and spilt rows, of restricted tables, too
    _remove_empty_session_folders(settings)
    from pyspark.sql import SparkSession

    _silence_query_logs()
    keep_java_lookups()
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder.appName(name).config("spark.sql.warehouse.dir", str(settings.state / "warehouse"))
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _record_call_sites_where_asked(session)
    _START_UP[:] = [_measure_start_up(began)]
    _keep_standard_output_from_jvm(session)
    return session


_START_UP: list[float] = []
"""The seconds from the start of this process to its session; 0 once they have been taken."""


def take_start_up_seconds() -> float:
    """The seconds from the start of this process, or of the spark-submit that started it, to its session; 0 at later calls."""
    return _START_UP.pop() if _START_UP else 0.0


_LONG_THERE = 60.0
"""If a process is older when it starts a session, it was started for something else, such as a notebook."""


def _measure_start_up(began: float) -> float:
    """Seconds from the start of the process, or of the spark-submit that started it, to now. began: when the session was requested."""
    try:
        process = psutil.Process(os.getppid()) if "PYSPARK_GATEWAY_PORT" in os.environ else psutil.Process()
        started = float(process.create_time())
    except psutil.Error:
        started = began
    return max(time.time() - (started if began - started < _LONG_THERE else began), 0.0)


def _keep_standard_output_from_jvm(session: SparkSession) -> None:
    """Take standard output from the JVM: it belongs to the job, and Delta's VACUUM prints "Deleted 0 files" to it."""
    jvm: Any = session._jvm
    console = getattr(getattr(jvm.scala, "Console$"), "MODULE$")
    console.setOutDirect(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))


_CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"
"""PySpark's own switch for recording lines of code."""


def _record_call_sites_where_asked(session: SparkSession) -> None:
    """Make PySpark record lines of code only in `call_sites_recorded`. Not called for a session that somebody else began, as a notebook's.

    With SLUICE_DEBUG all lines are recorded; if PySpark's switch is off, none are.
    """
    from pyspark.errors import utils

    if not os.environ.get("SLUICE_DEBUG") and session.conf.get(_CALL_SITES, "true") == "true":
        utils.is_debugging_enabled = are_call_sites_recorded


def _silence_query_logs() -> None:
    """Keep PySpark from logging each query that fails with its stack trace and its plan, which may hold data."""
    if os.environ.get("SLUICE_DEBUG"):
        return
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # If the JVM is gone, Py4J logs a stack trace for each call that was under way, instead of one line; by the root logger, whose
    # messages from others are kept.
    logging.getLogger().addFilter(_is_not_of_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


_DAY = 86_400


def session_folders_in_use(settings: Settings) -> list[Path]:
    """The folders of live sessions, including that of this process."""
    every = list(_list_processes())
    return [path for path in _list_session_folders(settings) if _is_session_folder_in_use(path, every)]


def abandoned_session_folders(settings: Settings) -> list[Path]:
    """The folders that killed sessions left behind."""
    in_use = set(session_folders_in_use(settings))
    return [path for path in _list_session_folders(settings) if path not in in_use]


def _remove_empty_session_folders(settings: Settings) -> None:
    """Remove the empty folders that Spark leaves of ended sessions. A day-old one cannot belong to a session that is about to start."""
    for path in settings.spark_local.glob(f"{OF_SESSION}*"):
        try:
            if time.time() - path.stat().st_mtime > _DAY:
                path.rmdir()
        except OSError:
            continue  # not empty, or gone


class _Process(NamedTuple):
    """local: the folder of its local files; "" if it has none, None if this process may not look. started: seconds since 1970."""

    is_spark: bool
    local: str | None
    started: float
    user: int | None


def _list_processes() -> Iterator[_Process]:
    for one in psutil.process_iter(["cmdline", "environ", "create_time", "uids"]):
        told = one.info
        is_spark = any("org.apache.spark" in word for word in told["cmdline"] or ())
        local = None if told["environ"] is None else told["environ"].get("SPARK_LOCAL_DIRS", "")
        yield _Process(is_spark, local, told["create_time"] or 0.0, told["uids"].real if told["uids"] else None)


def _list_session_folders(settings: Settings) -> list[Path]:
    return sorted(settings.spark_local.glob(f"{OF_SESSION}*"))


def _is_session_folder_in_use(path: Path, processes: Sequence[_Process]) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    real = os.path.realpath(path)  # another process may know the folder by another path
    if any(one.local and os.path.realpath(one.local) == real for one in processes):
        return True
    unknown = (one for one in processes if one.is_spark and one.local is None)
    return any(one.user in (None, status.st_uid) and status.st_mtime >= one.started for one in unknown)
