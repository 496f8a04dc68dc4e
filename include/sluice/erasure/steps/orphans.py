"""Files of a table that its log does not need, found by a listing of one's own: VACUUM looks into no folder whose name begins with a dot."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from sluice.delta_log import open_checked_table
from sluice.lake import log
from sluice.lake.tables import RETENTION, parse_interval_length

_LOG = "_delta_log"


def remove_orphan_files(path: str, now: datetime) -> int:
    """Remove what `find_orphan_files` finds. Returns how many files."""
    files = find_orphan_files(path, now)
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)


def find_orphan_files(path: str, now: datetime) -> list[Path]:
    """What the table's latest version does not need and what was not removed from it within its retention.

    Nothing where a file that is needed is not found by the name that the log has for it.
    """
    root, keep = Path(path), parse_interval_length(log.read_table_properties(path).get(RETENTION, "interval 7 days"))
    since = (now - keep).timestamp()
    listed = list(_walk_table_files(root))
    needed = [_possible_file_paths(root, name) for name in _list_needed_files(path)]
    there = set(listed)
    if not all(forms & there for forms in needed):
        return []
    stays = set().union(*needed, *(_possible_file_paths(root, name) for name in _list_recently_removed_files(root / _LOG, since)))
    return [file for file in listed if _find_checksummed_file(file) not in stays and file.lstat().st_mtime <= since]


def _possible_file_paths(root: Path, name: str) -> set[Path]:
    """Where a file of the log lies: names of partitions are escaped in it, once or twice."""
    return {root / name, root / unquote(name), root / unquote(unquote(name))}


def _list_needed_files(path: str) -> list[str]:
    """The files of the latest version that lie below the table, with those that hold its deletion vectors."""
    table = open_checked_table(path)
    root = table.table_uri.removeprefix("file://").rstrip("/") + "/"
    uris = [uri.removeprefix("file://") for uri in table.file_uris()]
    found = [uri.removeprefix(root) for uri in uris if uri.startswith(root)]
    return found + [file.name for file in Path(path).glob("deletion_vector_*.bin")]


def _list_recently_removed_files(folder: Path, since: float) -> Iterator[str]:
    """What commits since an instant removed: versions that are still to be read are made of it; and what they added, their changes too."""
    for commit in sorted(folder.glob("*.json")):
        if commit.lstat().st_mtime > since:
            for line in commit.read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                yield from (str(action[kind]["path"]) for kind in ("remove", "add", "cdc") if kind in action)


def _walk_table_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        if _LOG in folders:
            folders.remove(_LOG)
        yield from (Path(folder) / name for name in files)


def _find_checksummed_file(file: Path) -> Path:
    """A file that another one is the checksum of: that one; else itself."""
    if file.name.startswith(".") and file.name.endswith(".crc"):
        return file.with_name(file.name[1:].removesuffix(".crc"))
    return file
