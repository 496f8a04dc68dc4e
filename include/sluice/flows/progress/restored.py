"""The mark of a table that was restored: to which version, and when. It stays until the table is made anew."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sluice.lake import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "sluice.restored"
"""The table property that says to which version a table was restored."""

_AT = "sluice.restoredAt"


@dataclass(frozen=True)
class RestorationMark:
    """To which version a table was restored, and when (UTC)."""

    version: int
    at: datetime | None


def read_restoration_mark(path: str) -> RestorationMark | None:
    """What a table's mark says. None where it has none, or there is no table. Read without a JVM."""
    properties = log.read_table_properties(path) if log.is_delta_table(path) else {}
    if PROPERTY not in properties:
        return None
    at = properties.get(_AT)
    return RestorationMark(int(properties[PROPERTY]), datetime.fromisoformat(at) if at else None)


def mark_restored_table(session: SparkSession, path: str, version: int, at: datetime) -> None:
    """Say that a table is as it was at a version, and by which code its rows are: those of that version."""
    from sluice.lake import versions

    wanted = {PROPERTY: str(version), _AT: at.isoformat(timespec="seconds")}
    code = versions.read_version_properties(path, version).get("sluice.fingerprint")
    wanted |= {"sluice.fingerprint": code} if code else {}
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
    session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")


def remove_restoration_mark(session: SparkSession, path: str) -> None:
    """Take the mark off: all rows of the table are made anew."""
    if read_restoration_mark(path) is not None:
        session.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES IF EXISTS ('{PROPERTY}', '{_AT}')")
