"""Where things are: the lake and its inner layout, landing folders, secrets, local state. One place for every path.

SLUICE_ENV chooses the environment, a file of environments/: dev (the default), test, prod.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import tomllib
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sluice.catalog_address import NO_CATALOG, CatalogAddress, parse_catalog_address
from sluice.durable_files import write_text_durably
from sluice.errors import UsageError, nearest_name_hint
from sluice.locations import Location, locate
from sluice.stores.opening import find_store_kind, is_store_url

LAKE_FORMAT = 1
"""Version of the lake's inner layout. A lake with a higher one is refused."""

DEFAULT_ENVIRONMENT = "dev"
LEASE_DESCRIPTION, JVM_LOCK, DRIVER_LOCK = "lease.json", "lease.lock", "lease.driver.lock"
"""In a pipeline's `_sluice`: who holds its lease; and the two files whose locks are the lease, of the JVM and of the Python that commit."""
LEASE_FILES = (LEASE_DESCRIPTION, JVM_LOCK, DRIVER_LOCK)
PLACES = ("lake", "landing", "secrets", "restricted", "truth", "vault")
"""The top-level names in an environment's file; SLUICE_LAKE and so on override them."""
CATALOG = "catalog"
"""The top-level name in an environment's file that may be missing: the catalog in which tables get names. SLUICE_CATALOG overrides it."""
SPARK = ("profile", "master")
"""The names below [spark]; SLUICE_SPARK_PROFILE and SLUICE_SPARK_MASTER override them."""

_DEFAULTS = "spark-defaults"
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


QUARANTINE = "quarantine"
"""The folder of a pipeline in which quarantines lie, beside those of its layers."""

LINEAGE_EVENTS = "openlineage"
"""The folder of a pipeline's `_sluice` in which OpenLineage events lie that go to no server."""

FOLLOWED_JOBS = "followed_jobs"
"""The folder of a pipeline's `_sluice` in which drivers that a cluster started say that they live, and how they ended."""


def is_valid_name(text: str) -> bool:
    """Whether a pipeline, source or table may have this name: lower-case snake case, safe in paths and in SQL."""
    return _NAME.match(text) is not None


OF_SESSION = "session-"
"""The prefix of the names of the folders with Spark sessions' local files, one folder per session."""


