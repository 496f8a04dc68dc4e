"""Locations of files and folders, on a disk of this machine or on an object store, with pathlib's interface.

A store has no folders: one exists while an object is below it, and making or removing an empty one does nothing. It has no inodes,
modes and flushes: an object is complete and visible when its write returns.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

from sluice.stores.opening import is_store_url, require_known_location
from sluice.stores.store_location import StoreLocation

Location: TypeAlias = Path
"""A location that may be on a store, while a `Path` is on this machine. Code that needs a path of this machine raises TypeError for it."""


def locate(location: str | Location, *names: str) -> Location:
    """The location that a text names: a path of this machine, or a URL of a store. Raises UsageError for an invalid URL.

    names: folders and a file below it.
    """
    if isinstance(location, str):
        location = StoreLocation.from_url(location) if is_store_url(location) else Path(location)
    return location.joinpath(*names)


def locate_given(location: str) -> Location:
    """As `locate`, of a location that somebody has given to a command or a setting.

    Raises UsageError for a URL of a store that does not exist, too, and for one that may hold credentials.
    """
    return locate(require_known_location(location))


def is_on_disk(location: Location) -> bool:
    """Whether the location is on a disk of this machine, where files have modes, inodes and a flush."""
    return not isinstance(location, StoreLocation)


def remove_folder(folder: Location, strict: bool = False) -> None:
    """Remove a folder with everything below. strict: whether to raise OSError for entries that cannot be removed; else they stay."""
    if isinstance(folder, StoreLocation):
        folder.remove_below()
    else:
        shutil.rmtree(folder, ignore_errors=not strict)


def identify_file(file: Location) -> tuple[int | str, ...]:
    """An identity that changes when another file replaces a file, or its content changes. Raises FileNotFoundError and NotADirectoryError."""
    if isinstance(file, StoreLocation):
        found = file.stat()
        return (found.tag, found.st_size, found.st_mtime_ns)
    status = file.stat()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def put_file_in_place(file: Path, location: Location) -> None:
    """Move a local file (on the same disk as `location`, if that is on one) to its location. It appears whole, and replaces an existing file."""
    if isinstance(location, StoreLocation):
        location.upload_file(file)
        file.unlink()
    else:
        file.replace(location)


def open_to_read(file: Location) -> IO[bytes]:
    """Opens a file for a reader that needs parts of it, such as Parquet's. Raises FileNotFoundError."""
    return file.open_ranges() if isinstance(file, StoreLocation) else file.open("rb")


@contextmanager
def open_new_file(file: Location) -> Iterator[IO[bytes]]:
    """Writes a new file. On a store it appears whole at the end of the block. Raises FileExistsError."""
    if not isinstance(file, StoreLocation):
        with file.open("xb") as written:
            yield written
        return
    if file.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file))
    with tempfile.TemporaryFile() as content:  # nothing of it stays on this machine, however the process ends
        with os.fdopen(os.dup(content.fileno()), "wb") as written:  # which the block may close, as Arrow's compression does
            yield written
        content.seek(0)
        file.upload_content(content)


def list_file_sizes(folder: Location) -> dict[str, int]:
    """The files directly in a folder, by name, with their sizes in bytes; empty if there is no such folder."""
    if isinstance(folder, StoreLocation):
        return {location.name: size for location, size in folder.list_files()}
    try:
        with os.scandir(folder) as entries:
            return {one.name: one.stat().st_size for one in entries if one.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def list_object_tags(folder: Location, after: str = "") -> Iterator[tuple[Location, str]]:
    """The objects below a folder of a store, in the order of their names, each with its ETag. Raises TypeError for a folder on a disk.

    after: only those whose name below the folder follows this one.
    """
    if not isinstance(folder, StoreLocation):
        raise TypeError(f"{folder} is on a disk.")
    return folder.list_tags(after)


def list_written_files(folder: Location) -> Iterator[tuple[int, float]]:
    """The files below a folder, at any depth: their sizes in bytes, and when each was written or moved there, in seconds since 1970."""
    if isinstance(folder, StoreLocation):
        yield from ((size, written.timestamp()) for _, size, written in folder.list_objects())
        return
    for below, _, names in os.walk(folder):
        for name in names:
            found = Path(below, name).lstat()
            yield found.st_size, found.st_ctime


def walk_folders(root: Location) -> Iterator[tuple[Location, list[str], list[str]]]:
    """Each folder at and below the root, with the names of its folders and files, like `os.walk`: folders removed from the list are not entered."""
    if isinstance(root, StoreLocation):
        yield from root.walk_below()
    else:
        yield from ((Path(folder), folders, files) for folder, folders, files in os.walk(root))


def find_last_write(location: Location) -> float:
    """When a file, or a folder's list of files, was last written, in seconds since 1970. Raises FileNotFoundError.

    On a store, which has no folders, it is the latest write of anything below.
    """
    try:
        return location.lstat().st_mtime
    except FileNotFoundError:
        if is_on_disk(location):
            raise
        below = [seconds for _, seconds in list_written_files(location)]
        if not below:
            raise
        return max(below)
