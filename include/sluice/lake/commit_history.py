"""Reads from a table's log which commits it has: who made each, what it did, what Sluice noted about it, and when rows came.

Also says which kinds of commits change rows.

Needs no JVM.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError

from sluice.delta_log import LOG, is_delta_table, list_log_versions, split_commit_lines
from sluice.lake.log import latest_table_version
from sluice.locations import Location, locate
from sluice.open_tables import open_checked_table
from sluice.table_properties import GROUPS_LEFT

# The operations of commits that change no row, by the names that Spark and delta-rs give them in a table's history.

REPAIR = "SLUICE REPAIR"
"""The operation of a commit that replaces a lost one and changes nothing."""

WITHOUT_FILES = frozenset({
    REPAIR,
    "ADD COLUMN",
    "ADD COLUMNS",
    "ADD CONSTRAINT",
    "CHANGE COLUMN",
    "CHANGE COLUMNS",
    "CLUSTER BY",
    "CREATE TABLE",
    "DROP CONSTRAINT",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "UPDATE FIELD METADATA",
    "UPDATE TABLE METADATA",
    "UPGRADE PROTOCOL",
    "VACUUM END",
    "VACUUM START",
})
"""They neither add nor remove a file."""

WITHOUT_ROWS = WITHOUT_FILES | {"OPTIMIZE", "REORG"}
"""They leave every row as it is, if perhaps in other files."""


DELTA_RS, SPARK, SLUICE = "delta-rs", "Spark", "Sluice"
"""Who makes commits. Sluice itself makes those of a VACUUM by inventory, which add no file."""

_FIRST_LOOK = 50
"""How many commits are looked at first: the wanted one is nearly always among them."""

_NAMES_OF_SPARK = {"num_added_rows": "num_output_rows"}
"""Metrics for which delta-rs has another name, not only another spelling."""


def read_commit_history(path: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Returns the commits, newest first: version, at (UTC), writer, operation, parameters, metrics, and Sluice's note if it made the commit.

    writer: DELTA_RS, SPARK or SLUICE. Metrics have the names that Spark gives them, whoever made the commit.
    """
    table = open_checked_table(path)
    found = []
    for entry in _read_commit_infos(path, table, limit):
        note = entry.get("userMetadata")
        found.append({
            "version": entry.get("version"),
            "at": datetime.fromtimestamp(entry["timestamp"] / 1000, UTC) if "timestamp" in entry else None,
            "writer": next((one for one in (DELTA_RS, SLUICE) if str(entry.get("engineInfo")).startswith(one)), SPARK),
            "operation": entry.get("operation"),
            "parameters": entry.get("operationParameters", {}),
            "metrics": {_name_as_spark_does(name): value for name, value in entry.get("operationMetrics", {}).items()},
            "note": _parse_commit_note(note),
        })
    return found


def _read_commit_infos(path: str, table: DeltaTable, limit: int | None) -> list[dict[str, Any]]:
    """Returns what each commit says about itself, newest first, with its version.

    delta-rs refuses the whole history if a commit has a number that it does not expect: a shallow clone by Spark has -1 as the version read.
    """
    try:
        return table.history(limit)
    except DeltaProtocolError:
        commits, _ = list_log_versions(locate(path) / LOG)
        newest = sorted((version for version in commits if version <= table.version()), reverse=True)[:limit]
        return [{**_read_commit_info(commits[version]), "version": version} for version in newest]


def _read_commit_info(commit: Location) -> dict[str, Any]:
    return next((action["commitInfo"] for action in _read_commit_actions(commit) if "commitInfo" in action), {})


def _read_commit_actions(commit: Location) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in split_commit_lines(commit.read_bytes()))


def count_removed_rows(path: str, version: int) -> int:
    """Returns how many rows a commit removed by a MERGE, by its file; 0 if the file is gone. Needs no other commit of the log."""
    try:
        metrics = _read_commit_info(locate(path, LOG, f"{version:020d}.json")).get("operationMetrics", {})
    except FileNotFoundError:
        return 0
    return int({_name_as_spark_does(name): value for name, value in metrics.items()}.get("numTargetRowsDeleted", 0))


@dataclass(frozen=True)
class LatestData:
    """A table's latest commit that changed rows. at: its time (UTC), or that of the latest such commit that has one; None if there is none.

    version: None if the table never had rows. If the log has lost its beginning and holds only upkeep, it is the table's.
    since: when the age of the data begins, which is at least that: `at`, else the oldest commit, with which a table without rows was made.
    """

    version: int | None
    at: datetime | None
    since: datetime | None


