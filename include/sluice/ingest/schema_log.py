"""The schema log: the columns of a bronze table's records, with a numbered file for each change.

It lies beside the checkpoints. A version is written before the rows that need it, so that a repeated batch reads with the columns that the
first attempt found. Files are JSON: version, at (UTC), run, why, and the schema as Spark writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.durable_files import load_kept_json, write_json_durably
from sluice.locations import Location, locate

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class SchemaVersion:
    """An entry. number: from 0. why: a reason in words, which holds names of fields at most."""

    number: int
    at: str
    run: str
    why: str
    schema: dict[str, Any]

    def columns(self) -> StructType:
        """The schema."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(self.schema)


def read_schema_versions(folder: str) -> list[SchemaVersion]:
    """Returns all entries, oldest first."""
    found = [path for path in locate(folder).glob("*.json") if path.stem.isdigit()]
    return [_read_schema_version(path) for path in sorted(found, key=lambda path: int(path.stem))]


def read_latest_schema_version(folder: str) -> SchemaVersion | None:
    """Returns the newest entry, or None before the first."""
    numbers = [int(path.stem) for path in locate(folder).glob("*.json") if path.stem.isdigit()]
    if not numbers:
        return None
    return _read_schema_version(locate(folder) / f"{max(numbers)}.json")


def _read_schema_version(path: Location) -> SchemaVersion:
    remedy = "Put a copy of it back. The latest of its folder may be removed instead: the source's next run writes its columns down anew."

    def build(entry: dict[str, Any]) -> SchemaVersion:
        return SchemaVersion(entry["version"], entry["at"], entry["run"], entry["why"], entry["schema"])

    return load_kept_json(path, "the columns that a source had", remedy, build)


def withdraw_schema_version(folder: str, version: SchemaVersion) -> None:
    """Removes an entry that no row was written with. Call it under the lease."""
    (locate(folder) / f"{version.number}.json").unlink()


def write_schema_version(folder: str, schema: StructType, run: str, why: str) -> None:
    """Adds an entry. A reader sees it whole or not at all. Call it under the lease."""
    before = read_latest_schema_version(folder)
    number = before.number + 1 if before else 0
    entry = {
        "version": number,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": run,
        "why": why,
        "schema": schema.jsonValue(),
    }
    location = locate(folder)
    location.mkdir(parents=True, exist_ok=True)
    write_json_durably(location / f"{number}.json", entry, indent=1)
