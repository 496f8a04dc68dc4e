"""The settings: the root folders of the lake, of landing, of secrets and of local state, and which Spark. One location for each.

SLUICE_ENV chooses the environment, a file of environments/: dev (the default), test, prod.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sluice.catalog_address import NO_CATALOG, CatalogAddress, parse_catalog_address
from sluice.errors import UsageError, nearest_name_hint
from sluice.locations import Location, locate, locate_given
from sluice.stores.opening import find_place_scheme, is_store_url

DEFAULT_ENVIRONMENT = "dev"
PLACES = ("lake", "landing", "secrets", "restricted", "truth", "vault")
"""The top-level names in an environment's file; SLUICE_LAKE and so on override them."""
CATALOG = "catalog"
"""The top-level name in an environment's file that may be missing: the catalog in which tables get names. SLUICE_CATALOG overrides it."""
SPARK = ("profile", "master")
"""The names below [spark]; SLUICE_SPARK_PROFILE and SLUICE_SPARK_MASTER override them."""

SPARK_DEFAULTS = "spark-defaults"
AIRFLOW_HOMES = {3: "airflow", 2: "airflow2"}
"""By the line of Airflow, the home of the checkout's own Airflow, below `Settings.state`."""
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


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
    """The root folders, and which Spark. Relative paths are always relative to the checkout.

    spark_profile: `local`, or another file of spark_jobs/conf. spark_master: as spark-submit's --master. executor_python: the path of
    Python where executors run, of the same version as here; by default this process's (SLUICE_EXECUTOR_PYTHON). secrets_given: a folder of
    secrets from Airflow's secret back end, for this process alone (SLUICE_SECRETS_GIVEN). vault: the identifiers of people who asked to be
    erased; by default beside the truth. released: de-identified copies, for everybody to read; by default there too.
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
        """Raises UsageError, with the nearest name, if there is no such Spark profile. said_by: where it is named."""
        profiles = self.spark_profiles()
        if self.spark_profile not in profiles:
            hint = nearest_name_hint(self.spark_profile, profiles)
            raise UsageError(f"There is no Spark profile '{self.spark_profile}' ({said_by}).{hint}")

    @property
    def lake_folder(self) -> Location:
        """The lake as a location."""
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
    """The location that a setting names: a URL, or a path, which is relative to the checkout."""
    place = locate_given(said)
    return place if is_store_url(said) else root / place


def _folder_below(root: Path, said: dict[str, str], name: str) -> Path:
    """Like `_place_below`, for a setting that must be on a disk. Raises UsageError for a URL."""
    if find_place_scheme(said[name]):
        raise UsageError(
            f"SLUICE_{name.upper()} is '{said[name]}': it must be a folder of a disk. docs/stores.md says what may be on a store."
        )
    return root / said[name]


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
            raise UsageError(f"{path}: '{prefix}{key}' must be set to a non-empty string.")
    return {key: str(read[key]) for key in wanted}
