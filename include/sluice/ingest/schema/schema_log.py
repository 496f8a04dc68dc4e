"""The schema log: what columns a bronze table's records have, a numbered file for each time that this changed.

Beside the checkpoints. A version is written before the rows that need it, so that a repeated batch reads with what the first attempt
found. Files are JSON: version, at (UTC), run, why, and the schema as Spark writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.durable_files import load_kept_json, write_json_durably

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class SchemaVersion:
    """An entry. number: from 0; why: in words, with names of fields at most."""

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
    """All entries, oldest first."""
    found = [path for path in Path(folder).glob("*.json") if path.stem.isdigit()]
    return [_read_schema_version(path) for path in sorted(found, key=lambda path: int(path.stem))]


def read_latest_schema_version(folder: str) -> SchemaVersion | None:
    """The newest entry; None before the first."""
    numbers = [int(path.stem) for path in Path(folder).glob("*.json") if path.stem.isdigit()]
    if not numbers:
        return None
    return _read_schema_version(Path(folder) / f"{max(numbers)}.json")


def _read_schema_version(path: Path) -> SchemaVersion:
    remedy = "Put a copy of it back. The latest of its folder may be removed instead: the source's next run writes its columns down anew."

    def build(entry: dict[str, Any]) -> SchemaVersion:
        return SchemaVersion(entry["version"], entry["at"], entry["run"], entry["why"], entry["schema"])

    return load_kept_json(path, "the columns that a source had", remedy, build)


def withdraw_schema_version(folder: str, version: SchemaVersion) -> None:
    """Take an entry out of which no row was written. To be called under the lease."""
    (Path(folder) / f"{version.number}.json").unlink()


def write_schema_version(folder: str, schema: StructType, run: str, why: str) -> None:
    """Add an entry. A reader sees it whole or not at all. To be called under the lease."""
    before = read_latest_schema_version(folder)
    number = before.number + 1 if before else 0
    entry = {
        "version": number,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": run,
        "why": why,
        "schema": schema.jsonValue(),
    }
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    write_json_durably(place / f"{number}.json", entry, indent=1)
