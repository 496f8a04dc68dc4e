"""A location on an object store as a pathlib.Path, so that the code that works on a disk works there, too.

A store has no folders: one is there while an object is below it. Here what a store cannot do fails.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from sluice.stores.fences import require_open_fences
from sluice.stores.opening import ObjectChanged, make_disk_error, raise_as_disk
from sluice.stores.s3_client import (
    find_key_below,
    is_folder_mark,
    is_on_s3,
    list_keys_below,
    remove_folder_marks,
    remove_key_with_tag,
)
from sluice.stores.store_object import ObjectStatus, StoreObject, read_object_status

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta

_PAGE = 1000
_AT_ONCE = 16
"""The most objects that are requested in parallel."""


class StoreLocation(StoreObject):
    """An object, or the folder of the objects below it. str() gives the URL, by which Spark and delta-rs know it, too.

    Names, parents and comparisons are those of `StorePath`, contents and errors those of `StoreObject`.
    """

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
            raise make_disk_error(self, errno.ENOENT)
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
        return ((location, one["size"], one["last_modified"]) for location, one in self._list_below())

    def list_named_objects(self, after: str = "") -> Iterator[tuple[str, ObjectStatus]]:
        """The objects below, at any depth, in the order of their keys: the name below this one, and what `stat` says. Asked for in pages.

        after: only those whose name comes after this one, which the store leaves out by itself. On S3 whatever others may have called them:
        obstore lists nothing of a folder with one name that is no path, such as "a//b".
        """
        if not is_on_s3(self):
            listed = ((str(location.relative_to(self)), read_object_status(one)) for location, one in self._list_below(after))
            yield from listed
            return
        prefix = len(self.object_key) + 1
        for one in list_keys_below(self, after):
            if not is_folder_mark(one):
                yield str(one["Key"])[prefix:], ObjectStatus(one["Size"], one["LastModified"].timestamp(), one["ETag"])

    def find_named_objects(self, names: Iterable[str]) -> Iterator[tuple[str, ObjectStatus | None]]:
        """What `stat` says of objects below, by their names below this one, whatever others may have called them. None: there is none."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            yield from threads.map(lambda name: (name, self._find_named_object(name)), names)

    def _find_named_object(self, name: str) -> ObjectStatus | None:
        if is_on_s3(self):
            if (found := find_key_below(self, name)) is None:
                return None
            return ObjectStatus(found["ContentLength"], found["LastModified"].timestamp(), found["ETag"])
        try:
            return (self / name).stat()
        except FileNotFoundError:
            return None

    def list_tags(self, after: str = "") -> Iterator[tuple[StoreLocation, str]]:
        """The objects below, at any depth, with their ETags. after: only those whose name comes after this one."""
        return ((location, one["e_tag"] or "") for location, one in self._list_below(after))

    def walk_below(self) -> Iterator[tuple[StoreLocation, list[str], list[str]]]:
        """Each folder from here on, before those in it, with the names of its folders and files. A name taken from the folders is not entered."""
        files: dict[StoreLocation, list[str]] = {}
        folders: dict[StoreLocation, dict[str, None]] = {}
        for location, _ in self._list_below():
            files.setdefault(location.parent, []).append(location.name)
            for folder in location.parents:
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
            raise make_disk_error(self, errno.EEXIST)

    def rmdir(self) -> None:
        """Do nothing. Raises OSError if an object is below, as a disk does."""
        if self.is_dir():
            raise make_disk_error(self, errno.ENOTEMPTY)

    def remove_below(self) -> None:
        """Remove all objects below, and Hadoop's marks of folders: a table's log that only a mark is left of is one for Delta."""
        import obstore

        require_open_fences(str(self))
        with raise_as_disk(self):
            for page in self._list_pages():
                obstore.delete(self.open_store(), [one["path"] for one in page])
        if is_on_s3(self):
            remove_folder_marks(self)

    def remove_tagged(self, tag: str) -> None:
        """Remove the object if its ETag is still this one. S3 decides that itself; elsewhere it is looked at directly before.

        Raises ObjectChanged if it is another one by now, and FileNotFoundError.
        """
        require_open_fences(str(self))
        is_it = self.stat().tag == tag
        done = remove_key_with_tag(self, tag) if is_it and is_on_s3(self) else None
        if not is_it or done is False:
            raise ObjectChanged(errno.EBUSY, "The object is not what it was", str(self))
        if done is None:  # the look has to do
            self.unlink()

    def _list_below(self, after: str = "") -> Iterator[tuple[StoreLocation, ObjectMeta]]:
        root = self.bucket_url
        for page in self._list_pages(after):
            for one in page:
                location = StoreLocation(f"{root}/{one['path']}")
                if one["size"] or location.is_file():  # and no mark of Hadoop's for a folder
                    yield location, one

    def _list_pages(self, after: str = "") -> Iterator[Sequence[Any]]:
        import obstore

        with raise_as_disk(self):
            offset = f"{self.object_key}/{after}" if after else None
            yield from obstore.list(self.open_store(), self.object_key or None, offset=offset, chunk_size=_PAGE)

    def list_files(self) -> list[tuple[StoreLocation, int]]:
        """The objects right below, with their sizes in bytes."""
        return [(StoreLocation(f"{self.bucket_url}/{one['path']}"), one["size"]) for one in self._list_level()["objects"]]

    def _list_children(self) -> list[StoreLocation]:
        found = self._list_level()
        names = (*found["common_prefixes"], *(one["path"] for one in found["objects"]))
        return [StoreLocation(f"{self.bucket_url}/{one}") for one in names]

    def _list_level(self) -> ListResult[Sequence[ObjectMeta]]:
        import obstore

        with raise_as_disk(self):
            found = obstore.list_with_delimiter(self.open_store(), self.object_key or None)
        # Hadoop's mark of this very folder is among them.
        found["objects"] = [one for one in found["objects"] if one["path"] != self.object_key]
        return found