@dataclass(frozen=True)
class Settings:
    """The root folders, and which Spark. Relative paths are always relative to the checkout.

    spark_profile: `local`, or another file of spark_jobs/conf. spark_master: as spark-submit's --master. executor_python: the path of
    Python where executors run, of the same version as here; this process's unless it is said (SLUICE_EXECUTOR_PYTHON). secrets_given: a
    folder of secrets of this process alone, which Airflow's secret back end has (SLUICE_SECRETS_GIVEN). vault: where the identifiers of people
    lie who asked to be erased; beside the truth unless it is said. released: de-identified copies, for everybody to read; there, too.
    retain: takes the place of every pipeline's `retain`, for demonstrations and tests (SLUICE_RETAIN); never in `prod`.
    erasure_approval: whether requests to erase people wait until somebody approves of them (SLUICE_ERASURE_APPROVAL=yes).
    openlineage_file: whether runs write OpenLineage events beside the pipeline's records (SLUICE_OPENLINEAGE=yes); openlineage_url: the
    server that gets them instead (SLUICE_OPENLINEAGE_URL). catalog: where tables are registered by name (SLUICE_CATALOG); None: nowhere.
    copied_lake: another lake that this process reads, to copy tables from it.
    """

    root: Path
    lake: str
    landing: Location
    secrets: Path
    restricted: Location
    truth: Path
    environment: str = DEFAULT_ENVIRONMENT
    spark_profile: str = "local"
    spark_master: str = "local[*]"
    executor_python: str = ""
    secrets_given: Path | None = None
    retain: str | None = None
    erasure_approval: bool = False
    openlineage_file: bool = False
    openlineage_url: str = ""
    catalog: CatalogAddress | None = None
    vault: Path = Path()
    released: Location = Path()
    copied_lake: str = ""

    def __post_init__(self) -> None:
        if self.released == Path():
            object.__setattr__(self, "released", self.truth.parent / "released")
        if self.vault == Path():
            object.__setattr__(self, "vault", self.truth.parent / "vault")

    @classmethod
    def current(cls) -> Settings:
        """The settings of this process: those of the environment that SLUICE_ENV names, overridden by variables.

        Raises UsageError for an unknown environment or profile, and for a file that lacks a setting.
        """
        root = Path(os.environ.get("SLUICE_ROOT") or Path(__file__).resolve().parents[2])
        name = os.environ.get("SLUICE_ENV") or DEFAULT_ENVIRONMENT
        said = _read_environment_file(root, name)
        settings = cls(
            root=root,
            lake=str(_place_below(root, said["lake"])),
            landing=_place_below(root, said["landing"]),
            secrets=_folder_below(root, said, "secrets"),
            restricted=_place_below(root, said["restricted"]),
            truth=_folder_below(root, said, "truth"),
            vault=_folder_below(root, said, "vault"),
            released=_place_below(root, given) if (given := os.environ.get("SLUICE_RELEASED")) else Path(),
            environment=name,
            spark_profile=said["profile"],
            spark_master=said["master"],
            executor_python=os.environ.get("SLUICE_EXECUTOR_PYTHON") or "",
            secrets_given=Path(given) if (given := os.environ.get("SLUICE_SECRETS_GIVEN")) else None,
            retain=_read_retention_override(name),
            erasure_approval=_read_yes_or_no("SLUICE_ERASURE_APPROVAL"),
            openlineage_file=_read_yes_or_no("SLUICE_OPENLINEAGE"),
            openlineage_url=os.environ.get("SLUICE_OPENLINEAGE_URL") or "",
            catalog=parse_catalog_address(said[CATALOG]),
        )
        for name_of_place, place, held in (
            ("RESTRICTED", settings.restricted, "restricted tables"),
            ("RELEASED", settings.released, "released copies"),
        ):
            if is_store_url(str(place)) and not is_store_url(settings.lake):
                raise UsageError(
                    f"SLUICE_{name_of_place} is on a store and the lake is not: {held} lie on a disk, or both on one store."
                )
        settings.require_known_profile(f"environment '{name}'")
        return settings

    def require_known_profile(self, said_by: str) -> None:
        """Raises UsageError, with the nearest name, if there is no such Spark profile. said_by: who names it."""
        profiles = self.spark_profiles()
        if self.spark_profile not in profiles:
            hint = nearest_name_hint(self.spark_profile, profiles)
            raise UsageError(f"There is no Spark profile '{self.spark_profile}' ({said_by}).{hint}")

    @property
    def lake_folder(self) -> Location:
        """The lake as a place."""
        return locate(self.lake)

    @property
    def sends_lineage(self) -> bool:
        """Whether runs make OpenLineage events."""
        return self.openlineage_file or bool(self.openlineage_url)

    @cached_property
    def state(self) -> Path:
        """The folder of generated files that nobody edits: jars, the Airflow home, Spark's local directory."""
        return self.root / ".sluice"

    @property
    def spark_local(self) -> Path:
        """The folder below which each Spark session has its local files: blocks, shuffled and spilt rows, state that is in use."""
        return self.state / "spark-local"

    @property
    def on_cluster(self) -> bool:
        """Whether Spark's executors are separate processes, perhaps on other hosts."""
        return not self.spark_master.startswith("local")

    @property
    def spark_conf(self) -> Path:
        """The folder with Spark's configuration files."""
        return self.root / "spark_jobs" / "conf"

    def spark_profiles(self) -> list[str]:
        """The existing profiles: `local`, which is spark-defaults.conf unchanged, and those that override some of it."""
        return sorted({"local", *(path.stem for path in self.spark_conf.glob("*.conf") if path.stem != _DEFAULTS)})

    @property
    def spark_properties(self) -> Path:
        """The one file with Spark's configuration. For a profile, or a store, that adds to the defaults, it is written here."""
        defaults = self.spark_conf / f"{_DEFAULTS}.conf"
        profile = [] if self.spark_profile == "local" else [self.spark_conf / f"{self.spark_profile}.conf"]
        store = [path] if (path := self.spark_store_conf) else []
        if not (profile or store):
            return defaults
        # Of two lines for one property, Spark takes the later.
        parts = [path.read_text(encoding="utf-8") for path in (defaults, *profile, *store)]
        name = "-".join(["spark", self.spark_profile, *(path.stem for path in store)])
        return _write_if_changed(self.state / f"{name}.conf", "\n".join(parts))

    @property
    def spark_store_conf(self) -> Path | None:
        """The file with what Spark is told for the lakes' store; None where they are on a disk, or Spark needs to be told nothing."""
        if self._lake_on_store is None:
            return None
        path = self.spark_conf / "stores" / f"{find_store_kind(self._lake_on_store).hadoop}.conf"
        return path if path.exists() else None

    @property
    def _lake_on_store(self) -> str | None:
        """The lake that Spark needs a store for, which may be another that is copied; None if there is none."""
        return next((lake for lake in (self.lake, self.copied_lake) if is_store_url(lake)), None)

    def spark_class_path(self) -> str:
        """The jars beside PySpark's own: Delta's, and for a lake on a store its file system's and the log store.

        Raises UsageError if those of the store have not been fetched.
        """
        folders = [self.state / "jars"]
        if self.spark_store_conf:
            folders += [self.state / "log-store", self.state / "store-jars"]
            if any(not any(folder.glob("*.jar")) for folder in folders):
                raise UsageError(
                    f"The lake {self._lake_on_store} is on a store, and Spark lacks the jars for it. Fetch them: make setup-store"
                )
        return os.pathsep.join(str(folder / "*") for folder in folders)

    def spark_property(self, name: str) -> str:
        """A property of the profile; "" where it does not say it."""
        lines = (line.split(maxsplit=1) for line in self.spark_properties.read_text(encoding="utf-8").splitlines())
        found = [line[1].strip() for line in lines if len(line) == 2 and line[0] == name]
        return found[-1] if found else ""  # of two lines Spark takes the later

    def secret(self, name: str) -> Path:
        """The path of a secret's file: in the folder given to this process if it is there, else below SLUICE_SECRETS. It may not exist."""
        given = self.secrets_given / name if self.secrets_given else None
        return given if given and given.is_file() else self.secrets / name

    def driver_environment(self) -> dict[str, str]:
        """What the Python of a driver needs, wherever it runs: these settings, and which Python the executors have."""
        return {
            "PYSPARK_PYTHON": (self.executor_python if self.on_cluster else "") or sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "TZ": "UTC",
            "SLUICE_ROOT": str(self.root),
            "SLUICE_ENV": self.environment,
            "SLUICE_SPARK_PROFILE": self.spark_profile,
            "SLUICE_SPARK_MASTER": self.spark_master,
            "SLUICE_EXECUTOR_PYTHON": self.executor_python,
            "SLUICE_LAKE": self.lake,
            "SLUICE_LANDING": str(self.landing),
            "SLUICE_SECRETS": str(self.secrets),
            "SLUICE_RESTRICTED": str(self.restricted),
            "SLUICE_TRUTH": str(self.truth),
            "SLUICE_VAULT": str(self.vault),
            "SLUICE_RELEASED": str(self.released),
            "SLUICE_ERASURE_APPROVAL": "yes" if self.erasure_approval else "no",
            **({"SLUICE_RETAIN": self.retain} if self.retain else {}),
            "SLUICE_CATALOG": str(self.catalog or NO_CATALOG),
        }

    def spark_environment(self) -> dict[str, str]:
        """What a process that starts Spark needs, so that no job resolves a dependency and all share one configuration."""
        spec = importlib.util.find_spec("pyspark")
        spark_home = str(Path(spec.origin).parent) if spec and spec.origin else ""
        properties = str(self.spark_properties)
        environment = {
            "SPARK_HOME": spark_home,
            # For a process that starts a JVM by itself; spark-submit is given the file as an argument. Not SPARK_CONF_DIR: that puts
            # a folder on the class path, and the JVM then refuses the class archive.
            "PYSPARK_SUBMIT_ARGS": shlex.join(["--master", self.spark_master, "--properties-file", properties, "pyspark-shell"]),
            "SPARK_DIST_CLASSPATH": self.spark_class_path(),
            # A new folder each time, so that the leftovers of a killed session can be told from the files of a live one.
            "SPARK_LOCAL_DIRS": str(self.spark_local / f"{OF_SESSION}{uuid.uuid4().hex[:12]}"),
            **self.driver_environment(),
        }
        if not self.on_cluster:  # whose executors must reach the driver
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        options = f'-Dlog4j2.configurationFile="file:{self.spark_conf}/log4j2.properties"'
        if os.environ.get("SLUICE_DEBUG"):
            options += " -Dsluice.log=whole"
        archive = Path(sys.prefix) / "spark.jsa"  # it fits one environment: the paths of the jars are in it
        if archive.exists():
            options += f' -XX:SharedArchiveFile="{archive}" -Xlog:disable -Xlog:all=warning:stderr -Xlog:cds*=off:stderr'
        return {**environment, "SPARK_SUBMIT_OPTS": options}


