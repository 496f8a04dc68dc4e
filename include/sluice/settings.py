"""Where things are: the lake and its inner layout, landing folders, secrets, local state. One place for every path."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sluice.errors import UsageError, nearest

LAKE_FORMAT = 1
"""Version of the lake's inner layout. A lake with a higher one is refused."""

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


def is_name(text: str) -> bool:
    """Whether a pipeline, source or table may be called so: lower-case snake case, safe in paths and in SQL."""
    return _NAME.match(text) is not None


@dataclass(frozen=True)
class Settings:
    """Roots of everything. Relative values of the environment count from the checkout, whoever asks."""

    root: Path
    lake: str
    landing: Path
    secrets: Path
    restricted: Path
    truth: Path

    @classmethod
    def current(cls) -> Settings:
        """The settings of this process, from SLUICE_ROOT, SLUICE_LAKE, SLUICE_LANDING, SLUICE_SECRETS, SLUICE_RESTRICTED."""
        root = Path(os.environ.get("SLUICE_ROOT") or Path(__file__).resolve().parents[2])

        def below(variable: str, default: str) -> Path:
            return root / Path(os.environ.get(variable) or default)

        lake = os.environ.get("SLUICE_LAKE") or "lake"
        return cls(
            root=root,
            lake=lake if "://" in lake else str(root / lake),
            landing=below("SLUICE_LANDING", "landing"),
            secrets=below("SLUICE_SECRETS", "secrets"),
            restricted=below("SLUICE_RESTRICTED", "restricted"),
            truth=below("SLUICE_TRUTH", "truth"),
        )

    @cached_property
    def state(self) -> Path:
        """What set-up makes and nobody edits: jars, the Airflow home, Spark's local directory."""
        return self.root / ".sluice"

    @property
    def spark_properties(self) -> Path:
        """The one file with Spark's configuration."""
        return self.root / "spark_jobs" / "conf" / "spark-defaults.conf"

    def table_path(self, pipeline: str, layer: str, table: str) -> str:
        """Where a table lies: <lake>/<pipeline>/<layer>/<table>."""
        return f"{self.lake}/{pipeline}/{layer}/{table}"

    def bookkeeping(self, pipeline: str, name: str = "") -> str:
        """Where a pipeline's own records lie: <lake>/<pipeline>/_sluice/<name>."""
        return f"{self.lake}/{pipeline}/_sluice/{name}".rstrip("/")

    def checkpoints(self, pipeline: str, flow: str) -> str:
        """The folder of one flow's checkpoints, one sub-folder a generation. The only place that says where they are."""
        return self.bookkeeping(pipeline, f"checkpoints/{flow}")

    def stop_request(self, pipeline: str, run: str) -> Path:
        """The file whose presence asks a run to stop before its next batch."""
        return Path(self.bookkeeping(pipeline, "stop_requests")) / run

    def spark_environment(self) -> dict[str, str]:
        """What a process that starts Spark needs, so that no job resolves a dependency and all share one configuration."""
        spec = importlib.util.find_spec("pyspark")
        spark_home = str(Path(spec.origin).parent) if spec and spec.origin else ""
        environment = {
            "SPARK_HOME": spark_home,
            # For a process that starts a JVM by itself; spark-submit is given the file as an argument. Not SPARK_CONF_DIR: that puts
            # a folder on the class path, and the JVM then refuses the class archive.
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(self.spark_properties))} pyspark-shell",
            "SPARK_DIST_CLASSPATH": str(self.state / "jars" / "*"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.state / "spark-local"),
            "PYSPARK_PYTHON": sys.executable,
            "TZ": "UTC",
            "SLUICE_ROOT": str(self.root),
            "SLUICE_LAKE": self.lake,
            "SLUICE_LANDING": str(self.landing),
            "SLUICE_SECRETS": str(self.secrets),
            "SLUICE_RESTRICTED": str(self.restricted),
            "SLUICE_TRUTH": str(self.truth),
        }
        options = f'-Dlog4j2.configurationFile="file:{self.spark_properties.parent}/log4j2.properties"'
        archive = self.state / "spark.jsa"
        if archive.exists():
            options += f' -XX:SharedArchiveFile="{archive}" -Xlog:disable -Xlog:all=warning:stderr -Xlog:cds*=off:stderr'
        return {**environment, "SPARK_SUBMIT_OPTS": options}


def pipeline_names(settings: Settings) -> list[str]:
    """The pipelines of this checkout: the folders of include/pipelines that hold a pipeline.py."""
    return sorted(path.parent.name for path in (settings.root / "include" / "pipelines").glob("*/pipeline.py"))


def known_pipeline(settings: Settings, name: str) -> str:
    """The name again. Raises UsageError for a pipeline that is not there."""
    names = pipeline_names(settings)
    if name not in names:
        raise UsageError(f"There is no pipeline '{name}'.{nearest(name, names)} A pipeline is a folder of include/pipelines.")
    return name
