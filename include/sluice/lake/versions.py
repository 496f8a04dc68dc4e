"""Versions of a table: which version a text means, whether its files are still there, its columns, and the mark of a restored table.

Needs no JVM. The mark says to which version the table was restored, and when. It stays until the table is made anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sluice import delta_log
from sluice.errors import SluiceError, UsageError
from sluice.lake import commit_history, log
from sluice.locations import locate
from sluice.open_tables import open_checked_table
from sluice.table_properties import FINGERPRINT, RESTORED, RESTORED_AT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LISTED = 50
"""How many of the latest versions are checked for whether they can still be read."""


def resolve_version(name: str, path: str, text: str) -> int:
    """Returns the version of a table that a version number, a date or an instant (UTC) means. Raises UsageError for any other text."""
    commits = commit_history.read_commit_history(path)
    numbers = [int(commit["version"]) for commit in commits]
    if text.isdecimal():
        if not min(numbers) <= int(text) <= max(numbers):
            raise UsageError(f"Table '{name}' has no version {text}: its log has {min(numbers)} to {max(numbers)}.")
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"'{text[:40]}' is no version, date or instant: 3, 2026-11-21 or 2026-11-21T02:00.") from None
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    before = [int(commit["version"]) for commit in commits if commit["at"] and commit["at"] <= instant]
    if not before:
        first = min(commit["at"] for commit in commits if commit["at"])
        raise UsageError(f"Table '{name}' is not known as of {text}; its history begins at {first:%Y-%m-%dT%H:%M:%SZ}.")
    return max(before)


def read_version_commit_time(path: str, version: int) -> datetime | None:
    """Returns when a version was committed (UTC), or None if its log is gone."""
    return next((commit["at"] for commit in commit_history.read_commit_history(path) if commit["version"] == version), None)


def read_version_columns(path: str, version: int | None = None) -> dict[str, str]:
    """Returns a version's columns with their types, as text. Raises SluiceError if the log does not reach back to it."""
    return {field.name: str(field.type) for field in _open_version(path, version).schema().fields}


def read_version_properties(path: str, version: int) -> dict[str, str]:
    """Returns a version's properties. Raises what `read_version_columns` raises."""
    return {str(name): str(value) for name, value in _open_version(path, version).metadata().configuration.items()}


def check_version_readable(name: str, path: str, version: int) -> None:
    """Raises SluiceError, with the versions that are whole, if files of a version are gone."""
    if not is_version_whole(path, version):
        there = _format_number_ranges([number for number in _latest_version_numbers(path) if is_version_whole(path, number)])
        raise SluiceError(
            f"Files of version {version} of '{name}' are gone: they are removed when their retention ends. "
            f"Of its latest versions these are whole: {there}."
        )


def describe_versions_with_columns(path: str, wanted: dict[str, str]) -> str:
    """Returns, as text, which of the latest versions have these columns and can be read."""
    return _format_number_ranges([
        number
        for number in _latest_version_numbers(path)
        if is_version_whole(path, number) and read_version_columns(path, number) == wanted
    ])


def _latest_version_numbers(path: str) -> list[int]:
    return sorted(int(commit["version"]) for commit in commit_history.read_commit_history(path, _LISTED))


def is_version_whole(path: str, version: int) -> bool:
    """Whether the log and every file of a version still exist."""
    try:
        table = open_checked_table(path, version=version)
    except (DeltaError, OSError):
        return False
    # The log writes odd characters of a partition's value as %20 and so on; the file may be named either way.
    return all(_is_data_file_there(file) for file in table.file_uris()) and _has_all_deletion_vectors(table)


def _has_all_deletion_vectors(table: DeltaTable) -> bool:
    """Whether what marks rows as deleted can be read. VACUUM removes a vector that another took the place of, and leaves its data file."""
    try:
        if log.may_have_deletion_vectors(table):
            pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
    except (DeltaError, OSError, pa.ArrowException):
        return False
    return True


def _is_data_file_there(uri: str) -> bool:
    file = uri.rpartition("file:")[2] if "file:/" in uri else uri  # of a shallow clone: a file of its source
    return locate(file).exists() or locate(unquote(file)).exists()


def _format_number_ranges(numbers: list[int]) -> str:
    """Returns a text such as "1 to 3, 7"."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges) or "none"


def _open_version(path: str, version: int | None) -> Any:
    try:
        return open_checked_table(path, version=version)
    except (DeltaError, OSError):
        raise SluiceError(f"The log of {path} does not reach back to version {version}.") from None


@dataclass(frozen=True)
class RestorationMark:
    """The version to which a table was restored, and when (UTC)."""

    version: int
    at: datetime | None


def read_restoration_mark(path: str) -> RestorationMark | None:
    """Returns a table's mark. None if it has none, or if there is no table. Needs no JVM."""
    properties = log.read_table_properties(path) if delta_log.is_delta_table(path) else {}
    if RESTORED not in properties:
        return None
    at = properties.get(RESTORED_AT)
    return RestorationMark(int(properties[RESTORED]), datetime.fromisoformat(at) if at else None)


def mark_restored_table(session: SparkSession, path: str, version: int, at: datetime) -> None:
    """Marks a table as restored to a version, with the fingerprint of the code that made that version's rows."""
    wanted = {RESTORED: str(version), RESTORED_AT: at.isoformat(timespec="seconds")}
    code = read_version_properties(path, version).get(FINGERPRINT)
    wanted |= {FINGERPRINT: code} if code else {}
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
    session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")


def remove_restoration_mark(session: SparkSession, path: str) -> None:
    """Removes the mark, because all rows of the table were made anew."""
    if read_restoration_mark(path) is not None:
        session.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES IF EXISTS ('{RESTORED}', '{RESTORED_AT}')")
