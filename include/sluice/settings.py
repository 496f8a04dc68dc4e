"""The settings of a process: where the root folders are, which Spark, and whether requests to erase wait.

SLUICE_ENV chooses the environment, a file of environments/: dev (the default), test, prod. Variables take precedence over what it says.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from sluice.catalog_address import NO_CATALOG, CatalogAddress, parse_catalog_address
from sluice.errors import UsageError, nearest_name_hint
from sluice.locations import Location, locate, locate_given
from sluice.root_folders import LAKE, ROOT_FOLDERS, ROOTS_IN_FILE, SCANNED_ROOTS, TABLE_ROOTS, RootFolder
from sluice.stores.opening import find_url_scheme, is_store_url

DEFAULT_ENVIRONMENT = "dev"
SPARK_DEFAULTS = "spark-defaults"
AIRFLOW_HOMES = {3: "airflow", 2: "airflow2"}
"""By the line of Airflow, the home of the checkout's own Airflow, below `Settings.state`."""
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_CATALOG = "catalog"
"""The top-level name in an environment's file that may be missing: the catalog in which tables get names. SLUICE_CATALOG overrides it."""
_SPARK = ("profile", "master")
"""The names below [spark]; SLUICE_SPARK_PROFILE and SLUICE_SPARK_MASTER override them."""


LINEAGE_PARENT = ("spark.openlineage.parentRunId", "spark.openlineage.parentJobNamespace", "spark.openlineage.parentJobName")
LINEAGE_ROOT = (
    "spark.openlineage.rootParentRunId",
    "spark.openlineage.rootParentJobNamespace",
    "spark.openlineage.rootParentJobName",
)
"""The Spark properties that name the run that started a job, and the run at the top, as in OpenLineage's integration for Spark."""


def is_valid_name(text: str) -> bool:
    """Whether a pipeline, source or table may have this name: lower-case snake case, safe in paths and in SQL."""
    return _NAME.match(text) is not None


@dataclass(frozen=True)
class Settings:
    """Where the root folders are, and which Spark. Relative paths are always relative to the checkout.

    Each of ROOT_FOLDERS has a field of its name. One whose default is `Path()` lies beside the truth unless a variable names another place.
    spark_profile: `local`, or another file of spark_jobs/conf. spark_master: as spark-submit's --master. executor_python: the path of
    Python where executors run, of the same version as here; by default this process's (SLUICE_EXECUTOR_PYTHON). secrets_given: a folder of
    secrets from Airflow's secret back end, for this process alone (SLUICE_SECRETS_GIVEN).
    retain: replaces every pipeline's `retain`, for demonstrations and tests (SLUICE_RETAIN); never in `prod`.
    erasure_approval: whether requests to erase people wait until somebody approves them (SLUICE_ERASURE_APPROVAL=yes).
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
        for one in fields(self):
            if one.default == Path() == getattr(self, one.name):
                object.__setattr__(self, one.name, self.truth.parent / one.name)

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
            **_locate_said_roots(root, said),
            environment=name,
            spark_profile=said["profile"],
            spark_master=said["master"],
            executor_python=os.environ.get("SLUICE_EXECUTOR_PYTHON") or "",
            secrets_given=Path(given) if (given := os.environ.get("SLUICE_SECRETS_GIVEN")) else None,
            retain=_read_retention_override(name),
            erasure_approval=_read_yes_or_no("SLUICE_ERASURE_APPROVAL"),
            openlineage_file=_read_yes_or_no("SLUICE_OPENLINEAGE"),
            openlineage_url=os.environ.get("SLUICE_OPENLINEAGE_URL") or "",
            catalog=parse_catalog_address(said[_CATALOG]),
        )
        settings._refuse_roots_on_store_without_lake()
        settings.require_known_profile(f"environment '{name}'")
        return settings

    def require_known_profile(self, said_by: str) -> None:
        """Raises UsageError, with the nearest name, if there is no such Spark profile. said_by: where it is named."""
        profiles = self.spark_profiles()
        if self.spark_profile not in profiles:
            hint = nearest_name_hint(self.spark_profile, profiles)
            raise UsageError(f"There is no Spark profile '{self.spark_profile}' ({said_by}).{hint}")

    def _refuse_roots_on_store_without_lake(self) -> None:
        for folder in ROOT_FOLDERS:
            held = folder.on_store_with_lake
            if held and is_store_url(str(self.locate_root(folder))) and not is_store_url(self.lake):
                raise UsageError(
                    f"{folder.variable} is on a store and the lake is not: {held} lie on a disk, or both on one store."
                )

    @property
    def root_variables(self) -> dict[str, str]:
        """The variables that say where the root folders are."""
        return {folder.variable: str(getattr(self, folder.name)) for folder in ROOT_FOLDERS}

    def locate_root(self, folder: RootFolder) -> Location:
        """Where a root folder is."""
        return locate(getattr(self, folder.name))

    def locate_roots(self, folders: Iterable[RootFolder]) -> dict[str, Location]:
        """Where these root folders are, by name."""
        return {folder.name: self.locate_root(folder) for folder in folders}

    @property
    def table_roots(self) -> dict[str, Location]:
        """The root folders below which pipelines have tables and records, by name."""
        return self.locate_roots(TABLE_ROOTS)

    @property
    def scanned_roots(self) -> dict[str, Location]:
        """The root folders below which pipelines may have people's data, by name."""
        return self.locate_roots(SCANNED_ROOTS)

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
    def reports(self) -> Path:
        """The folder of the pages that `sluice report` writes."""
        return self.state / "reports"

    @property
    def code_folders(self) -> dict[str, Path]:
        """The folders of the checkout whose files decide what a job does, by name."""
        return {name: self.root / name for name in ("include", "spark_jobs", "environments")}

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
        return sorted({"local", *(path.stem for path in self.spark_conf.glob("*.conf") if path.stem != SPARK_DEFAULTS)})

    def secret(self, name: str) -> Path:
        """The path of a secret's file: in the folder given to this process if it is there, else below SLUICE_SECRETS. It may not exist."""
        given = self.secrets_given / name if self.secrets_given else None
        return given if given and given.is_file() else self.secrets / name

    def driver_environment(self) -> dict[str, str]:
        """The variables that a driver's Python needs, wherever it runs: these settings, and the executors' Python."""
        return {
            "PYSPARK_PYTHON": (self.executor_python if self.on_cluster else "") or sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "TZ": "UTC",
            "SLUICE_ROOT": str(self.root),
            "SLUICE_ENV": self.environment,
            "SLUICE_SPARK_PROFILE": self.spark_profile,
            "SLUICE_SPARK_MASTER": self.spark_master,
            "SLUICE_EXECUTOR_PYTHON": self.executor_python,
            **self.root_variables,
            "SLUICE_ERASURE_APPROVAL": "yes" if self.erasure_approval else "no",
            **({"SLUICE_RETAIN": self.retain} if self.retain else {}),
            "SLUICE_CATALOG": str(self.catalog or NO_CATALOG),
        }


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


