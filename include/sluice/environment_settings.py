"""Reads what an environment's file, environments/<name>.toml, says of root folders, the catalog and Spark. Variables take precedence."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from sluice.catalog_address import NO_CATALOG
from sluice.errors import UsageError, nearest_name_hint
from sluice.root_folders import ROOTS_IN_FILE

CATALOG = "catalog"
"""The top-level name in an environment's file that may be missing: the catalog in which tables get names. SLUICE_CATALOG overrides it."""
SPARK = ("profile", "master")
"""The names below [spark]; SLUICE_SPARK_PROFILE and SLUICE_SPARK_MASTER override them."""


def read_environment_file(root: Path, name: str) -> dict[str, str]:
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
    in_file = {**{one.name: one.variable for one in ROOTS_IN_FILE}, CATALOG: f"SLUICE_{CATALOG.upper()}"}
    said = _require_text_settings(path, "", tuple(in_file), read) | _require_text_settings(
        path, "spark.", SPARK, spark if isinstance(spark, dict) else {}
    )
    variables = {**in_file, **{one: f"SLUICE_SPARK_{one.upper()}" for one in SPARK}}
    return {one: os.environ.get(variables[one]) or value for one, value in said.items()}


def _require_text_settings(path: Path, prefix: str, wanted: tuple[str, ...], read: dict[str, Any]) -> dict[str, str]:
    for key in read:
        if key not in wanted:
            raise UsageError(f"{path}: there is no setting '{prefix}{key}'.{nearest_name_hint(key, wanted)}")
    for key in wanted:
        if not (isinstance(read.get(key), str) and read[key]):
            raise UsageError(f"{path}: '{prefix}{key}' must be set to a non-empty string.")
    return {key: str(read[key]) for key in wanted}