def name_quarantine(table: str) -> str:
    """The name of a table's quarantine in `sluice sql`, reports and errors."""
    return f"{table}_{QUARANTINE}"


def name_quarantined_table(name: str) -> str | None:
    """The table whose quarantine has this name; None if it is not the name of a quarantine."""
    return name.removesuffix(f"_{QUARANTINE}") if name.endswith(f"_{QUARANTINE}") else None


def list_pipeline_names(settings: Settings) -> list[str]:
    """The pipelines of this checkout: the folders of include/pipelines that hold a pipeline.py."""
    return sorted(path.parent.name for path in (settings.root / "include" / "pipelines").glob("*/pipeline.py"))


def require_known_pipeline(settings: Settings, name: str) -> str:
    """Return the name. Raises UsageError if there is no such pipeline."""
    names = list_pipeline_names(settings)
    if name not in names:
        raise UsageError(
            f"There is no pipeline '{name}'.{nearest_name_hint(name, names)} A pipeline is a folder of include/pipelines."
        )
    return name


def _place_below(root: Path, said: str) -> Location:
    """The place that a setting names: a URL, or a path, which is relative to the checkout."""
    return locate(said) if is_store_url(said) else root / said


def _folder_below(root: Path, said: dict[str, str], name: str) -> Path:
    """As `_place_below`, of a setting that must be on a disk. Raises UsageError for a URL."""
    if is_store_url(said[name]):
        raise UsageError(
            f"SLUICE_{name.upper()} is '{said[name]}': it must be a folder of a disk. docs/stores.md says what may be on a store."
        )
    return root / said[name]