def build_root_settings(folder: Path) -> dict[str, Any]:
    """The fields of `Settings` for root folders that all lie below one folder, each under its own name."""
    return {**{one.name: folder / one.name for one in ROOT_FOLDERS}, LAKE.name: str(folder / LAKE.name)}


def _locate_said_roots(root: Path, said: dict[str, str]) -> dict[str, Any]:
    """The fields of `Settings` for the root folders, from an environment's file and from variables."""
    given = {one: said.get(one.name) or os.environ.get(one.variable) or "" for one in ROOT_FOLDERS}
    located: dict[str, Any] = {one.name: _locate_root(root, one, text) for one, text in given.items() if text}
    return {**located, LAKE.name: str(located[LAKE.name])}


def _locate_root(root: Path, folder: RootFolder, said: str) -> Location:
    """The location that a text gives a root folder: a URL, or a path, which is relative to the checkout. Raises UsageError."""
    if folder.may_be_on_store:
        location = locate_given(said)
        return location if is_store_url(said) else root / location
    if find_url_scheme(said):
        raise UsageError(
            f"{folder.variable} is '{said}': it must be a folder of a disk. docs/stores.md says what may be on a store."
        )
    return root / said


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


def _read_environment_file(root: Path, name: str) -> dict[str, str]:
    """The settings of an environment's file by name; variables take precedence. All are required except the catalog."""
    folder = root / "environments"
    if not folder.is_dir():  # a root that consists of parts of a checkout
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
    read.setdefault(_CATALOG, NO_CATALOG)
    in_file = {**{one.name: one.variable for one in ROOTS_IN_FILE}, _CATALOG: f"SLUICE_{_CATALOG.upper()}"}
    said = _require_text_settings(path, "", tuple(in_file), read) | _require_text_settings(
        path, "spark.", _SPARK, spark if isinstance(spark, dict) else {}
    )
    variables = {**in_file, **{one: f"SLUICE_SPARK_{one.upper()}" for one in _SPARK}}
    return {one: os.environ.get(variables[one]) or value for one, value in said.items()}


def _require_text_settings(path: Path, prefix: str, wanted: tuple[str, ...], read: dict[str, Any]) -> dict[str, str]:
    for key in read:
        if key not in wanted:
            raise UsageError(f"{path}: there is no setting '{prefix}{key}'.{nearest_name_hint(key, wanted)}")
    for key in wanted:
        if not (isinstance(read.get(key), str) and read[key]):
            raise UsageError(f"{path}: '{prefix}{key}' must be set to a non-empty string.")
    return {key: str(read[key]) for key in wanted}
