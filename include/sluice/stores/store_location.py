"""A place on an object store as a pathlib.Path, so that the code that works on a disk works there, too.

Not universal-pathlib: its class for a scheme is one for the whole process, Airflow's DAGs included, and its `rmdir` removes what is
below. Here what a store cannot do fails: whatever needs a path of this machine asks `__fspath__`, which raises TypeError.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path, PosixPath, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NoReturn

from sluice.stores.fences import require_open_fences
from sluice.stores.opening import find_store_kind, open_store, split_store_url
from sluice.stores.s3_client import open_s3_client

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta
    from obstore.store import ObjectStore

_OPEN: dict[tuple[str, str, timedelta | None], ObjectStore] = {}
"""By the address of the store, the root of a URL, and how long an answer may take."""
_PAGE = 1000
_AT_ONCE = 16
"""So many objects are asked for side by side."""
_READ_WHOLE, _RANGE = 4 << 20, 1 << 20
"""Objects of up to so many bytes are read at once; of larger ones at least so many bytes a request."""
_BUCKET = 2
"""How many parts name the bucket: "s3:" and its name."""


@dataclass(frozen=True)
class ObjectStatus:
    """What a store says of an object. tag: its ETag, which another content changes. st_mtime: seconds since 1970."""

    st_size: int
    st_mtime: float
    tag: str

    @property
    def st_mtime_ns(self) -> int:
        """The instant of the last write in nanoseconds; stores say whole seconds."""
        return int(self.st_mtime) * 1_000_000_000


def _read_status(said: ObjectMeta) -> ObjectStatus:
    return ObjectStatus(said["size"], said["last_modified"].timestamp(), said["e_tag"] or "")


class ObjectChanged(OSError):
    """Another has written the object since it was read."""


class _ObjectRanges(io.RawIOBase):
    """An object as a file: each read is a request, so that a buffer belongs before it."""

    def __init__(self, place: StoreLocation, size: int) -> None:
        self._place, self._size, self._at = place, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = max(min(len(buffer), self._size - self._at), 0)
        read = self._place.read_range(self._at, length) if length else b""
        buffer[: len(read)] = read
        self._at += len(read)
        return len(read)


class StoreLocation(PosixPath):
    """An object, or the folder of the objects below it. str() gives the URL, by which Spark and delta-rs know the place, too.

    Errors are those of a disk: FileNotFoundError, FileExistsError, and OSError for a store that does not answer. What writes or removes raises
    LeaseLost besides, where this process may not do so any more (`sluice.stores.fences`). Names, parents and
    comparisons are those of pathlib.
    """

    @classmethod
    def from_url(cls, url: str) -> StoreLocation:
        """The place of a URL. Raises UsageError for one that names no place of a store."""
        return cls("/".join(part for part in split_store_url(url) if part))

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __repr__(self) -> str:
        return f"StoreLocation({str(self)!r})"

    def __fspath__(self) -> NoReturn:
        raise TypeError(f"{self} is on a store; it is no path of this machine.")

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreLocation.from_url, (str(self),)

    def as_posix(self) -> str:
        """The URL."""
        return str(self)

    def absolute(self) -> StoreLocation:
        """The place itself: a URL has no relative form."""
        return self

    def resolve(self, strict: bool = False) -> StoreLocation:
        """The place itself: a store has no links."""
        return self

    def relative_to(self, *other: Any, **kwargs: Any) -> PurePosixPath:  # type: ignore[override]  # it is no place of a store
        """The name of this place below the other. Raises ValueError if it is not below."""
        return PurePosixPath(*super().relative_to(*other).parts)

    @property
    def bucket_url(self) -> str:
        """The store and the bucket, such as "s3://bucket"."""
        return "://".join((self.parts[0].rstrip(":"), self.parts[1]))

    @property
    def object_key(self) -> str:
        """The name of the object in its bucket; "" for the bucket."""
        return "/".join(self.parts[2:])

    @property
    def parent(self) -> StoreLocation:
        """The folder that this is in; the bucket is in itself."""
        return self if len(self.parts) <= _BUCKET else super().parent

    @property
    def parents(self) -> tuple[StoreLocation, ...]:
        """The folders around this, up to the bucket."""
        return tuple(super().parents)[: max(len(self.parts) - _BUCKET, 0)]

    def samefile(self, other_path: Any) -> bool:
        """Whether the other is this place: a store has no links."""
        return bool(self == other_path)

    # ------------------------------------------------------------------------------------------------ objects

    def stat(self, *, follow_symlinks: bool = True) -> ObjectStatus:  # type: ignore[override]  # a store has no inodes and modes
        """What the store says of the object. Raises FileNotFoundError; a folder has no status."""
        import obstore

        with self._raise_as_disk():
            return _read_status(obstore.head(self._store, self.object_key))

    def lstat(self) -> ObjectStatus:  # type: ignore[override]
        """The status: a store has no links."""
        return self.stat()

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        if not self.object_key:
            return False
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_symlink(self) -> bool:
        """False: a store has no links."""
        return False

    def read_bytes(self) -> bytes:
        """The object's content. Raises FileNotFoundError."""
        import obstore

        with self._raise_as_disk():
            return bytes(obstore.get(self._store, self.object_key).bytes())

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """The object's content as text, UTF-8 unless it is said. Raises FileNotFoundError."""
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def write_bytes(self, data: Any) -> int:
        """Give the object this content, in one PUT. Returns its size in bytes."""
        require_open_fences(str(self))
        return self.write_unguarded_bytes(data)

    def write_unguarded_bytes(self, data: Any) -> int:
        """As `write_bytes`, whether or not this process has lost a lease: for what nobody else ever writes."""
        import obstore

        with self._raise_as_disk():
            obstore.put(self._store, self.object_key, data)
        return len(data)

    def open_ranges(self, at_least: int = _RANGE) -> BinaryIO:
        """The object's content, asked for as it is read: the ranges that the reader wants. Raises FileNotFoundError.

        at_least: how many bytes a request asks for, more for who reads it from one end to the other.
        """
        if (size := self.stat().st_size) <= _READ_WHOLE:
            return io.BytesIO(self.read_bytes())
        return io.BufferedReader(_ObjectRanges(self, size), at_least)

    def read_range(self, start: int, length: int) -> bytes:
        """So many bytes of the object from a place on, fewer at its end. Raises FileNotFoundError."""
        import obstore

        with self._raise_as_disk():
            return bytes(obstore.get_range(self._store, self.object_key, start=start, length=length))

    def upload_file(self, file: Path) -> None:
        """Give the object the content of a file of this machine, of any size. Nothing of it is there before all is."""
        with file.open("rb") as content:
            self.upload_content(content)

    def upload_content(self, content: IO[bytes]) -> None:
        """Give the object what is left to read of an open file, of any size. Nothing of it is there before all is."""
        import obstore

        require_open_fences(str(self))
        with self._raise_as_disk():
            obstore.put(self._store, self.object_key, content)

    def write_new_bytes(self, data: bytes) -> None:
        """Make the object with this content, in one conditional PUT. Raises FileExistsError if it is there."""
        import obstore

        require_open_fences(str(self))
        with self._raise_as_disk():
            obstore.put(self._store, self.object_key, data, mode="create")

    def read_with_tag(self, patience: timedelta | None = None) -> tuple[bytes, str, float]:
        """The object's content, its ETag, and when it was written, in seconds since 1970. patience: as of `open_store`. Raises FileNotFoundError."""
        import obstore

        with self._raise_as_disk():
            found = obstore.get(self._open_store(patience), self.object_key)
            return bytes(found.bytes()), found.meta["e_tag"] or "", found.meta["last_modified"].timestamp()

    def replace_tagged(self, data: bytes, tag: str | None, patience: timedelta | None = None) -> str:
        """Give the object this content if its ETag is still this one; None: if there is no such object. Returns the new ETag.

        patience: as of `open_store`. Raises ObjectChanged if it is not. Then it may hold these very bytes, put there by an attempt whose answer
        was lost.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

        with self._raise_as_disk():
            try:
                store = self._open_store(patience)
                done = obstore.put(store, self.object_key, data, mode="create" if tag is None else {"e_tag": tag})
            except (AlreadyExistsError, PreconditionError, NotFoundError, FileNotFoundError) as error:
                raise ObjectChanged(errno.EBUSY, "The object is not what it was", str(self)) from error
        return done["e_tag"] or ""

    def write_text(self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> int:
        """Give the object this text, UTF-8 unless it is said, in one PUT. Returns its size in bytes."""
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Make an empty object, if there is none. Raises FileExistsError if there is one and that is not all right."""
        try:
            self.write_new_bytes(b"")
        except FileExistsError:
            if not exist_ok:
                raise

    def open(  # type: ignore[override]
        self, mode: str = "r", *args: Any, encoding: str | None = None, **kwargs: Any
    ) -> IO[Any]:
        """The object's content, read as a whole. Raises FileNotFoundError, and ValueError for a mode that writes."""
        if mode not in ("r", "rb"):
            raise ValueError(f"{self} is on a store, and is written whole: not with mode '{mode}'.")
        content = io.BytesIO(self.read_bytes())
        return content if mode == "rb" else io.TextIOWrapper(content, encoding or "utf-8")

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object. Raises FileNotFoundError if it is not there, unless that is all right."""
        import obstore

        require_open_fences(str(self))
        if not missing_ok:
            self.stat()
        with self._raise_as_disk():
            obstore.delete(self._store, self.object_key)

    # ------------------------------------------------------------------------------------------------ folders

    def rename(self, target: Any) -> StoreLocation:
        """Move the object to another place of its store, as a copy that is there whole, and a removal. Raises FileNotFoundError."""
        if not isinstance(target, StoreLocation):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(self))
        self.copy_to(target)
        self.unlink()
        return target

    def copy_to(self, target: StoreLocation) -> None:
        """Give another object of the same bucket the content of this one; its own is replaced. Raises FileNotFoundError."""
        import obstore

        if target.bucket_url != self.bucket_url:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(self))
        require_open_fences(str(target))
        with self._raise_as_disk():
            obstore.copy(self._store, self.object_key, target.object_key)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is an object of this name, or one below it."""
        return self.is_file() or self.is_dir()

    def is_dir(self) -> bool:
        """Whether there is an object below."""
        try:
            return any(True for _ in self._list_below())
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return True  # there is one, whose name is no path

    def iterdir(self) -> Generator[StoreLocation, None, None]:
        """The objects and folders right below. Raises FileNotFoundError if nothing is there."""
        found = self._list_children()
        if not found:
            raise self._error(errno.ENOENT)
        return (one for one in found)

    def glob(self, pattern: str, **kwargs: Any) -> Generator[StoreLocation, None, None]:
        """What is below and matches: a name with * for each level, or ** for any. Nothing if nothing is there."""
        first, _, rest = pattern.partition("/")
        if first == "**":
            yield from self.rglob(rest)
            return
        if not rest and not set(first) & set("*?["):  # a name: there is nothing to be listed
            yield from (one for one in [self / first] if one.exists())
            return
        found = self._list_level()
        names = [*found["common_prefixes"], *(() if rest else (one["path"] for one in found["objects"]))]
        for child in (StoreLocation(f"{self.bucket_url}/{one}") for one in names if PurePosixPath(one).match(first)):
            if rest:
                yield from child.glob(rest)
            else:
                yield child

    def rglob(self, pattern: str, **kwargs: Any) -> Generator[StoreLocation, None, None]:
        """The objects below, at any depth, whose names match. Folders are not among them: a store has none."""
        return (one for one, _, _ in self.list_objects() if one.match(pattern))

    def list_objects(self) -> Iterator[tuple[StoreLocation, int, datetime]]:
        """The objects below, at any depth, with their sizes in bytes and the instants of their last write. Asked for in pages."""
        return ((place, one["size"], one["last_modified"]) for place, one in self._list_below())

    def list_named_objects(self, after: str = "") -> Iterator[tuple[str, ObjectStatus]]:
        """The objects below, at any depth, in the order of their keys: the name below this place, and what `stat` says. Asked for in pages.

        after: only those whose name comes after this one, which the store leaves out by itself. On S3 whatever others may have called them:
        obstore lists nothing of a folder with one name that is no path, such as "a//b".
        """
        if not self._is_on_s3:
            listed = ((str(place.relative_to(self)), _read_status(one)) for place, one in self._list_below(after))
            yield from listed
            return
        prefix = f"{self.object_key}/"
        for one in self._list_by_boto3(prefix, after):
            name = str(one["Key"])[len(prefix) :]
            if one["Size"] or not one["Key"].endswith("/"):  # and no mark of Hadoop's for a folder
                yield name, ObjectStatus(one["Size"], one["LastModified"].timestamp(), one["ETag"])

    def find_named_objects(self, names: Iterable[str]) -> Iterator[tuple[str, ObjectStatus | None]]:
        """What `stat` says of objects below, by their names below this place, whatever others may have called them. None: there is none."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            yield from threads.map(lambda name: (name, self._find_named_object(name)), names)

    def _find_named_object(self, name: str) -> ObjectStatus | None:
        from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # it has no types

        if not self._is_on_s3:
            try:
                return (self / name).stat()
            except FileNotFoundError:
                return None
        with self._raise_boto3_as_disk():
            try:
                found = open_s3_client().head_object(Bucket=self._bucket, Key=f"{self.object_key}/{name}")
            except ClientError as error:
                if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                    return None
                raise
        return ObjectStatus(found["ContentLength"], found["LastModified"].timestamp(), found["ETag"])

    def list_tags(self, after: str = "") -> Iterator[tuple[StoreLocation, str]]:
        """The objects below, at any depth, with their ETags. after: only those whose name comes after this one."""
        return ((place, one["e_tag"] or "") for place, one in self._list_below(after))

    def walk_below(self) -> Iterator[tuple[StoreLocation, list[str], list[str]]]:
        """Each folder from here on, before those in it, with the names of its folders and files. A name taken from the folders is not entered."""
        files: dict[StoreLocation, list[str]] = {}
        folders: dict[StoreLocation, dict[str, None]] = {}
        for place, _ in self._list_below():
            files.setdefault(place.parent, []).append(place.name)
            for folder in place.parents:
                if folder == self:
                    break
                folders.setdefault(folder.parent, {})[folder.name] = None
        waiting = [self] if files else []
        while waiting:
            folder = waiting.pop()
            names = list(folders.get(folder, ()))
            yield folder, names, files.get(folder, [])
            waiting += [folder / name for name in reversed(names)]

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders. Raises FileExistsError if something is below, unless that is all right."""
        if not exist_ok and self.exists():
            raise self._error(errno.EEXIST)

    def rmdir(self) -> None:
        """Do nothing. Raises OSError if an object is below, as a disk does."""
        if self.is_dir():
            raise self._error(errno.ENOTEMPTY)

    def remove_below(self) -> None:
        """Remove all objects below, and Hadoop's marks of folders: a table's log that only a mark is left of is one for Delta."""
        import obstore

        require_open_fences(str(self))
        with self._raise_as_disk():
            for page in self._list_pages():
                obstore.delete(self._store, [one["path"] for one in page])
        self._remove_folder_marks()

    def _remove_folder_marks(self) -> None:
        """Remove the empty objects with a slash at their ends, here and below. obstore neither lists nor removes them."""
        if not self._is_on_s3:
            return
        listed = self._list_by_boto3(f"{self.object_key}/")
        marks = ({"Key": one["Key"]} for one in listed if one["Key"].endswith("/") and not one["Size"])
        while together := list(islice(marks, _PAGE)):
            with self._raise_boto3_as_disk():
                open_s3_client().delete_objects(Bucket=self._bucket, Delete={"Objects": together, "Quiet": True})

    # ------------------------------------------------------------------------------------------------ the store

    @property
    def _store(self) -> ObjectStore:
        return self._open_store()

    def _open_store(self, patience: timedelta | None = None) -> ObjectStore:
        known = (os.environ.get("AWS_ENDPOINT_URL", ""), self.bucket_url, patience)
        if known not in _OPEN:
            _OPEN[known] = open_store(self.bucket_url, patience=patience)
        return _OPEN[known]

    def _list_below(self, after: str = "") -> Iterator[tuple[StoreLocation, ObjectMeta]]:
        root = self.bucket_url
        for page in self._list_pages(after):
            for one in page:
                place = StoreLocation(f"{root}/{one['path']}")
                if one["size"] or place.is_file():  # and no mark of Hadoop's for a folder
                    yield place, one

    def _list_pages(self, after: str = "") -> Iterator[Sequence[Any]]:
        import obstore

        with self._raise_as_disk():
            offset = f"{self.object_key}/{after}" if after else None
            yield from obstore.list(self._store, self.object_key or None, offset=offset, chunk_size=_PAGE)

    def list_files(self) -> list[tuple[StoreLocation, int]]:
        """The objects right below, with their sizes in bytes."""
        return [(StoreLocation(f"{self.bucket_url}/{one['path']}"), one["size"]) for one in self._list_level()["objects"]]

    def _list_children(self) -> list[StoreLocation]:
        found = self._list_level()
        names = (*found["common_prefixes"], *(one["path"] for one in found["objects"]))
        return [StoreLocation(f"{self.bucket_url}/{one}") for one in names]

    def _list_level(self) -> ListResult[Sequence[ObjectMeta]]:
        import obstore

        with self._raise_as_disk():
            found = obstore.list_with_delimiter(self._store, self.object_key or None)
        # Hadoop's mark of this very folder is among them.
        found["objects"] = [one for one in found["objects"] if one["path"] != self.object_key]
        return found

    @property
    def _is_on_s3(self) -> bool:
        return find_store_kind(self.bucket_url).scheme == "s3"

    @property
    def _bucket(self) -> str:
        return self.bucket_url.partition("://")[2]

    def _list_by_boto3(self, prefix: str, after: str = "") -> Iterator[Any]:
        asked = {"Bucket": self._bucket, "Prefix": prefix, **({"StartAfter": f"{prefix}{after}"} if after else {})}
        with self._raise_boto3_as_disk():
            for page in open_s3_client().get_paginator("list_objects_v2").paginate(**asked):
                yield from page.get("Contents", ())

    @contextmanager
    def _raise_boto3_as_disk(self) -> Iterator[None]:
        """As `_raise_as_disk`, of the client that is used where obstore cannot ask."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise OSError(errno.EIO, f"The store gave no answer that can be used ({type(error).__name__})", str(self)) from error

    @contextmanager
    def _raise_as_disk(self) -> Iterator[None]:
        """Errors of the store in the block are raised as a disk's would be."""
        from obstore import exceptions

        try:
            yield
        except (FileNotFoundError, exceptions.NotFoundError):
            raise self._error(errno.ENOENT) from None
        except exceptions.AlreadyExistsError:
            raise self._error(errno.EEXIST) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise OSError(errno.EACCES, "The store refuses this user", str(self)) from error
        except exceptions.InvalidPathError as error:
            why = "An object here or below has a name that is no path, such as one with '//': rename or remove it"
            raise OSError(errno.EINVAL, why, str(self)) from error
        except exceptions.BaseError as error:
            raise OSError(errno.EIO, f"The store gave no answer that can be used ({type(error).__name__})", str(self)) from error

    def _error(self, number: int) -> OSError:
        return OSError(number, os.strerror(number), str(self))
