"""The configuration of a process that starts Spark: one for all, so that no job resolves a dependency."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import uuid
from pathlib import Path

from sluice.durable_files import write_text_durably
from sluice.errors import UsageError
from sluice.settings import SPARK_DEFAULTS, Settings
from sluice.stores.opening import find_store_kind, is_store_url

OF_SESSION = "session-"
"""The prefix of the names of the folders with Spark sessions' local files, one folder per session."""
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000 -XX:Tier4CompileThreshold=75000 "
    "-XX:Tier4BackEdgeThreshold=200000"
)
"""All compilers, and the slow one takes up what is called five times as often as by default. Planning is wide: much is called some thousand
times, and by default the slow compiler took more than half of each of the first ten increments of a kept process."""


def find_spark_properties_file(settings: Settings) -> Path:
    """The one file with Spark's configuration. For a profile, or a store, that adds to the defaults, it is written here."""
    defaults = settings.spark_conf / f"{SPARK_DEFAULTS}.conf"
    profile = [] if settings.spark_profile == "local" else [settings.spark_conf / f"{settings.spark_profile}.conf"]
    store = [path] if (path := _find_store_conf(settings)) else []
    if not (profile or store):
        return defaults
    # If a property has two lines, Spark takes the later one.
    parts = [path.read_text(encoding="utf-8") for path in (defaults, *profile, *store)]
    name = "-".join(["spark", settings.spark_profile, *(path.stem for path in store)])
    return _write_if_changed(settings.state / f"{name}.conf", "\n".join(parts))


def _find_store_conf(settings: Settings) -> Path | None:
    """The file with Spark's properties for the lakes' store; None if they are on a disk, or if Spark needs none."""
    if (lake := _find_lake_on_store(settings)) is None:
        return None
    path = settings.spark_conf / "stores" / f"{find_store_kind(lake).hadoop}.conf"
    return path if path.exists() else None


def _find_lake_on_store(settings: Settings) -> str | None:
    """The lake for which Spark needs a store, which may be another one that is copied; None if there is none."""
    return next((lake for lake in (settings.lake, settings.copied_lake) if is_store_url(lake)), None)


def build_spark_class_path(settings: Settings) -> str:
    """The jars besides PySpark's own: Delta's, and for a lake on a store its file system's and the log store.

    Raises UsageError if those of the store were not fetched.
    """
    folders = [settings.state / "jars"]
    if _find_store_conf(settings):
        folders += [settings.state / "log-store", settings.state / "store-jars"]
        if any(not any(folder.glob("*.jar")) for folder in folders):
            raise UsageError(
                f"The lake {_find_lake_on_store(settings)} is on a store, and Spark lacks the jars for it. Fetch them: make setup-store"
            )
    return os.pathsep.join(str(folder / "*") for folder in folders)


def read_spark_property(settings: Settings, name: str) -> str:
    """A property of the profile; "" if it has none."""
    lines = (line.split(maxsplit=1) for line in find_spark_properties_file(settings).read_text(encoding="utf-8").splitlines())
    found = [line[1].strip() for line in lines if len(line) == 2 and line[0] == name]
    return found[-1] if found else ""  # of two lines Spark takes the later one


def build_spark_environment(settings: Settings) -> dict[str, str]:
    """What a process that starts Spark needs, so that no job resolves a dependency and all share one configuration."""
    spec = importlib.util.find_spec("pyspark")
    spark_home = str(Path(spec.origin).parent) if spec and spec.origin else ""
    properties = str(find_spark_properties_file(settings))
    environment = {
        "SPARK_HOME": spark_home,
        # For a process that starts a JVM by itself; spark-submit is given the file as an argument. Not SPARK_CONF_DIR: that puts
        # a folder on the class path, and the JVM then refuses the class archive.
        "PYSPARK_SUBMIT_ARGS": shlex.join(["--master", settings.spark_master, "--properties-file", properties, "pyspark-shell"]),
        "SPARK_DIST_CLASSPATH": build_spark_class_path(settings),
        # A new folder each time, so that the leftovers of a killed session can be told from the files of a live one.
        "SPARK_LOCAL_DIRS": str(settings.spark_local / f"{OF_SESSION}{uuid.uuid4().hex[:12]}"),
        **settings.driver_environment(),
    }
    if not settings.on_cluster:  # whose executors must reach the driver
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = f'-Dlog4j2.configurationFile="file:{settings.spark_conf}/log4j2.properties"'
    if os.environ.get("SLUICE_DEBUG"):
        options += " -Dsluice.log=whole"
    archive = Path(sys.prefix) / "spark.jsa"  # it fits one environment: the paths of the jars are in it
    if archive.exists():
        options += f' -XX:SharedArchiveFile="{archive}" -Xlog:disable -Xlog:all=warning:stderr -Xlog:cds*=off:stderr'
    return {**environment, "SPARK_SUBMIT_OPTS": options}


def _write_if_changed(path: Path, content: str) -> Path:
    """Write the file unless it already has this content. Returns its path."""
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_durably(path, content)
    return path


def session_conf_with_all_compilers(settings: Settings) -> dict[str, str]:
    """Properties for a process that is kept running, or has much to read: use all compilers. {} if its properties file does so anyway.

    Source: increments 2 to 8 of `benchmarks/increments.py` in one process, CPU seconds each beside other work: 12 to 14 with the thresholds that
    Java has by default, 8.5 to 9.4 with these, 8.1 to 10.5 with four times these, 6.7 to 7.5 with the quick compiler alone, whose code stays as
    slow as it is.
    """
    given = read_spark_property(settings, _DRIVER_OPTIONS)
    left = [option for option in given.split() if option != _QUICK_COMPILER]
    return {_DRIVER_OPTIONS: " ".join([LATE_COMPILER, *left])} if left != given.split() else {}
