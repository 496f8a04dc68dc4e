"""A file of a landing folder, on a disk or on a store: its name in the ledger, the state that shows whether it changed, and its content.

Others write there, so nothing is changed and no link is followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from sluice.declare.ingest.source import Source
from sluice.locations import Location, is_on_disk, locate
from sluice.record_states import DELIVERED
from sluice.stores.opening import is_store_url
from sluice.stores.store_location import StoreLocation
from sluice.stores.store_object import ObjectStatus

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AMBIGUOUS = re.compile(r"\\x(?=5cx|[89a-f][0-9a-f])")
"""What stands in a name as it is and looks like an escape."""
_ESCAPED = re.compile(rb"\\x(5cx|[89a-f][0-9a-f])")
_RANGE = 8 << 20
"""How many bytes a request asks for when an object is read to its end."""
Looked = TypeVar("Looked")


class FileState(NamedTuple):
    """The state that shows, without reading a file, whether it changed. modified: microseconds since 1970.

    etag: of an object on a store, whose time has whole seconds only; None if unknown, as on a disk.
    """

    size: int | None
    modified: int | None
    etag: str | None = None

    @classmethod
    def of_delivery(cls, size: int | None, modified_at: datetime | None, etag: str | None) -> FileState:
        """The state in the deliveries table. modified_at: in UTC."""
        return cls(size, (modified_at - _EPOCH) // timedelta(microseconds=1) if modified_at else None, etag)

    @property
    def modified_at(self) -> datetime | None:
        """The modification time to the microsecond, in UTC."""
        return None if self.modified is None else _EPOCH + timedelta(microseconds=self.modified)

    def is_same(self, other: FileState) -> bool:
        """Whether neither size nor time nor, if both know it, the ETag differs."""
        same_tag = self.etag is None or other.etag is None or self.etag == other.etag
        return same_tag and (self.size, self.modified) == (other.size, other.modified)


class LandedFile(NamedTuple):
    """A file or a link in a landing folder as it is now, or an unreadable entry, such as a folder that cannot be listed.

    file: its name relative to the source's folder, as `escape_file_name` writes it on a disk. path: its location. modified: its modification time in
    microseconds since 1970. event: the one that a discovery records. problem: why it is unreadable, or None. sha256: the hash of its content,
    if it was read for that. etag: as in FileState.
    """

    file: str
    path: str
    size: int
    modified: int
    event: str = DELIVERED
    problem: str | None = None
    sha256: str | None = None
    etag: str | None = None

    @property
    def state(self) -> FileState:
        """The state that shows whether it changed."""
        return FileState(self.size, self.modified, self.etag)

    @property
    def modified_at(self) -> datetime:
        """Its modification time to the microsecond, in UTC."""
        return _EPOCH + timedelta(microseconds=self.modified)


def read_file_state(path: str | Location) -> FileState:
    """Returns a file's current state; for a link, the link's own. Raises FileNotFoundError."""
    found = locate(path).lstat()
    return FileState(found.st_size, found.st_mtime_ns // 1000, found.tag or None if isinstance(found, ObjectStatus) else None)


def is_file_in_state(path: str | Location, state: FileState) -> bool:
    """Whether a file is still the one that was once seen in this state. Reads no content. Raises OSError, FileNotFoundError if it is gone."""
    return read_file_state(path).is_same(state)


def is_file_surely_in_state(path: str | Location, state: FileState) -> bool:
    """Does what `is_file_in_state` does, and takes a file that is gone or cannot be looked at for another one."""
    try:
        return is_file_in_state(path, state)
    except OSError:
        return False


def find_unchanged_files(source: Source, landing: Location, rows: Iterable[Mapping[str, Any]]) -> set[int]:
    """Returns the numbers of the deliveries whose file is surely as it was discovered."""

    def is_unchanged(row: Mapping[str, Any]) -> bool:
        discovered = FileState.of_delivery(row["size"], row["modified_at"], row.get("etag"))
        return is_file_surely_in_state(resolve_landed_path(landing / source.path, row["file"]), discovered)

    return {int(row["delivery"]) for row in rows if is_unchanged(row)}


def escape_file_name(file: str) -> str:
    r"""Returns the name of a file on a disk as the tables keep it: a byte that is not UTF-8 is written as \xff.

    No two files have the same name there: a \x that stands in a name and looks like that is written as \x5cx.
    """
    told = _AMBIGUOUS.sub(r"\\x5cx", file) if "\\x" in file else file
    return told if told.isascii() else os.fsencode(told).decode("utf-8", "backslashreplace")


def unescape_file_name(file: str) -> str:
    """Returns the name of a file on a disk, from what `escape_file_name` wrote."""
    if "\\x" not in file:
        return file
    return os.fsdecode(_ESCAPED.sub(lambda found: _unescape_bytes(found[1]), os.fsencode(file)))


def _unescape_bytes(escaped: bytes) -> bytes:
    return b"\\x" if escaped == b"5cx" else bytes([int(escaped, 16)])


def resolve_landed_path(folder: Location, file: str, known: Container[str] = ()) -> Location:
    r"""Returns the path of the file with this name in the tables. known: further names there.

    An older ledger may have a name with `\\x` in it as it is, unescaped. Such a name is taken as it is only if no known name is its escaped form.
    If a file of bytes is gone and one lands whose name looks like its escaped name, the two cannot be told apart.
    """
    path = folder / file
    if not is_on_disk(folder) or (unescaped := unescape_file_name(file)) == file:
        return path
    is_older = not os.path.lexists(folder / unescaped) and os.path.lexists(path) and escape_file_name(file) not in known
    return path if is_older else folder / unescaped


def find_known_name(file: str, path: str, known: Container[str]) -> str:
    r"""Returns the name by which the ledger knows a file: in an older one, a \x that looks like an escape may stand as it is.

    file, path: its name now, and where it is. known: the names in the ledger.
    """
    if "\\x5cx" not in file or is_store_url(path) or file in known:
        return file
    name = unescape_file_name(file)
    # If there is also the file that the older name means now, nobody can tell which one it was.
    meant = path.removesuffix(name) + unescape_file_name(name)
    return name if name in known and not os.path.lexists(meant) else file


def is_openable_file(path: str) -> bool:
    """Whether the first byte of a file can be read."""
    location = locate(path)
    try:
        if isinstance(location, StoreLocation):
            return location.stat().st_size == 0 or len(location.read_range(0, 1)) == 1
        _inspect_regular_file(path, lambda descriptor: os.read(descriptor, 1))
    except OSError:
        return False
    return True


def hash_regular_file(path: str) -> str | None:
    """Returns a file's SHA-256; None for a link, whose target is not ours, and for anything but a file. Raises OSError if it cannot be read."""
    location = locate(path)
    if isinstance(location, StoreLocation):
        with location.open_ranges(_RANGE) as content:
            return hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]  # a BinaryIO will do

    def digest(descriptor: int) -> str:
        with open(descriptor, "rb", closefd=False) as file:  # a Location cannot refuse links
            return hashlib.file_digest(file, "sha256").hexdigest()

    return _inspect_regular_file(path, digest)


def _inspect_regular_file(path: str, look: Callable[[int], Looked]) -> Looked | None:
    """Returns what a function finds in an open file; None for a link and for anything but a file. Raises OSError."""
    try:
        # If it is a pipe by now, do not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        return look(descriptor) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)
