"""Sluice's small files: each is written whole or not at all, and is on the disk when the call returns; a damaged one is named with its remedy.

The content goes into a temporary file of the same folder, `.<name>.<random>.tmp`, which is flushed and
renamed to the file; then the folder is flushed. On a store it is one PUT. A killed
process leaves the old file or the new one, and perhaps the temporary file,
which no reader mistakes for the real one: its name begins with a dot and ends with `.tmp`. A write an hour later removes it.

What a run wrote by other means is flushed whole in the end: Spark, delta-rs and Python leave it to the operating system when their files
get to the disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from sluice.errors import UsageError
from sluice.locations import Location, is_on_disk
from sluice.root_folders import ROOTS_WRITTEN_BY_RUNS
from sluice.stores.store_location import StoreLocation

if TYPE_CHECKING:
    from sluice.settings import Settings

PRIVATE = 0o600
"""The mode of a file that only its owner may read."""
_BY_UMASK = 0o666
_LONGEST_WRITE = 3600
"""Age in seconds after which no other process can still be writing a temporary file."""
_NO_SUCH_CALL = (errno.EINVAL, errno.ENOTSUP)
"""The errors of file systems that cannot flush a folder, since they keep names in another way."""
Said = TypeVar("Said")


def write_file_durably(
    path: Location, content: bytes, mode: int = _BY_UMASK, overwrite: bool = True, guarded: bool = True
) -> Location:
    """Give the file this content. Its folder must be there. Returns the path.

    mode: of the file; without it the umask decides. overwrite: if False and the file exists, it stays and FileExistsError is raised.
    Raises OSError; the file is then as it was, unless the flush of the folder failed. On a store, LeaseLost if this process may not write there
    any more; guarded: False for a file that nobody else ever writes, which needs no lease.
    """
    if isinstance(path, StoreLocation):
        if not overwrite:
            path.write_new_bytes(content)
        elif guarded:
            path.write_bytes(content)
        else:
            path.write_unguarded_bytes(content)
        return path
    _remove_unfinished_writes(path, before=time.time() - _LONGEST_WRITE)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            partial.replace(path)
        else:
            os.link(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    _flush_folder(path.parent)
    return path


def write_text_durably(path: Location, text: str, mode: int = _BY_UMASK) -> Location:
    """Give the file this text, in UTF-8. Otherwise as `write_file_durably`."""
    return write_file_durably(path, text.encode(), mode)


def write_json_durably(
    path: Location, value: Any, mode: int = _BY_UMASK, indent: int | None = None, sort_keys: bool = False
) -> Location:
    """Give the file this value as JSON. Otherwise as `write_file_durably`."""
    return write_text_durably(path, json.dumps(value, indent=indent, sort_keys=sort_keys), mode)


def move_file_durably(written: Location, target: Location) -> None:
    """Replace a file by one written elsewhere on the same file system, whose content is flushed to the disk first."""
    flush_file(written)
    written.replace(target)
    _flush_folder(target.parent)


def remove_file_durably(path: Location) -> None:
    """Remove a file if it exists, and the temporary files that killed processes left of it."""
    if not is_on_disk(path):
        path.unlink(missing_ok=True)
        return
    if not path.parent.is_dir():
        return
    path.unlink(missing_ok=True)
    _remove_unfinished_writes(path)
    _flush_folder(path.parent)


class KeptFileDamaged(UsageError):
    """One of Sluice's small files is truncated, or something else wrote it. Exit code 2: somebody has to repair it."""


def load_kept_object(path: Location, what: str, remedy: str) -> dict[str, Any]:
    """The JSON object in a file."""
    return load_kept_json(path, what, remedy, _require_json_object)


def load_kept_json(path: Location, what: str, remedy: str, build: Callable[[Any], Said]) -> Said:
    """The content of a file, as `build` makes it from the parsed JSON. Raises KeptFileDamaged, and FileNotFoundError if it is missing.

    what: what the file says, in the singular: "the lake's format". remedy: whole sentences. The file's content is never quoted.
    """
    content = path.read_bytes()
    try:
        return build(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KeptFileDamaged(f"{path} is damaged: in its {len(content):,} bytes is not {what}. {remedy}") from None


def _require_json_object(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise TypeError
    return said


def flush_file(path: Location) -> None:
    """Flush to the disk the content of a file that was written by other means."""
    if is_on_disk(path):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def flush_file_and_name(path: Location, below: Location | None = None) -> None:
    """Flush to the disk the content and the name of a file that was written by other means.

    below: a folder; the names of the folders between it and the file, which may be new, are flushed too.
    """
    flush_file(path)
    _flush_folder(path.parent)
    for folder in path.parent.parents:
        if below is None or not folder.is_relative_to(below):
            break
        _flush_folder(folder)


def _remove_unfinished_writes(path: Location, before: float = math.inf) -> None:
    unfinished = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]+\.tmp")  # not those of a file whose name only begins like it
    for left in path.parent.iterdir():
        if unfinished.fullmatch(left.name):
            with contextlib.suppress(FileNotFoundError):  # another process has just finished it
                if left.stat().st_mtime < before:
                    left.unlink()


def _flush_folder(folder: Location) -> None:
    if not is_on_disk(folder):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise
    finally:
        os.close(descriptor)


def flush_run_output(settings: Settings) -> None:
    """Flushes everything that a run may have written, so that what is reported as done survives a power failure. Raises OSError."""
    written = settings.locate_roots(ROOTS_WRITTEN_BY_RUNS).values()
    flush_file_systems(folder for folder in written if is_on_disk(folder) and folder.is_dir())


def flush_file_systems(folders: Iterable[Location]) -> None:
    """Flushes the file systems of these folders, each once. Raises OSError if that fails."""
    one_of_each = {folder.stat().st_dev: folder for folder in folders}
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # only Linux can flush one file system
        os.sync()
        return
    for folder in one_of_each.values():
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if syncfs(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(folder))
        finally:
            os.close(descriptor)
