"""What lies in a source's landing folder now, on a disk or on a store. Others write there, so nothing is changed and no link is followed.

Ignored are names that start with a dot or an underscore (files and folders), names with an ending for files that are still being written,
the ready markers themselves, and whatever is not a file, a folder or a link. For a single file it tells whether it opens, the hash of its
content, and whether it is still being written.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from sluice.declare.ingest.source import Source
from sluice.errors import UsageError
from sluice.file_events import DELIVERED
from sluice.locations import Location, is_on_disk, locate
from sluice.settings import Settings
from sluice.stores.opening import is_store_url
from sluice.stores.store_location import ObjectStatus, StoreLocation

PARTIAL = (".tmp", ".part", ".partial", ".crdownload", ".filepart", ".swp", "~", "._copying_", ".inprogress")
"""The endings, in any letter case, of names of files that are still being written."""
AT_REST = 15 * 60
"""After this many seconds without a change, a file counts as finished."""

_NAME = "{name}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STORE = 0
"""The device of what is on a store."""
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_RANGE = 8 << 20
"""How many bytes of an object a request asks for that is read to its end."""
YOUNG, LOOK_AGAIN = 1.0, 0.5
"""Seconds. A file modified less than YOUNG ago is looked at again after LOOK_AGAIN. If it changes, it is left for the next run."""
Looked = TypeVar("Looked")


class FileState(NamedTuple):
    """By what a file is known to be unchanged, without reading it. modified: microseconds since 1970.

    etag: of an object on a store, which says when it was written to the second only; None if it is not known, as on a disk.
    """

    size: int | None
    modified: int | None
    etag: str | None = None

    @classmethod
    def of_delivery(cls, size: int | None, modified_at: datetime | None, etag: str | None) -> FileState:
        """The state that the deliveries table tells. modified_at: in UTC."""
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
    """A file or a link in a landing folder as it is now, or something that cannot be looked at, such as a folder that cannot be listed.

    file: its name relative to the source's folder, as `escape_file_name` writes it. path: where it is. modified: its modification time in
    microseconds since 1970. event: what a discovery makes of it. problem: why it cannot be looked at, or None. sha256: the hash of its content,
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
        """By what it is known to be unchanged."""
        return FileState(self.size, self.modified, self.etag)

    @property
    def modified_at(self) -> datetime:
        """Its modification time to the microsecond, in UTC."""
        return _EPOCH + timedelta(microseconds=self.modified)