def find_latest_data(path: str) -> LatestData | None:
    """Returns what a table's log shows of its latest data. None if there is no table."""
    if not is_delta_table(path):
        return None
    commits: list[dict[str, Any]] = []
    with_rows: list[dict[str, Any]] = []
    for limit in (_FIRST_LOOK, None):
        commits = read_commit_history(path, limit)
        with_rows = [commit for commit in commits if commit["operation"] not in WITHOUT_ROWS]
        at = next((commit["at"] for commit in with_rows if commit["at"] is not None), None)
        if at is not None:
            return LatestData(with_rows[0]["version"], at, at)
    is_whole = bool(commits) and commits[-1]["version"] == 0
    version = with_rows[0]["version"] if with_rows else None if is_whole else latest_table_version(path)
    return LatestData(version, None, commits[-1]["at"] if commits else None)


def find_last_data_change(path: str) -> datetime | None:
    """Returns when rows of a table last changed (UTC). None if there is no table, or no commit that shows it."""
    found = find_latest_data(path)
    return found.at if found else None


def has_new_data(path: str) -> bool:
    """Whether rows came since the last OPTIMIZE, or since the table was created, or that OPTIMIZE was killed between two groups of files."""
    if latest_table_version(path) is None:
        return False
    for limit in (_FIRST_LOOK, None):
        commits = read_commit_history(path, limit)
        since = list(itertools.takewhile(lambda commit: commit["operation"] != "OPTIMIZE", commits))
        if any(commit["operation"] not in WITHOUT_ROWS for commit in since):
            return True
        if len(since) < len(commits):
            return int(commits[len(since)]["metrics"].get(GROUPS_LEFT) or 0) > 0
    return False


@dataclass(frozen=True)
class NewVersions:
    """What the commits of a table after a version did. writers: such as "delta-rs, Spark"; None if there is no such commit.

    files_added, files_removed, rows_copied: by the commits' metrics; a commit without metrics counts as zero. rows_copied: rows that a MERGE
    wrote again unchanged, because they lay in the same files as those that it changed. bytes_added: of the files that they added, without
    change files.
    """

    writers: str | None = None
    files_added: int = 0
    files_removed: int = 0
    rows_copied: int = 0
    bytes_added: int = 0


_FILES_ADDED = ("numTargetFilesAdded", "numAddedFiles", "numFilesAdded", "numFiles")


_FILES_REMOVED = ("numTargetFilesRemoved", "numRemovedFiles", "numFilesRemoved")


_ROWS_COPIED = ("numTargetRowsCopied",)


def summarize_new_versions(path: str, since: int | None) -> NewVersions:
    """Returns what the commits of a table after a version did. since: None means before the first."""
    latest = latest_table_version(path)
    new = 0 if latest is None else latest - (-1 if since is None else since)
    commits = read_commit_history(path, new) if new > 0 else []
    writers = {str(one["writer"]) for one in commits}

    def total(names: Sequence[str]) -> int:
        return sum(_first_metric(one["metrics"], names) for one in commits)

    return NewVersions(
        writers=", ".join(sorted(writers, key=str.lower)) or None,
        files_added=total(_FILES_ADDED),
        files_removed=total(_FILES_REMOVED),
        rows_copied=total(_ROWS_COPIED),
        bytes_added=sum(_sum_added_bytes(locate(path, LOG, f"{one['version']:020d}.json")) for one in commits),
    )


def _sum_added_bytes(commit: Location) -> int:
    # Not every commit has them in its metrics: delta-rs counts files only.
    try:
        return sum(int(action["add"]["size"]) for action in _read_commit_actions(commit) if "add" in action)
    except FileNotFoundError:  # the log is shorter by now
        return 0


def _first_metric(metrics: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((int(metrics[name]) for name in names if str(metrics.get(name, "")).isdigit()), 0)


def _name_as_spark_does(metric: str) -> str:
    """Returns Spark's name of a metric, such as numTargetRowsInserted for delta-rs' num_target_rows_inserted."""
    first, *others = _NAMES_OF_SPARK.get(metric, metric).split("_")
    return first + "".join(other.title() for other in others)


def _parse_commit_note(text: Any) -> dict[str, Any]:
    try:
        loaded = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return loaded if isinstance(loaded, dict) else {}
