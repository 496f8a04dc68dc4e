"""Removes leftovers that VACUUM ignores: of killed commits, writes and sessions, and of abandoned checkpoints.

Call it under the pipeline's lease: nothing older than this run is in use. VACUUM skips every folder whose name begins with a dot, so
our own listing finds the files of a table that its log does not need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from datetime import datetime

from sluice import session
from sluice.delta_log import LOG, split_commit_lines
from sluice.erasure.steps.erasure_step import ErasureStep
from sluice.flows.progress.flow_memory import load_flow_memory
from sluice.ingest.landing import rewriting
from sluice.lake.inventory import list_possible_locations
from sluice.lake.log import read_table_retention
from sluice.lake.workspace import Workspace
from sluice.locations import Location, find_last_write, is_on_disk, locate, remove_folder, walk_folders
from sluice.open_tables import open_checked_table
from sluice.own_records import OWN_FOLDER, STAGING, name_own_record
from sluice.settings import Settings
from sluice.work_progress import count_work

_STAGING = ("_temporary", ".spark-staging-")
_STAGED = re.compile(r"\.(parquet|json)#\d+\Z")


def sweep_leftover_files(step: ErasureStep) -> None:
    """Removes temporary files of logs and checkpoints, staging folders, and what Spark left on local disks and in event logs."""
    if not step.is_done():
        step.record_done(files=remove_leftover_files(step.propagation.workspace, step.propagation.began))


def remove_leftover_files(workspace: Workspace, before: float) -> int:
    """Removes what is older than an instant (seconds since 1970). Returns how many files and folders were removed."""
    settings = workspace.settings
    left = _find_lake_leftovers(workspace, before)
    left += [path for path in workspace.landing.rglob(f"*{rewriting.MARK}") if _modification_time(path) < before]
    left += [*_find_ended_session_folders(settings, before), *_find_old_event_logs(workspace, before)]
    _remove_paths(left)
    return len(left)


def _remove_paths(paths: Sequence[Location]) -> None:
    with count_work("left-over files removed", len(paths)) as work:
        for path in paths:
            remove_file_or_folder(path)
            work.advance()


def remove_killed_commit_files(workspace: Workspace, before: float) -> int:
    """Removes temporary files of commits, checkpoints and data, and writers' folders, older than an instant. Returns how many.

    Staged files stay: they are needed to finish what was killed.
    """
    left = [path for path in _find_lake_leftovers(workspace, before) if path.parts[-2:] != (OWN_FOLDER, STAGING.name)]
    _remove_paths(left)
    return len(left)


def _find_lake_leftovers(workspace: Workspace, before: float) -> list[Location]:
    roots = {name: root / workspace.pipeline for name, root in workspace.settings.table_roots.items()}
    theirs = [one.partition("/") for one in workspace.graph.pipeline.also_here]
    return [
        path
        for name, root in roots.items()
        for path in _find_leftovers_below(root, before, {root / below for of, _, below in theirs if of == name})
    ]


def remove_file_or_folder(path: Location) -> None:
    """Removes a file, or a folder with its contents. It may already be gone."""
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def _find_leftovers_below(root: Location, before: float, theirs: Container[Location]) -> Iterator[Location]:
    """Temporary files of `_delta_log` and of checkpoints, folders of dead writers, and staged readmissions.

    theirs: the paths declared as others' (`also_here`): a folder there may have such a name and be in use.
    """
    for here, folders, files in _walk_counted(root):
        folders[:] = [name for name in folders if here / name not in theirs]
        files = [name for name in files if here / name not in theirs]
        for name in list(folders):
            if (name.startswith(_STAGING) or here / name == root / name_own_record(STAGING)) and _modification_time(
                here / name
            ) < before:
                folders.remove(name)
                yield here / name
        there = set(files)
        left = (name for name in files if _is_temporary_file(here, name) or _is_stray_checksum(name, there))
        yield from (here / name for name in left if _modification_time(here / name) < before)


def _is_stray_checksum(name: str, there: Container[str]) -> bool:
    """Whether its name is that of a checksum whose file is gone, as after a removal by other programs."""
    return name.startswith(".") and name.endswith(".crc") and name.removeprefix(".").removesuffix(".crc") not in there


def _is_temporary_file(folder: Location, name: str) -> bool:
    """`.N.json.<uuid>.tmp` of a commit, `.N.<uuid>.tmp` of a checkpoint, their checksums, and delta-rs' own `<file>#1`."""
    stem = name.removesuffix(".crc")
    if stem.endswith(".tmp") or _STAGED.search(name):
        return True
    return folder.name == LOG and name.startswith("_commit_") and name.endswith(".json.tmp")


