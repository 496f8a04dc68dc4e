"""Places of files and folders, on a disk of this machine or on an object store, by one interface: that of pathlib.

A store has no folders: one is there while an object is below it, and to make or remove an empty one does nothing. It has no inodes,
modes and flushes: an object is whole, and there when its write returns.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from sluice.stores.opening import is_store_url
from sluice.stores.store_location import StoreLocation

Location: TypeAlias = Path
"""A place that may be on a store, where `Path` is one of this machine. What needs a path of this machine raises TypeError for it."""


def locate(place: str | Location, *names: str) -> Location:
    """The place that a text names: a path of this machine, or a URL of a store. Raises UsageError for a URL that names no place.

    names: folders and a file below it.
    """
    if isinstance(place, str):
        place = StoreLocation.from_url(place) if is_store_url(place) else Path(place)
    return place.joinpath(*names)


def is_on_disk(place: Location) -> bool:
    """Whether the place is on a disk of this machine, where files have modes, inodes and a flush."""
    return not isinstance(place, StoreLocation)


def remove_folder(folder: Location, strict: bool = False) -> None:
    """Remove all that is below, and the folder. strict: whether to raise OSError for what cannot be removed; else it stays."""
    if isinstance(folder, StoreLocation):
        folder.remove_below()
    else:
        shutil.rmtree(folder, ignore_errors=not strict)


def identify_file(file: Location) -> tuple[int | str, ...]:
    """What changes when another file takes a file's place, or its content changes. Raises FileNotFoundError, and NotADirectoryError."""
    if isinstance(file, StoreLocation):
        found = file.stat()
        return (found.tag, found.st_size, found.st_mtime_ns)
    status = file.stat()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def list_file_sizes(folder: Location) -> dict[str, int]:
    """The files right below a folder, by name, with their sizes in bytes. Nothing if there is no such folder."""
    if isinstance(folder, StoreLocation):
        return {place.name: size for place, size, _ in folder.list_objects() if place.parent == folder}
    try:
        with os.scandir(folder) as entries:
            return {one.name: one.stat().st_size for one in entries if one.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def list_object_tags(folder: Location) -> Iterator[tuple[Location, str]]:
    """The objects below a folder of a store, in the order of their names, each with its ETag. Raises TypeError for a folder on a disk."""
    if not isinstance(folder, StoreLocation):
        raise TypeError(f"{folder} is on a disk.")
    return folder.list_tags()


def list_written_files(folder: Location) -> Iterator[tuple[int, float]]:
    """The files below a folder, at any depth: their sizes in bytes, and when each was written or put there, in seconds since 1970."""
    if isinstance(folder, StoreLocation):
        yield from ((size, written.timestamp()) for _, size, written in folder.list_objects())
        return
    for place, _, names in os.walk(folder):
        for name in names:
            found = Path(place, name).lstat()
            yield found.st_size, found.st_ctime