def read_file_state(path: str | Location) -> FileState:
    """Returns a file's state as it is now; for a link, the link's own. Raises FileNotFoundError."""
    found = locate(path).lstat()
    return FileState(found.st_size, found.st_mtime_ns // 1000, found.tag or None if isinstance(found, ObjectStatus) else None)


def find_unchanged_files(source: Source, landing: Location, rows: Iterable[Mapping[str, Any]]) -> set[int]:
    """Returns the numbers of the deliveries whose file is unchanged since discovery, by size and time. Reads no content."""

    def is_unchanged(row: Mapping[str, Any]) -> bool:
        try:
            found = read_file_state(resolve_landed_path(landing / source.path, row["file"]))
        except OSError:
            return False
        return found.is_same(FileState.of_delivery(row["size"], row["modified_at"], row.get("etag")))

    return {int(row["delivery"]) for row in rows if is_unchanged(row)}


def locate_source_folder(source: Source, settings: Settings, landing: Location) -> Location:
    """Returns a source's landing folder. landing: the pipeline's."""
    return landing / source.path


def count_no_records(files: Sequence[str]) -> int | None:
    """Returns 0 without files, otherwise None: nobody knows how many records files have before they are read."""
    return None if files else 0


def warn_of_nothing(source: Source, deliveries: str, outcomes: str) -> list[str]:
    """Returns no warning: files stay until somebody removes them, so nothing is about to be lost."""
    return []


def escape_file_name(file: str) -> str:
    r"""Returns a file's name as the tables keep it: a byte that is not UTF-8 is written as \xff."""
    if file.isascii():
        return file
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def resolve_landed_path(folder: Location, file: str) -> Location:
    """Returns the path of the file with this name in the tables."""
    path = folder / file
    if "\\x" not in file or not is_on_disk(folder) or os.path.lexists(path):
        return path
    raw = re.sub(_ESCAPED.pattern.encode(), lambda found: bytes([int(found.group(1), 16)]), file.encode())
    return folder / os.fsdecode(raw)


class NoLandingFolder(UsageError):
    """A source's landing folder does not exist."""


def require_landing_folder(source: Source, landing: Location, there: Location) -> None:
    """Raises NoLandingFolder if what must be there for the source is not: its folder, or on a store anything that the pipeline has landed."""
    if not there.is_dir():
        raise NoLandingFolder(
            f"Source '{source.name}' has no landing folder {landing / source.path}. "
            f"Create it and put files there, or run: sluice land {landing.name}"
        )


def find_landing_folder(source: Source, landing: Location) -> Location:
    """Returns the source's folder. landing: the pipeline's. Raises NoLandingFolder, and UsageError if a link leads out of the landing folder.

    A store has no folders, and so none that is missing.
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


def list_ready_files(source: Source, landing: Location) -> Iterator[LandedFile]:
    """Returns the files of a source that exist and are ready. landing: the pipeline's landing folder. Raises what `find_landing_folder` raises.

    What cannot be looked at is among them, with the problem, and does not hold up the others.
    """
    folder = find_landing_folder(source, landing)
    yield from (
        _list_ready_objects(source, folder) if isinstance(folder, StoreLocation) else _list_ready_entries(source, str(folder))
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
                raise UsageError(f"The landing folder {root} cannot be listed: {error.strerror}.") from None
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


def _list_ready_objects(source: Source, folder: StoreLocation) -> Iterator[LandedFile]:
    """Returns the files of a source on a store, in the order of their names. Raises UsageError if they cannot be listed."""
    wanted, ready = _build_name_filter(source), _build_readiness_check(source)
    try:
        for beside in _group_by_folder(folder, source.ready_marker is not None):
            names = {file.rpartition("/")[2] for file, _ in beside} if source.ready_marker else set()
            for file, found in beside:
                name, parts = file.rpartition("/")[2], file.split("/")
                left_out = any(part.startswith((".", "_")) for part in parts) or name.lower().endswith(PARTIAL)
                if not left_out and wanted(name) and ready(name, names):
                    problem = None if all(parts) else "its name has an empty part, as in '//', and is no path"
                    modified, etag = found.st_mtime_ns // 1000, found.tag or None
                    yield LandedFile(
                        escape_file_name(file), f"{folder}/{file}", found.st_size, modified, problem=problem, etag=etag
                    )
    except OSError as error:
        raise UsageError(f"The landing folder {folder} cannot be listed: {error.strerror}.") from None


def _group_by_folder(folder: StoreLocation, whole: bool) -> Iterator[list[tuple[str, ObjectStatus]]]:
    """Returns the objects below: those of a folder together if `whole`, else one by one, however many there are."""
    if not whole:
        yield from ([one] for one in folder.list_named_objects())
        return
    by_folder: dict[str, list[tuple[str, ObjectStatus]]] = {}
    for name, found in folder.list_named_objects():
        by_folder.setdefault(name.rpartition("/")[0], []).append((name, found))
    yield from by_folder.values()


def _scan_folder(root: str, below: str) -> list[os.DirEntry[str]]:
    """Lists a folder; empty if it is gone. Raises OSError if it cannot be listed."""
    try:
        with os.scandir(f"{root}/{below}") as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder_link(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a link to a folder, or a link whose target cannot be looked at, such as itself. Either becomes one delivery.

    Whatever is in there must not be passed over in silence.
    """
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:
        return True


def _is_file_or_link(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_file(follow_symlinks=False)


def _landed_file_with_problem(path: str, file: str, problem: str) -> LandedFile:
    """Returns an entry that cannot be looked at, with its size and time if at least these can be known."""
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
    return {file for file in young if not _is_in_state(file.path, file.state)}


def _is_in_state(path: str, state: FileState) -> bool:
    try:
        return read_file_state(path).is_same(state)
    except OSError:
        return False


def find_folder_device(folder: Location) -> int | None:
    """Returns the device that a folder is on, or None if it does not exist. On a store each folder exists, on the device _STORE."""
    if not is_on_disk(folder):
        return _STORE
    try:
        return folder.stat().st_dev
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_openable_file(path: str) -> bool:
    """Whether the first byte of a file can be read."""
    place = locate(path)
    try:
        if isinstance(place, StoreLocation):
            return place.stat().st_size == 0 or len(place.read_range(0, 1)) == 1
        _inspect_regular_file(path, lambda descriptor: os.read(descriptor, 1))
    except OSError:
        return False
    return True


def hash_regular_file(path: str) -> str | None:
    """Returns a file's SHA-256. None for a link, whose target is not ours, and for what is not a file. Raises OSError if it cannot be read."""
    place = locate(path)
    if isinstance(place, StoreLocation):
        with place.open_ranges(_RANGE) as content:
            return hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]  # a BinaryIO will do

    def digest(descriptor: int) -> str:
        with open(descriptor, "rb", closefd=False) as file:  # a Location cannot refuse links
            return hashlib.file_digest(file, "sha256").hexdigest()

    return _inspect_regular_file(path, digest)


def _inspect_regular_file(path: str, look: Callable[[int], Looked]) -> Looked | None:
    """Returns what a function finds in an open file. None for a link and for what is not a file. Raises OSError."""
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
