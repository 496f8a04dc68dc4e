"""Tells whether a pipeline is quiet: its last whole run left nothing to do, and nothing that a run looks at has changed since.

A task of a quiet pipeline starts no Spark. Everything that a run looks at is compared as a whole, by the names, sizes, times and inodes of
files, so that nothing can be forgotten: the landing folder, the code, the settings and the secrets, the requests to erase people, the logs of
all tables, and every other file below the pipeline's folders. A run of all stages writes the mark (`sluice.runs.execution.quiet_marking`). Any
difference from the mark, and anything that cannot be examined, is a reason to start Spark as usual. Loads neither Spark nor Arrow.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any

from sluice.delta_log import LOG
from sluice.durable_files import KeptFileDamaged, load_kept_object, write_json_durably
from sluice.lake.clone_registry import find_shallow_clone_lakes
from sluice.locations import Location, identify_file, is_on_disk, list_object_tags, locate
from sluice.own_records import FOLLOWED_JOBS, LEASE_FILES, LINEAGE_EVENTS, QUIET, RUNS, STOP_REQUESTS
from sluice.pipeline_records import PipelineRecords
from sluice.root_folders import ROOT_FOLDERS
from sluice.runs import due_requests
from sluice.runs.lease import holder
from sluice.settings import Settings

_WRITTEN_BY_QUIET_RUNS = frozenset({
    *LEASE_FILES,
    *(one.name for one in (QUIET, RUNS, STOP_REQUESTS, LINEAGE_EVENTS, FOLLOWED_JOBS)),
})
"""Files in a pipeline's `_sluice` that may change without a reason to run: the lease's holder, and records and events of runs."""
_COMPARED_SETTINGS = ("environment", "erasure_approval", "retain", *(one.name for one in ROOT_FOLDERS if one.ends_quiet))
_LIBRARIES = ("delta-spark", "deltalake", "pandas", "pyarrow", "pyspark")


@dataclass(frozen=True)
class QuietMark:
    """How a pipeline looked when a run had nothing left to do.

    run: its id. began: when (UTC). stages: those that it has done, in order. inputs, lake: digests of a run's input and of what runs write.
    until: when the clock alone is a reason to run again (UTC); None while stages are missing or something is left. tables: by layer, for
    each flow its name, the version of its table, the fingerprint of its declaration, and the findings of its rules on the whole table.
    declared: a digest of the declarations, which may depend on more than files. listed_after: by folder of a source on a store that runs do
    not list in full, the name after which they list; None if they do not list it at all.
    """

    run: str
    began: datetime
    stages: tuple[str, ...]
    inputs: str
    lake: str
    until: datetime | None = None
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    declared: str = ""
    listed_after: dict[str, str | None] = field(default_factory=dict)


class NotComparable(Exception):
    """Something cannot be compared by names, sizes and times, such as a link to a folder elsewhere, or a pipe."""


def find_quiet_mark(records: PipelineRecords, now: datetime, leased: bool = False) -> QuietMark | None:
    """Returns the mark of a quiet pipeline, or None if a run may find something to do. leased: whether this process holds the lease."""
    try:
        mark = read_quiet_mark(records)
        # A mark from the future was made while the clock was ahead: lifetimes and full listings would wait until it is reached.
        if mark is None or mark.until is None or not mark.began <= now < mark.until:
            return None
        # A process that was killed while it held the lease may have left files that a run sweeps.
        if not leased and holder.read_lease_description(locate(records.bookkeeping())) is not None:
            return None
        if due_requests.find_due_requests(records, now).now:
            return None
        if mark.inputs != digest_run_inputs(records, mark.listed_after) or mark.lake != digest_lake(records):
            return None
    except Exception:  # a run finds out what is wrong and reports it
        return None
    return mark


def read_quiet_mark(records: PipelineRecords) -> QuietMark | None:
    """Returns the mark that the latest run left, or None if there is none that can be read."""
    try:
        said = load_kept_object(_quiet_mark_path(records), "when the pipeline was quiet", "Remove it.")
        until = datetime.fromisoformat(said["until"]) if said["until"] else None
        began = datetime.fromisoformat(said["began"])
        return QuietMark(**{**said, "began": began, "stages": tuple(said["stages"]), "until": until})
    except (OSError, KeptFileDamaged, KeyError, TypeError, ValueError):
        return None


def write_quiet_mark(records: PipelineRecords, mark: QuietMark) -> None:
    """Writes the mark. Call it under the pipeline's lease."""
    until = mark.until.isoformat() if mark.until else None
    write_json_durably(_quiet_mark_path(records), {**vars(mark), "began": mark.began.isoformat(), "until": until})


def remove_quiet_mark(records: PipelineRecords) -> None:
    """Removes the mark: something failed that the next run must try again."""
    _quiet_mark_path(records).unlink(missing_ok=True)


