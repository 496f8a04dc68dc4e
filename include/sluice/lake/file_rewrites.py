"""Rewrites some files of a table and no others, which neither Delta on Spark's OPTIMIZE nor that of delta-rs can do.

The files are linked into a staged table, which OPTIMIZE lays out as a whole. What it wrote is then committed to the table itself as an
OPTIMIZE (Delta's PROTOCOL.md, Add File and Remove File: `dataChange` is false). So our own code writes no row, readers see no change,
and a commit that somebody else makes meanwhile stops this one. A killed rewrite leaves a folder that each VACUUM stage sweeps.
Call it under the pipeline's lease.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from sluice.delta_log import LOG, split_commit_lines
from sluice.delta_rs_commits import complete_commit
from sluice.durable_files import flush_file_and_name, write_file_durably
from sluice.errors import SluiceError, table_collision
from sluice.lake.file_overlap import FileGroup
from sluice.lake.file_statistics import DataFile, list_data_files, list_file_values
from sluice.lake.written_alike import is_written_alike
from sluice.locations import Location, is_on_disk, locate
from sluice.open_tables import keep_written_table, open_checked_table, open_table_to_change
from sluice.table_properties import GROUPS_LEFT

_STAGING = ".spark-staging-layout-"
"""How the name of the staged table's folder begins: like Spark's own folders, which are swept if their writer was killed."""
_PLAIN_PATH = re.compile(r"[\w=.,/-]+")
"""A path that is written in the same way in the log and in the file system."""
_LEAST_ROOM = 2
"""A rewrite needs this many times the size of its files as free space."""

LayOut = Callable[[str], None]
"""Lays out all files of the table at a path in one commit: OPTIMIZE by either engine."""


def is_rewritten_by_files(path: str, zorder: Sequence[str]) -> bool:
    """Whether some files of a table can be rewritten without the others: only if everything that its log says is known. Raises DamagedLog."""
    if not is_on_disk(locate(path)):  # files are linked here, and files on a store would have to be copied
        return False
    table = open_checked_table(path)
    return is_written_alike(table, zorder) and all(map(_PLAIN_PATH.fullmatch, list_file_values(table, "path")))


def rewrite_file_groups(
    path: str, groups: Sequence[FileGroup], zorder: Sequence[str], mark: str | None, lay_out: LayOut
) -> tuple[int, int]:
    """Rewrites the files of each group in a commit. Returns how many files there were and how many there are now.

    `is_rewritten_by_files` must have returned True. mark: of the commits, each of which also says how many groups are left, so that a run
    that is killed between two of them is known as one that has not ended. lay_out: the OPTIMIZE of either engine.
    Raises SluiceError if somebody else writes meanwhile, or if a row would be missing; what is not committed is then as it was.
    """
    files = {one.path: one for one in list_data_files(path)}
    before = after = 0
    for position, group in enumerate(groups, start=1):
        were, are = _rewrite_file_group(path, group, files, zorder, mark, lay_out, len(groups) - position)
        before += were
        after += are
    return before, after


def _rewrite_file_group(
    path: str,
    group: FileGroup,
    files: Mapping[str, DataFile],
    zorder: Sequence[str],
    mark: str | None,
    lay_out: LayOut,
    left: int,
) -> tuple[int, int]:
    """Returns how many files were rewritten, and how many they are now."""
    taken = [files[one.path] for one in group.files]
    table = open_table_to_change(path)
    if not {one.path for one in taken} <= set(list_file_values(table, "path")):
        raise SluiceError(f"Somebody else has written to the table {path} meanwhile. Nothing more was rewritten; run it again.")
    staging = locate(path) / f"{_STAGING}{uuid.uuid4().hex}"
    try:
        _make_staged_table(staging, table, locate(path), taken)
        lay_out(str(staging))
        said, added, removed = _read_staged_commit(staging)
        # Both engines leave a file as it is if none of the others fits beside it. If that is so of all, the commit says that they were looked at.
        positions = [position for position in range(len(taken)) if _name_staged_file(position) in removed]
        taken, group = (
            [taken[position] for position in positions],
            replace(group, files=[group.files[position] for position in positions]),
        )
        _refuse_missing_rows(path, taken, added)
        named = [_take_written_file(staging, locate(path), group, action) for action in added]
        info = _describe_commit(table, said, taken, named, zorder, mark, left)
        _commit_rewrite(locate(path), table.version(), taken, named, info)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    written = open_table_to_change(path)
    complete_commit(path, written)
    keep_written_table(path, written)
    return len(taken), len(named)


def _name_staged_file(position: int) -> str:
    return f"{position}.parquet"


def _make_staged_table(staging: Location, table: DeltaTable, home: Location, taken: Sequence[DataFile]) -> None:
    """Makes a table of these files alone: by hard links, or by copies if links are not possible."""
    if shutil.disk_usage(home).free < _LEAST_ROOM * sum(one.size for one in taken):
        raise SluiceError(f"There is too little free space to write files of the table {home} anew. Nothing was changed.")
    log_folder = staging / LOG
    log_folder.mkdir(parents=True)
    protocol, metadata = table.protocol(), table.metadata()
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": protocol.min_reader_version,
                "minWriterVersion": protocol.min_writer_version,
                **{name: list(value) for name, value in features.items() if value is not None},
            }
        },
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": table.schema().to_json(),
                "partitionColumns": list(metadata.partition_columns),
                "configuration": dict(metadata.configuration),
                "createdTime": metadata.created_time,
            }
        },
    ]
    for position, one in enumerate(taken):
        name = _name_staged_file(position)
        _link_file(home / one.path, staging / name)
        added = {
            "path": name,
            "partitionValues": _write_partition_values(one),
            "size": one.size,
            "modificationTime": 0,
            "dataChange": True,
        }
        # The number of rows decides which engine lays them out.
        counted = {} if one.rows is None else {"stats": json.dumps({"numRecords": one.rows})}
        actions.append({"add": added | counted})
    (log_folder / f"{0:020d}.json").write_text(_join_actions(actions))


def _link_file(file: Location, target: Location) -> None:
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def _write_partition_values(one: DataFile) -> dict[str, str | None]:
    """Writes partition values as Delta's log does. Only dates and whole numbers come here."""
    return {name: None if value is None else str(value) for name, value in one.partition.items()}


