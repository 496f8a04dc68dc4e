"""The Spark session. Its configuration is one file, spark_jobs/conf/spark-defaults.conf, for jobs, the CLI and tests alike."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sluice.settings import OF_SESSION, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARED = ("blockmgr-", "spark-")
"""How Spark calls the folders that it makes."""
_DAY = 86_400


def start(settings: Settings, name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The process's session, started if need be. A process under spark-submit has its JVM already; any other starts one here.

    conf: what this process wants otherwise than the file says; heard by the first start only.
    """
    for variable, value in settings.spark_environment().items():
        os.environ[variable] = value
    # PySpark hands out instants in the zone of the process; it must be the session's.
    os.environ["TZ"] = "UTC"
    time.tzset()
    settings.spark_local.mkdir(parents=True, exist_ok=True)
    _tidy(settings)
    from pyspark.sql import SparkSession

    _quiet()
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder.appName(name).config("spark.sql.warehouse.dir", str(settings.state / "warehouse"))
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def running(settings: Settings) -> list[Path]:
    """Local folders of Spark sessions that go on, this process's own among them: each removes its own at its end.

    Whose a folder is tells the environment of the processes that live. Folders of before each session had its own are told by their times.
    """
    environments = [_of_process(path) for path in Path("/proc").glob("[0-9]*")]
    owned = {one.local for one in environments if one.local}
    # Where processes cannot be looked at, as on macOS, any folder may be in use.
    unknown = not environments or any(one.is_spark and one.local is None for one in environments)
    ours = str(settings.spark_local) + os.sep
    others = [one.started for one in environments if one.is_spark and not str(one.local or "").startswith(ours)]
    since = min(others, default=float("inf"))
    return [
        path
        for path in sorted(settings.spark_local.glob("*"))
        if (path.name.startswith(OF_SESSION) and (unknown or str(path) in owned))
        or (path.name.startswith(_SHARED) and path.lstat().st_mtime >= since)
    ]


class _Process(NamedTuple):
    """local: the folder of its local files; "" where it has none, None where that may not be looked at. started: seconds since 1970."""

    is_spark: bool = False
    local: str | None = ""
    started: float = 0.0


def _of_process(path: Path) -> _Process:
    try:
        is_spark, started = b"org.apache.spark" in (path / "cmdline").read_bytes(), path.stat().st_mtime
    except OSError:
        return _Process()  # it has ended
    try:
        said = (path / "environ").read_bytes().split(b"\0")
    except PermissionError:
        return _Process(is_spark, None, started)
    except OSError:
        return _Process()
    name = b"SPARK_LOCAL_DIRS="
    return _Process(is_spark, next((os.fsdecode(one.removeprefix(name)) for one in said if one.startswith(name)), ""), started)


def _tidy(settings: Settings) -> None:
    """Remove the empty folders of sessions that have ended: Spark leaves them. One of a day ago is nobody's that is about to start."""
    for path in settings.spark_local.glob(f"{OF_SESSION}*"):
        try:
            if time.time() - path.stat().st_mtime > _DAY:
                path.rmdir()
        except OSError:
            continue  # not empty, or gone


def _quiet() -> None:
    """Keep PySpark from logging each query that fails with its stack trace and its plan, which may hold data."""
    if os.environ.get("SLUICE_DEBUG"):
        return
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