def _find_ended_session_folders(settings: Settings, before: float) -> Iterator[Location]:
    """Folders of ended Spark sessions. One that a running session may own stays."""
    return (path for path in session.abandoned_session_folders(settings) if _modification_time(path) < before)


def _find_old_event_logs(workspace: Workspace, before: float) -> Iterator[Location]:
    """Event logs of this session and its predecessors, if they lie below the checkout or the lake. A running session's stays."""
    told = workspace.session.conf.get("spark.eventLog.dir", "") or ""
    folder = locate(re.sub(r"\Afile:(//)?(?=/)", "", told))
    ours = [workspace.settings.root, locate(workspace.settings.lake)]
    if told and is_on_disk(folder) and any(folder.is_relative_to(root) for root in ours) and folder.is_dir():
        mine = workspace.session.sparkContext.applicationId
        yield from (path for path in folder.iterdir() if mine not in path.name and _modification_time(path) < before)


def _modification_time(path: Location) -> float:
    try:
        return find_last_write(path)
    except FileNotFoundError:
        return float("inf")


def remove_abandoned_checkpoints(step: ErasureStep) -> None:
    """Removes abandoned checkpoints with their state. Flows whose state knew such people have already started over."""
    if step.is_done():
        return
    left = list(_find_abandoned_checkpoints(locate(step.propagation.workspace.checkpoints("any")).parent))
    for folder in left:
        remove_folder(folder, strict=True)
    step.record_done(files=len(left))


def _find_abandoned_checkpoints(root: Location) -> Iterator[Location]:
    """The folders below a flow's own folder that its flow.json does not name."""
    for flow in sorted(path for path in root.glob("*") if path.is_dir()):
        try:
            memory = load_flow_memory(flow)
        except ValueError:
            memory = None
        identity = None if memory is None or memory.reset else memory.identity
        yield from (path for path in sorted(flow.iterdir()) if path.is_dir() and path.name != identity)


def remove_orphan_files(path: str, now: datetime) -> int:
    """Removes what `find_orphan_files` finds. Returns how many files were removed."""
    files = find_orphan_files(path, now)
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)


def find_orphan_files(path: str, now: datetime) -> list[Location]:
    """Files that the table's latest version does not need and that were not removed from it within its retention.

    Returns nothing if a needed file is not found under the name that the log has for it.
    """
    root, keep = locate(path), read_table_retention(path)
    since = (now - keep).timestamp()
    listed = list(_walk_table_files(root))
    needed = [set(list_possible_locations(root, name)) for name in _list_needed_files(path)]
    there = set(listed)
    if not all(forms & there for forms in needed):
        return []
    stays = set().union(
        *needed, *(set(list_possible_locations(root, name)) for name in _list_recently_removed_files(root / LOG, since))
    )
    return [file for file in listed if _find_checksummed_file(file) not in stays and file.lstat().st_mtime <= since]


def _list_needed_files(path: str) -> list[str]:
    """The files of the latest version that lie below the table, with those of its deletion vectors."""
    table = open_checked_table(path)
    root = table.table_uri.removeprefix("file://").rstrip("/") + "/"
    uris = [uri.removeprefix("file://") for uri in table.file_uris()]
    found = [uri.removeprefix(root) for uri in uris if uri.startswith(root)]
    return found + [file.name for file in locate(path).glob("deletion_vector_*.bin")]


def _list_recently_removed_files(folder: Location, since: float) -> Iterator[str]:
    """The files that commits since an instant removed, which versions still to be read need, and those they added, with change data."""
    for commit in sorted(folder.glob("*.json")):
        if commit.lstat().st_mtime > since:
            for line in split_commit_lines(commit.read_bytes()):
                action = json.loads(line)
                yield from (str(action[kind]["path"]) for kind in ("remove", "add", "cdc") if kind in action)


def _walk_counted(root: Location) -> Iterator[tuple[Location, list[str], list[str]]]:
    """`walk_folders`, with its files counted as work."""
    with count_work("files found") as work:
        for found in walk_folders(root):
            yield found
            work.advance(len(found[2]))


def _walk_table_files(root: Location) -> Iterator[Location]:
    for folder, folders, files in _walk_counted(root):
        if LOG in folders:
            folders.remove(LOG)
        yield from (folder / name for name in files)


def _find_checksummed_file(file: Location) -> Location:
    """The file that a checksum belongs to, or the file itself if it is no checksum."""
    if file.name.startswith(".") and file.name.endswith(".crc"):
        return file.with_name(file.name[1:].removesuffix(".crc"))
    return file
