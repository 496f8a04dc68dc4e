"""Left-over files: of commits, writes and sessions that were killed. No VACUUM removes them, and nobody reads them.

To be called under the pipeline's lease: what is older than this run is nobody's any more.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Container, Iterator
from pathlib import Path

from sluice import session_folders
from sluice.erasure.steps.erasing import Erasing
from sluice.ingest.landing import rewriting
from sluice.lake.workspace import Workspace
from sluice.settings import Settings

_STAGING = ("_temporary", ".spark-staging-")
_STAGED = re.compile(r"\.(parquet|json)#\d+\Z")


def sweep(erasing: Erasing) -> None:
    """Temporary files of logs and checkpoints, staging folders, what Spark left on local disks, its event logs."""
    if not erasing.is_done("sweep"):
        erasing.done("sweep", files=everywhere(erasing.workspace, erasing.began))


def everywhere(workspace: Workspace, before: float) -> int:
    """Remove what was left before an instant (seconds since 1970). Returns how many files and folders it was."""
    settings = workspace.settings
    left = _of_lakes(workspace, before)
    left += [path for path in workspace.landing.rglob(f"*{rewriting.MARK}") if _modified(path) < before]
    left += [*_of_sessions(settings, before), *_event_logs(workspace, before)]
    for path in left:
        remove(path)
    return len(left)


def what_killed_commits_left(workspace: Workspace, before: float) -> int:
    """Remove temporary files of commits, of checkpoints and of data files, and folders of writers, of before an instant. Returns how many.

    What is staged stays: it is needed to bring to its end what was killed.
    """
    left = [path for path in _of_lakes(workspace, before) if path.parts[-2:] != ("_sluice", "staging")]
    for path in left:
        remove(path)
    return len(left)


def _of_lakes(workspace: Workspace, before: float) -> list[Path]:
    settings = workspace.settings
    roots = {"lake": Path(settings.lake) / workspace.pipeline, "restricted": settings.restricted / workspace.pipeline}
    theirs = [one.partition("/") for one in workspace.graph.pipeline.also_here]
    return [
        path
        for name, root in roots.items()
        for path in _of_lake(root, before, {root / below for of, _, below in theirs if of == name})
    ]


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it; what is gone already is well."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _of_lake(root: Path, before: float, theirs: Container[Path]) -> Iterator[Path]:
    """Temporary files of `_delta_log` and of checkpoints, folders of writers that died, and what readmissions had staged.

    theirs: what is said to be somebody else's (`also_here`), where a folder may be called so and be in use.
    """
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if here / name not in theirs]
        files = [name for name in files if here / name not in theirs]
        for name in list(folders):
            if (name.startswith(_STAGING) or here / name == root / "_sluice" / "staging") and _modified(here / name) < before:
                folders.remove(name)
                yield here / name
        there = set(files)
        left = (name for name in files if _is_temporary(here, name) or _is_of_nothing(name, there))
        yield from (here / name for name in left if _modified(here / name) < before)


def _is_of_nothing(name: str, there: Container[str]) -> bool:
    """Whether it is called as the checksums of a file are that is gone: who removes files by other means leaves them."""
    return name.startswith(".") and name.endswith(".crc") and name.removeprefix(".").removesuffix(".crc") not in there


def _is_temporary(folder: Path, name: str) -> bool:
    """`.N.json.<uuid>.tmp` of a commit, `.N.<uuid>.tmp` of a checkpoint, their checksums, and delta-rs' own: `<file>#1` of what it writes."""
    stem = name.removesuffix(".crc")
    if stem.endswith(".tmp") or _STAGED.search(name):
        return True
    return folder.name == "_delta_log" and name.startswith("_commit_") and name.endswith(".json.tmp")


def _of_sessions(settings: Settings, before: float) -> Iterator[Path]:
    """Folders of Spark sessions that have ended. One that a running session may own stays."""
    return (path for path in session_folders.ended(settings) if _modified(path) < before)


def _event_logs(workspace: Workspace, before: float) -> Iterator[Path]:
    """Those that this session writes or its predecessors wrote, where they lie below the checkout or the lake; a running one stays."""
    told = workspace.session.conf.get("spark.eventLog.dir", "") or ""
    folder = Path(told.removeprefix("file:"))
    ours = [workspace.settings.root, Path(workspace.settings.lake)]
    if told and "://" not in told.removeprefix("file:") and any(folder.is_relative_to(root) for root in ours) and folder.is_dir():
        mine = workspace.session.sparkContext.applicationId
        yield from (path for path in folder.iterdir() if mine not in path.name and _modified(path) < before)


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return float("inf")