def _read_environment_file(root: Path, name: str) -> dict[str, str]:
    """The settings of an environment's file by name, with variables taking precedence. Each must be given, but for the catalog."""
    folder = root / "environments"
    if not folder.is_dir():  # a root that is made of parts of a checkout
        folder = Path(__file__).resolve().parents[2] / "environments"
    names = sorted(path.stem for path in folder.glob("*.toml"))
    if name not in names:
        raise UsageError(
            f"There is no environment '{name}'.{nearest_name_hint(name, names)} SLUICE_ENV names a file of {folder}, without .toml."
        )
    path = folder / f"{name}.toml"
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    spark = read.pop("spark", {})
    read.setdefault(CATALOG, NO_CATALOG)
    said = _require_text_settings(path, "", (*PLACES, CATALOG), read) | _require_text_settings(
        path, "spark.", SPARK, spark if isinstance(spark, dict) else {}
    )
    variables = {
        **{one: f"SLUICE_{one.upper()}" for one in (*PLACES, CATALOG)},
        **{one: f"SLUICE_SPARK_{one.upper()}" for one in SPARK},
    }
    return {one: os.environ.get(variables[one]) or value for one, value in said.items()}


def _read_retention_override(environment: str) -> str | None:
    """The override of every pipeline's retention. A short one removes files that readers need, so `prod` refuses it."""
    given = os.environ.get("SLUICE_RETAIN")
    if given and environment == "prod":
        raise UsageError(
            "SLUICE_RETAIN is for demonstrations and tests, not for the environment 'prod'. Say `retain` in pipeline.py."
        )
    return given or None


def _read_yes_or_no(variable: str) -> bool:
    given = os.environ.get(variable) or "no"
    if given not in ("yes", "no"):
        raise UsageError(f"{variable} is 'yes' or 'no', not '{given}'.")
    return given == "yes"


def _require_text_settings(path: Path, prefix: str, wanted: tuple[str, ...], read: dict[str, Any]) -> dict[str, str]:
    for key in read:
        if key not in wanted:
            raise UsageError(f"{path}: there is no setting '{prefix}{key}'.{nearest_name_hint(key, wanted)}")
    for key in wanted:
        if not (isinstance(read.get(key), str) and read[key]):
            raise UsageError(f"{path}: '{prefix}{key}' must be said, as a text.")
    return {key: str(read[key]) for key in wanted}


def _write_if_changed(path: Path, content: str) -> Path:
    """Write the file unless it already has this content. Returns its path."""
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_durably(path, content)
    return path
