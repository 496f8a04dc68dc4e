"""Completes a commit of delta-rs with what Spark does after its own commits and delta-rs does not. Without a JVM.

Flushes the commit and its files to the disk. Writes a version checksum (Delta's PROTOCOL.md, Version Checksum File), which gives Spark the
columns and the protocol without two jobs that search the log. Makes a checkpoint when one is due.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from sluice.delta_log import LOG, split_commit_lines
from sluice.durable_files import flush_file_and_name, write_json_durably
from sluice.errors import SluiceError
from sluice.locations import Location, locate
from sluice.table_properties import CHECKPOINT_INTERVAL

_COMMIT, _CHECKSUM = re.compile(r"\d{20}\.json"), re.compile(r"\d{20}\.crc")
NO_COMMIT_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""For each commit by delta-rs, which otherwise makes checkpoints and removes old commits: `complete_commit` decides when a checkpoint is due.

Expired commits are removed when Spark writes a checkpoint, together with what belongs to them.
"""
_DESCRIBES = ("metadata", "protocol")
_ACTIONS = {"metaData": "metadata", "protocol": "protocol"}
"""A commit's names for what the checksum file repeats."""
_NAMES_FILES = ("add", "cdc")


def complete_commit(path: str, table: DeltaTable) -> bool:
    """Complete the commit of the table's current version. Returns whether a checkpoint was made.

    table: the object that made the commit. Call this under the lease. The commit stands without a checksum or a checkpoint.

    Raises OSError if the commit or its files may not be on the disk. The system reports this once, so nobody could find out later.
    """
    _flush_commit(locate(path), _commit_file(locate(path) / LOG, table.version()))
    write_version_checksum(path, table)
    try:
        interval = max(1, int(table.metadata().configuration.get(CHECKPOINT_INTERVAL) or 10))
        if table.version() == 0 or table.version() % interval:
            return False
        table.create_checkpoint()
        log_folder = locate(path) / LOG
        # The checksum of a checkpoint by Spark: it would be taken for one of this checkpoint.
        (log_folder / "._last_checkpoint.crc").unlink(missing_ok=True)
        flush_file_and_name(log_folder / f"{table.version():020d}.checkpoint.parquet")
    except (OSError, ValueError, DeltaError):  # the next checkpoint will hold the same
        return False
    return True


def write_version_checksum(path: str, table: DeltaTable) -> None:
    """Write `N.crc` for the table's version. If it cannot be written, Spark searches the log instead.

    The commit must be on the disk before, since delta-rs fails on a checksum file whose version does not exist.
    """
    with suppress(OSError, ValueError, KeyError, DeltaError, SluiceError):
        log_folder, version = locate(path) / LOG, table.version()
        found = table.get_add_actions()
        sizes = pa.chunked_array(found["size_bytes"]).to_pylist() if len(found) else []
        counts = {"tableSizeBytes": sum(sizes), "numFiles": len(sizes), "numMetadata": 1, "numProtocol": 1}
        write_json_durably(_checksum_file(log_folder, version), {**counts, **_describe_table(log_folder, version)})


def _flush_commit(table: Location, commit: Location) -> None:
    """Flush to the disk the files that a commit names, and then the commit."""
    for kind, action in _read_actions(commit):
        if kind in _NAMES_FILES:
            flush_file_and_name(table / unquote(action["path"]), below=table)
    flush_file_and_name(commit)


def _describe_table(log_folder: Location, version: int) -> dict[str, Any]:
    """The table's metadata and protocol from the log, or from the previous version's checksum file if this version changes neither.

    Raises FileNotFoundError if the log does not go back to them.
    """
    described: dict[str, Any] = {}
    for number in range(version, -1, -1):
        if number < version and _checksum_file(log_folder, number).exists():
            before = json.loads(_checksum_file(log_folder, number).read_text())
            return {name: before[name] for name in _DESCRIBES} | described
        for kind, action in _read_actions(_commit_file(log_folder, number)):
            if kind in _ACTIONS:
                described.setdefault(_ACTIONS[kind], action)
        if described.keys() == set(_DESCRIBES):
            return described
    raise FileNotFoundError(log_folder)


def remove_checksums_without_commit(path: str) -> None:
    """Remove the checksums before the first commit that exists: delta-rs removes commits past the log's retention, but not their checksums.

    A checksum of a later version stays even without its commit: it shows that the commit was lost.
    """
    log_folder = locate(path) / LOG
    names = {file.name for file in log_folder.iterdir()}
    commits, checksums = ({int(name[:20]) for name in names if pattern.fullmatch(name)} for pattern in (_COMMIT, _CHECKSUM))
    for version in checksums:
        if commits and version < min(commits):
            _checksum_file(log_folder, version).unlink(missing_ok=True)


def _read_actions(commit: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in split_commit_lines(commit.read_bytes()):
        yield from json.loads(line).items()


def _commit_file(log_folder: Location, version: int) -> Location:
    return log_folder / f"{version:020d}.json"


def _checksum_file(log_folder: Location, version: int) -> Location:
    return log_folder / f"{version:020d}.crc"
