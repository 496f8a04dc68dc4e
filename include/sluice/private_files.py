"""Files and folders that nobody else may read. Checks the folder, owner and mode of a secret's file; makes and checks folders of mode 0700."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sluice.errors import UsageError
from sluice.locations import Location, is_on_disk


def read_secret_file(path: Path) -> bytes:
    """The content of a secret's file. Follows links within its folder, as Kubernetes makes them.

    Raises FileNotFoundError; and UsageError, with the remedy, if neither this user nor root owns the file or its folder, if others may
    read the file or write into the folder, or if a link leaves the folder.
    """
    folder = Path(os.path.realpath(path.parent))
    _check_secret_folder(path.parent, folder.stat())
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(folder):
        raise UsageError(
            f"Secret file {path} is a link to a file outside of its folder. Put the file itself there: "
            f"install -m 600 {real} {path.parent / f'{path.name}.new'} && mv {path.parent / f'{path.name}.new'} {path}"
        )
    # Checks the opened file, so that the file checked is the file read.
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        _check_secret_file(path, os.fstat(descriptor))
        return file.read()


def find_secret_file_problem(path: Path) -> str | None:
    """Why a secret's file is refused; None if it is not."""
    try:
        read_secret_file(path)
    except (UsageError, OSError) as error:
        return str(error) if isinstance(error, UsageError) else f"Secret file {path}: {error.strerror}"
    return None


def _check_secret_folder(folder: Path, status: os.stat_result) -> None:
    _check_secret_owner(f"The folder of secrets, {folder},", folder, status)
    # With the sticky bit, which Kubernetes sets, nobody can replace another user's file.
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise UsageError(f"Others may put files into the folder of secrets, {folder}. Run: chmod 700 {folder}")


def _check_secret_file(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"Secret file {path} is no regular file.")
    _check_secret_owner(f"Secret file {path}", path, status)
    if status.st_mode & 0o077:
        raise UsageError(f"Secret file {path} can be read by others. Run: chmod 600 {path}")


def _check_secret_owner(what: str, path: Path, status: os.stat_result) -> None:
    mine = os.geteuid()
    if status.st_uid not in (0, mine):
        raise UsageError(
            f"{what} belongs to user {status.st_uid}, who is neither root nor the one who runs this ({mine}) and may change it. "
            f"Run: chown {mine} {path}"
        )


def make_private_folder(folder: Location) -> None:
    """Make a folder of mode 0700. If it exists and belongs to this user, its mode is changed to that. A store has no folders and no modes."""
    if not is_on_disk(folder):
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        folder.chmod(0o700)


def require_private_folder(folder: Location, what: str) -> None:
    """Makes a folder of mode 0700. Raises UsageError if others can enter an existing one. what: what it is called there: "The vault"."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_mode & 0o077:
        raise UsageError(f"{what}, {folder}, is open to others. Run: chmod 700 {folder}")
