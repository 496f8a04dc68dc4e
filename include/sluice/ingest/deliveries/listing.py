"""Lists a source's landing folder, on a disk or on a store. Others write there, so it changes nothing and follows no link.

It ignores names that start with a dot or an underscore (files and folders), names with an ending for files that are still being written,
the ready markers themselves, and anything but files, folders and links.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from sluice.declare.ingest.source import Source
from sluice.errors import SluiceError, UsageError
from sluice.ingest.deliveries.landed_file import LandedFile, escape_file_name, is_file_surely_in_state
from sluice.locations import Location, is_on_disk
from sluice.record_states import DELIVERED
from sluice.settings import Settings
from sluice.stores.opening import is_store_url
from sluice.stores.store_location import StoreLocation
from sluice.stores.store_object import ObjectStatus

PARTIAL = (".tmp", ".part", ".partial", ".crdownload", ".filepart", ".swp", "~", "._copying_", ".inprogress")
"""The endings, in any letter case, of names of files that are still being written."""
AT_REST = 15 * 60
"""After this many seconds without a change, a file counts as finished."""

_NAME = "{name}"
_STORE = 0
"""The device of everything on a store."""
YOUNG, LOOK_AGAIN = 1.0, 0.5
"""Seconds. A file modified less than YOUNG ago is checked again after LOOK_AGAIN. If it changes, it is left for the next run."""


def locate_source_folder(source: Source, settings: Settings, landing: Location) -> Location:
    """Returns a source's landing folder. landing: the pipeline's."""
    return landing / source.path


def count_no_records(files: Sequence[str]) -> int | None:
    """Returns 0 without files, otherwise None: nobody knows how many records files have before they are read."""
    return None if files else 0


def warn_of_nothing(source: Source, deliveries: str, outcomes: str) -> list[str]:
    """Returns no warning: files stay until somebody removes them, so nothing is about to be lost."""
    return []


_LASTING = frozenset({
    *(errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL),  # the name, or what lies there
    *(errno.EACCES, errno.EPERM),
    *(errno.ENODEV, errno.ENXIO),  # the disk is absent
})
"""The errors of a landing folder that no retry helps against."""


def explain_landing_error(what: str, error: OSError) -> SluiceError:
    """Returns the error to raise for one of the system, or of a store. what: what could not be done.

    It is UsageError if somebody must put it right. Otherwise the disk, the share or the store may answer the next time, as after ETIMEDOUT,
    ESTALE or EIO.
    """
    kind = UsageError if error.errno in _LASTING else SluiceError
    return kind(f"{what}: {error.strerror}.")


class NoLandingFolder(UsageError):
    """A source's landing folder does not exist."""


def require_landing_folder(source: Source, landing: Location, there: Location) -> None:
    """Raises NoLandingFolder if the source's folder is missing, or, on a store, if nothing has landed for the pipeline."""
    if is_on_disk(there) and there.is_file():
        raise NoLandingFolder(
            f"Source '{source.name}': {landing / source.path} is a file, not a folder. path= is the folder that the file lies in; pattern= "
            "selects files by their names."
        )
    if not there.is_dir():
        raise NoLandingFolder(
            f"Source '{source.name}' has no landing folder {landing / source.path}. "
            "Create it and put files there; if the pipeline names a maker of deliveries, "
            f"run: sluice land {landing.name}"
        )


def find_landing_folder(source: Source, landing: Location) -> Location:
    """Returns the source's folder. landing: the pipeline's. Raises NoLandingFolder, and UsageError if a link leads out of the landing folder.

    A store has no folders, so none is missing there.
    """
    folder = landing / source.path
    if not is_on_disk(folder):
        return folder
    require_landing_folder(source, landing, folder)
    if not folder.resolve().is_relative_to(landing.resolve()):
        raise UsageError(
            f"Source '{source.name}': its folder {folder} is a link that leaves the landing folder {landing}. "
            "Put the files below the landing folder, mount them there, or set SLUICE_LANDING."
        )
    return folder


def list_ready_files(source: Source, landing: Location, after: str = "") -> Iterator[LandedFile]:
    """Returns the files of a source that exist and are ready. landing: the pipeline's landing folder.

    Unreadable entries are among them, with the problem, and do not hold up the others. after: on a store only names after this one.

    Raises what `find_landing_folder` raises, and SluiceError if the folder cannot be listed.
    """
    folder = find_landing_folder(source, landing)
    yield from (
        _list_ready_objects(source, folder, after)
        if isinstance(folder, StoreLocation)
        else _list_ready_entries(source, str(folder))
    )


