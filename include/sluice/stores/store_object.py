"""One object of a store, asked about, read and written by the interface of pathlib for a file. An object is whole, or not there."""

from __future__ import annotations

import errno
import io
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Self

from sluice.stores.fences import require_open_fences
from sluice.stores.opening import ObjectChanged, open_store, raise_as_disk
from sluice.stores.store_path import StorePath

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_OPEN: dict[tuple[str, str, timedelta | None], ObjectStore] = {}
"""By the address of the store, the root of a URL, and how long an answer may take."""
_READ_WHOLE, _RANGE = 4 << 20, 1 << 20
"""Objects of up to so many bytes are read at once; of larger ones at least so many bytes a request."""


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


def read_object_status(said: ObjectMeta) -> ObjectStatus:
    """What obstore says of an object."""
    return ObjectStatus(said["size"], said["last_modified"].timestamp(), said["e_tag"] or "")


class _ObjectRanges(io.RawIOBase):
    """An object as a file: each read is a request, so that a buffer belongs before it."""

    def __init__(self, read_object: StoreObject, size: int) -> None:
        self._object, self._size, self._at = read_object, size, 0

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
        read = self._object.read_range(self._at, length) if length else b""
        buffer[: len(read)] = read
        self._at += len(read)
        return len(read)


class StoreObject(StorePath):
    """An object of a store. Errors are those of a disk: FileNotFoundError, FileExistsError, and OSError for a store that does not answer.

    What writes or removes raises LeaseLost besides, where this process may not do so any more (`sluice.stores.fences`).
    """

    def stat(self, *, follow_symlinks: bool = True) -> ObjectStatus:  # type: ignore[override]  # a store has no inodes and modes
        """What the store says of the object. Raises FileNotFoundError; a folder has no status."""
        import obstore

        with raise_as_disk(self):
            return read_object_status(obstore.head(self.open_store(), self.object_key))

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

        with raise_as_disk(self):
            return bytes(obstore.get(self.open_store(), self.object_key).bytes())

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

        with raise_as_disk(self):
            obstore.put(self.open_store(), self.object_key, data)
        return len(data)

    def open_ranges(self, at_least: int = _RANGE) -> BinaryIO:
        """The object's content, asked for as it is read: the ranges that the reader wants. Raises FileNotFoundError.

        at_least: how many bytes a request asks for, more for who reads it from one end to the other.
        """
        if (size := self.stat().st_size) <= _READ_WHOLE:
            return io.BytesIO(self.read_bytes())
        return io.BufferedReader(_ObjectRanges(self, size), at_least)

    def read_range(self, start: int, length: int) -> bytes:
        """So many bytes of the object from a position on, fewer at its end. Raises FileNotFoundError."""
        import obstore

        with raise_as_disk(self):
            return bytes(obstore.get_range(self.open_store(), self.object_key, start=start, length=length))

    def upload_file(self, file: Path) -> None:
        """Give the object the content of a file of this machine, of any size. Nothing of it is there before all is."""
        with file.open("rb") as content:
            self.upload_content(content)

    def upload_content(self, content: IO[bytes]) -> None:
        """Give the object what is left to read of an open file, of any size. Nothing of it is there before all is."""
        import obstore

        require_open_fences(str(self))
        with raise_as_disk(self):
            obstore.put(self.open_store(), self.object_key, content)

    def write_new_bytes(self, data: bytes) -> None:
        """Make the object with this content, in one conditional PUT. Raises FileExistsError if it is there."""
        import obstore

        require_open_fences(str(self))
        with raise_as_disk(self):
            obstore.put(self.open_store(), self.object_key, data, mode="create")

    def read_with_tag(self, patience: timedelta | None = None) -> tuple[bytes, str, float]:
        """The object's content, its ETag, and when it was written, in seconds since 1970. patience: as of `open_store`. Raises FileNotFoundError."""
        import obstore

        with raise_as_disk(self):
            found = obstore.get(self.open_store(patience), self.object_key)
            return bytes(found.bytes()), found.meta["e_tag"] or "", found.meta["last_modified"].timestamp()

    def replace_tagged(self, data: bytes, tag: str | None, patience: timedelta | None = None) -> str:
        """Give the object this content if its ETag is still this one; None: if there is no such object. Returns the new ETag.

        patience: as of `open_store`. Raises ObjectChanged if it is not. Then it may hold these very bytes, put there by an attempt whose answer
        was lost.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

        with raise_as_disk(self):
            try:
                store = self.open_store(patience)
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
        with raise_as_disk(self):
            obstore.delete(self.open_store(), self.object_key)

    def rename(self, target: Any) -> Self:
        """Move the object to another location of its store, as a copy that is there whole, and a removal. Raises FileNotFoundError."""
        if not isinstance(target, type(self)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(self))
        self.copy_to(target)
        self.unlink()
        return target

    def copy_to(self, target: StoreObject) -> None:
        """Give another object of the same bucket the content of this one; its own is replaced. Raises FileNotFoundError."""
        import obstore

        if target.bucket_url != self.bucket_url:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(self))
        require_open_fences(str(target))
        with raise_as_disk(self):
            obstore.copy(self.open_store(), self.object_key, target.object_key)

    def open_store(self, patience: timedelta | None = None) -> ObjectStore:
        """The store that the object is on, opened once a process. patience: as of `opening.open_store`."""
        known = (os.environ.get("AWS_ENDPOINT_URL", ""), self.bucket_url, patience)
        if known not in _OPEN:
            _OPEN[known] = open_store(self.bucket_url, patience=patience)
        return _OPEN[known]
