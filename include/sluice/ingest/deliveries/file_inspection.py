"""A look at one file of a landing folder: whether it opens, what its content hashes to, whether it is still being written."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from sluice.ingest.deliveries.listing import DELIVERED, LandedFile

YOUNG, LOOK_AGAIN = 1.0, 0.5
"""Seconds: a file modified less than YOUNG ago is looked at again after LOOK_AGAIN; while it changes it is left for the next run."""


Looked = TypeVar("Looked")


def find_files_being_written(files: Iterable[LandedFile]) -> set[LandedFile]:
    """Those that are still being written: just modified, and another a moment later. One wait for all of them."""
    now = time.time()
    young = [file for file in files if file.event == DELIVERED and 0 <= now - file.modified / 1e6 < YOUNG]
    if not young:
        return set()
    time.sleep(LOOK_AGAIN)
    return {file for file in young if _find_size_and_mtime(file.path) != (file.size, file.modified)}


def _find_size_and_mtime(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns // 1000


def find_folder_device(folder: Path) -> int | None:
    """The device that a folder is on; None where it is not there."""
    try:
        return folder.stat().st_dev
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_openable_file(path: str) -> bool:
    """Whether the first byte of what lies there can be read."""
    try:
        _inspect_regular_file(path, lambda descriptor: os.read(descriptor, 1))
    except OSError:
        return False
    return True


def hash_regular_file(path: str) -> str | None:
    """None of a link, whose target is none of ours, and of what is no file. Raises OSError where it cannot be read."""

    def digest(descriptor: int) -> str:
        with open(descriptor, "rb", closefd=False) as file:  # a Path cannot refuse links
            return hashlib.file_digest(file, "sha256").hexdigest()

    return _inspect_regular_file(path, digest)


def _inspect_regular_file(path: str, look: Callable[[int], Looked]) -> Looked | None:
    """What a look at an open file says; None of a link and of what is no file. Raises OSError."""
    try:
        # Should it be a pipe by now: not to wait for who writes into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        return look(descriptor) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)