def _read_staged_commit(staging: Location) -> tuple[dict[str, Any], list[dict[str, Any]], set[str]]:
    """Returns what the commit that laid out the staged table says about itself, the files that it added, and the paths of those it removed."""
    said: dict[str, Any] = {}
    added, removed = [], set[str]()
    with suppress(FileNotFoundError):  # there was nothing to lay out
        for line in split_commit_lines((staging / LOG / f"{1:020d}.json").read_bytes()):
            action = json.loads(line)
            said = action.get("commitInfo", said)
            added += [action["add"]] if "add" in action else []
            removed |= {action["remove"]["path"]} if "remove" in action else set()
    return said, added, removed


def _refuse_missing_rows(path: str, taken: Sequence[DataFile], added: Sequence[Mapping[str, Any]]) -> None:
    before = [one.rows for one in taken]
    after = [json.loads(one.get("stats") or "{}").get("numRecords") for one in added]
    counted = None not in before
    if (taken and not added) or None in after or (counted and sum(n for n in before if n is not None) != sum(after)):
        raise SluiceError(
            f"Files of the table {path} were not rewritten: the new ones do not have the rows of the old. Nothing was changed."
        )


def _take_written_file(staging: Location, home: Location, group: FileGroup, action: Mapping[str, Any]) -> dict[str, Any]:
    """Moves a file into the table, flushed to the disk. Returns the action that adds it."""
    file = staging / unquote(action["path"])
    below = file.relative_to(staging).with_name(group.name_rewritten_file(file.name))
    (home / below).parent.mkdir(parents=True, exist_ok=True)
    file.rename(home / below)
    flush_file_and_name(home / below, below=home)
    return {name: value for name, value in action.items() if value is not None} | {"path": str(below), "dataChange": False}


def _describe_commit(
    table: DeltaTable,
    said: Mapping[str, Any],
    taken: Sequence[DataFile],
    added: Sequence[Mapping[str, Any]],
    zorder: Sequence[str],
    mark: str | None,
    left: int,
) -> dict[str, Any]:
    sizes = {"numRemovedBytes": sum(one.size for one in taken), "numAddedBytes": sum(int(one["size"]) for one in added)}
    return {
        "timestamp": int(time.time() * 1000),
        "operation": "OPTIMIZE",
        "operationParameters": {"predicate": "[]", "zOrderBy": json.dumps(list(zorder))},
        "readVersion": table.version(),
        "isolationLevel": "SnapshotIsolation",
        "isBlindAppend": False,
        "engineInfo": said.get("engineInfo", ""),
        "operationMetrics": {"numFilesRemoved": len(taken), "numFilesAdded": len(added), **sizes, GROUPS_LEFT: left},
        **({"userMetadata": mark} if mark else {}),
    }


def _commit_rewrite(
    home: Location, version: int, taken: Sequence[DataFile], added: Sequence[Mapping[str, Any]], info: Mapping[str, Any]
) -> None:
    removed = [
        {
            "path": one.path,
            "deletionTimestamp": info["timestamp"],
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": _write_partition_values(one),
            "size": one.size,
        }
        for one in taken
    ]
    actions: list[Mapping[str, Any]] = [
        {"commitInfo": info},
        *({"remove": one} for one in removed),
        *({"add": one} for one in added),
    ]
    commit = home / LOG / f"{version + 1:020d}.json"
    try:
        write_file_durably(commit, _join_actions(actions).encode(), overwrite=False)
    except FileExistsError:
        for one in added:
            (home / one["path"]).unlink(missing_ok=True)
        raise table_collision(home) from None


def _join_actions(actions: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions)