def _list_ready_entries(source: Source, root: str) -> Iterator[LandedFile]:
    """Returns the files of a source on a disk, folder by folder."""
    wanted, ready = _build_name_filter(source), _build_readiness_check(source)
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            entries = _scan_folder(root, below)
        except OSError as error:
            if not below:
                raise explain_landing_error(f"The landing folder {root} cannot be listed", error) from None
            yield _landed_file_with_problem(
                f"{root}/{below.rstrip('/')}", below.rstrip("/"), f"the folder cannot be listed: {error.strerror}"
            )
            continue
        names = {entry.name for entry in entries} if source.ready_marker else set()
        for entry in entries:
            name = entry.name
            if name[0] in "._" or name.lower().endswith(PARTIAL):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{below}{name}/")
                elif _is_folder_link(entry) or (wanted(name) and ready(name, names) and _is_file_or_link(entry)):
                    found = entry.stat(follow_symlinks=False)
                    yield LandedFile(escape_file_name(below + name), entry.path, found.st_size, found.st_mtime_ns // 1000)
            except FileNotFoundError:
                continue
            except OSError as error:
                yield _landed_file_with_problem(entry.path, below + name, f"it cannot be looked at: {error.strerror}")


def _list_ready_objects(source: Source, folder: StoreLocation, after: str) -> Iterator[LandedFile]:
    """Returns the files of a source on a store, in the order of their names. Raises SluiceError if they cannot be listed."""
    wanted, ready = _build_object_filter(source), _build_readiness_check(source)
    try:
        for beside in _group_by_folder(folder, source.ready_marker is not None, after):
            names = {file.rpartition("/")[2] for file, _ in beside} if source.ready_marker else set()
            for file, found in beside:
                if wanted(file) and ready(file.rpartition("/")[2], names):
                    yield _describe_object(folder, file, found)
    except OSError as error:
        raise explain_landing_error(f"The landing folder {folder} cannot be listed", error) from None


def find_named_objects(source: Source, folder: StoreLocation, names: Iterable[str]) -> Iterator[tuple[str, LandedFile | None]]:
    """Returns the entries that a listing would have for objects with these names; None: there is no such object.

    Leaves out names that the source does not read, and ignores ready markers. Raises SluiceError if the store does not answer.
    """
    wanted = _build_object_filter(source)
    try:
        for file, found in folder.find_named_objects(name for name in names if wanted(name)):
            yield file, None if found is None else _describe_object(folder, file, found)
    except OSError as error:
        raise explain_landing_error(f"Objects below {folder} cannot be looked at", error) from None


def _build_object_filter(source: Source) -> Callable[[str], bool]:
    """Returns a function that tells whether the source reads an object, by its name below the source's folder."""
    fits = _build_name_filter(source)

    def is_wanted(file: str) -> bool:
        name = file.rpartition("/")[2]
        left_out = any(part.startswith((".", "_")) for part in file.split("/")) or name.lower().endswith(PARTIAL)
        return not left_out and bool(fits(name))

    return is_wanted


def _describe_object(folder: StoreLocation, file: str, found: ObjectStatus) -> LandedFile:
    problem = None if all(file.split("/")) else "its name has an empty part, as in '//', and is no path"
    path, modified = f"{folder}/{file}", found.st_mtime_ns // 1000
    return LandedFile(file, path, found.st_size, modified, problem=problem, etag=found.tag or None)


def _group_by_folder(folder: StoreLocation, whole: bool, after: str) -> Iterator[list[tuple[str, ObjectStatus]]]:
    """Returns the objects below: those of a folder together if `whole`, otherwise one by one."""
    if not whole:
        yield from ([one] for one in folder.list_named_objects(after))
        return
    # Names come in order: a folder is complete when a name comes that is not below it.
    around: dict[str, list[tuple[str, ObjectStatus]]] = {}
    for name, found in folder.list_named_objects(after):
        for complete in [one for one in around if not name.startswith(one)]:
            yield around.pop(complete)
        around.setdefault(name[: name.rfind("/") + 1], []).append((name, found))
    yield from around.values()


def _scan_folder(root: str, below: str) -> list[os.DirEntry[str]]:
    """Lists a folder; empty if it is gone. Raises OSError if it cannot be listed."""
    try:
        with os.scandir(f"{root}/{below}") as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder_link(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a link to a folder, or a link whose target cannot be read, such as itself. Either becomes one delivery.

    Its content must not be skipped silently.
    """
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:
        return True


def _is_file_or_link(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_file(follow_symlinks=False)


def _landed_file_with_problem(path: str, file: str, problem: str) -> LandedFile:
    """Returns an unreadable entry, with its size and time if these can be known."""
    try:
        found = os.lstat(path)
    except OSError:
        return LandedFile(escape_file_name(file), path, 0, 0, problem=problem)
    return LandedFile(escape_file_name(file), path, found.st_size, found.st_mtime_ns // 1000, problem=problem)


def _build_name_filter(source: Source) -> Callable[[str], object]:
    """Returns a function that tells whether a name fits the source's pattern and is not a ready marker."""
    fits = re.compile(fnmatch.translate(source.pattern)).match if source.pattern != "*" else bool
    marker = source.ready_marker
    if marker is None:
        return fits
    before, named, after = marker.partition(_NAME)
    if not named:
        return lambda name: name != marker and fits(name)
    return lambda name: not (name.startswith(before) and name.endswith(after)) and fits(name)


def _build_readiness_check(source: Source) -> Callable[[str, set[str]], bool]:
    """Returns a function that tells, by a file's name and the names beside it, whether it may be read."""
    marker = source.ready_marker
    if marker is None:
        return lambda name, beside: True
    return lambda name, beside: marker.replace(_NAME, name) in beside


def find_files_being_written(files: Iterable[LandedFile]) -> set[LandedFile]:
    """Returns the files that are still being written: just modified, and changed a moment later. Waits once for all of them."""
    now = time.time()
    # An object of a store is there whole or not at all.
    young = [
        file
        for file in files
        if file.event == DELIVERED and 0 <= now - file.modified / 1e6 < YOUNG and not is_store_url(file.path)
    ]
    if not young:
        return set()
    time.sleep(LOOK_AGAIN)
    return {file for file in young if not is_file_surely_in_state(file.path, file.state)}


def find_folder_device(folder: Location) -> int | None:
    """Returns the device that a folder is on, or None if it does not exist. On a store each folder exists, on the device _STORE."""
    if not is_on_disk(folder):
        return _STORE
    try:
        return folder.stat().st_dev
    except (FileNotFoundError, NotADirectoryError):
        return None