def digest_run_inputs(records: PipelineRecords, listed_after: Mapping[str, str | None] = MappingProxyType({})) -> str:
    """Returns a digest of a run's input: deliveries, requests, code, settings and secrets. Raises OSError and NotComparable.

    listed_after: as in `QuietMark`.
    """
    given = (records.settings.secrets, records.erasure_requests)
    return _digest_lines(
        *(f"{name} {_find_library_version(name)}" for name in _LIBRARIES),
        sys.version,
        *(f"{name} {getattr(records.settings, name)}" for name in _COMPARED_SETTINGS),
        *_describe_landing(records.landing, {locate(folder): name for folder, name in listed_after.items()}),
        *(line for folder in given for line in _describe_folder(folder)),
        *(
            line
            for folder in records.settings.code_folders.values()
            for line in _describe_folder(folder, left_out=_is_compiled_code)
        ),
    )


def digest_lake(records: PipelineRecords) -> str:
    """Returns a digest of what runs write: the logs of tables and all other files below a pipeline's folders, and which shallow clones there are.

    VACUUM waits for those clones until they are removed. Raises OSError, NotComparable and KeptFileDamaged.
    """
    books = {records.bookkeeping(), records.bookkeeping(restricted=True)}

    def is_left_out(folder: Location, name: str) -> bool:
        return name in _WRITTEN_BY_QUIET_RUNS and str(folder) in books

    tables = [root / records.pipeline for root in records.settings.table_roots.values()]
    return _digest_lines(
        *(line for folder in tables for line in _describe_folder(folder, left_out=is_left_out, logs_alone=True)),
        *_describe_folder(records.settings.vault / records.pipeline),
        *find_shallow_clone_lakes(records),
    )


def find_latest_code_change(settings: Settings) -> float:
    """Returns when a file of the code was last changed or added, in seconds: a process may have loaded older code before. Raises OSError."""
    files = [file for folder in settings.code_folders.values() for file in folder.rglob("*") if not file.is_dir()]
    return max((file.stat().st_ctime for file in files if "__pycache__" not in file.parts), default=0.0)


def _is_compiled_code(folder: Location, name: str) -> bool:
    return name == "__pycache__"


def _find_library_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # it may come from elsewhere, as Spark does from SPARK_HOME
        return ""


def _quiet_mark_path(records: PipelineRecords) -> Location:
    return locate(records.bookkeeping(QUIET.name))


def _digest_lines(*lines: str) -> str:
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode("utf-8", "surrogateescape") + b"\0")
    return found.hexdigest()


def _is_object_left_out(root: Location, location: Location, left_out: Callable[[Location, str], bool], logs_alone: bool) -> bool:
    """Whether an object is left out, by the same rules as on a disk: nothing below what is left out, and for a table only its log."""
    folders = [one for one in location.parents if one == root or one.is_relative_to(root)]
    if any(left_out(one.parent, one.name) for one in (location, *folders[:-1])):
        return True
    return logs_alone and LOG not in location.parts and location.suffix == ".parquet"


def _describe_landing(folder: Location, listed_after: Mapping[Location, str | None]) -> Iterator[str]:
    """Describes a landing folder as `_describe_folder` does, except folders below it that are not listed in full."""
    if not any(one.is_relative_to(folder) for one in listed_after):
        yield from _describe_folder(folder)
    elif folder not in listed_after:
        for one in sorted(folder.iterdir()):
            yield from _describe_landing(one, listed_after) if one.is_dir() else (f"{one} {identify_file(one)}",)
    elif (after := listed_after[folder]) is not None:
        yield from (f"{location} {tag}" for location, tag in list_object_tags(folder, after))


def _describe_folder(
    folder: Location,
    left_out: Callable[[Location, str], bool] = lambda folder, name: False,
    logs_alone: bool = False,
    root: Location | None = None,
) -> Iterator[str]:
    """Describes a folder and the files below it, one a line. left_out: what to skip. logs_alone: take only the log of a table's folder.

    root: the requested folder, if this one is below it. A link may lead to a file, or to a folder below the root, which is described in its
    own place; Kubernetes mounts secrets like this.
    """
    yield str(folder)
    if not is_on_disk(folder):
        yield from (
            f"{location} {tag}"
            for location, tag in list_object_tags(folder)
            if not _is_object_left_out(folder, location, left_out, logs_alone)
        )
        return
    if not folder.is_dir():
        return
    root = root or folder.resolve()
    with os.scandir(folder) as entries:
        listed = sorted((entry for entry in entries if not left_out(folder, entry.name)), key=lambda entry: entry.name)
    if logs_alone:
        listed = [entry for entry in listed if entry.name == LOG and entry.is_dir(follow_symlinks=False)] or listed
    for entry in listed:
        found = entry.stat(follow_symlinks=False)
        target = locate(entry.path)
        if stat.S_ISLNK(found.st_mode):
            target = target.resolve()
            yield f"{entry.path} {target}"
            found = target.stat()
            if stat.S_ISDIR(found.st_mode) and target.is_relative_to(root):
                continue
        elif stat.S_ISDIR(found.st_mode):
            yield f"{found.st_mode}"
            yield from _describe_folder(target, left_out, logs_alone, root)
            continue
        if not stat.S_ISREG(found.st_mode):
            raise NotComparable(entry.path)
        yield f"{target} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino} {found.st_mode}"
