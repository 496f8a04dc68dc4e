"""Lists every file below the roots, on disks and on stores, and searches the names of everything on the way."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from residue.compiled import CompiledNeedles
from residue.inspection import Inspection
from residue.result import ScanResult, ScanRoot, Unread
from residue.stored_files import FilePath, StoredFile, is_on_store, list_stored_versions, list_unfinished_uploads


class ListedFile(NamedTuple):
    """A file to search. root: the number of its root. relative: its path below the root. shown: that, with its version if it has former ones."""

    root: int
    path: FilePath
    relative: str
    size: int
    shown: str


class _FoundName(NamedTuple):
    """A name to search. relative: the path, below the root, in whose results it counts."""

    relative: str
    name: bytes


def resolve_root(root: ScanRoot, result: ScanResult) -> ScanRoot:
    """A root with its links resolved. One that leads nowhere may be on a disk that is not mounted now."""
    if is_on_store(root.path):
        return root
    path = os.path.realpath(root.path)
    if any(map(_is_dangling_link, (Path(root.path), *Path(root.path).parents))):
        result.unread.append(Unread(root.name, ".", "a link that leads nowhere"))
    return replace(root, path=path)


def list_files(roots: Sequence[ScanRoot], compiled: CompiledNeedles, result: ScanResult) -> Iterator[ListedFile]:
    """Yields every file, on a store every version of it.

    Adds to the result what names hold, what cannot be listed, and the roots that are not there.
    """
    for number, root in enumerate(roots):
        names: list[_FoundName] = []
        listing = _list_store_root if is_on_store(root.path) else _list_folder_root
        yield from listing(number, roots, names, result)
        if names:
            _search_path_names(root, names, compiled, result)


# ------------------------------------------------------------------------------------------------------- folders


def _is_dangling_link(path: Path) -> bool:
    """Whether it is a link to nothing. What cannot be examined is reported when the scan reaches it."""
    try:
        return path.is_symlink() and not path.exists()
    except OSError:
        return False


def _list_folder_root(
    number: int, roots: Sequence[ScanRoot], names: list[_FoundName], result: ScanResult
) -> Iterator[ListedFile]:
    root = roots[number]
    if _is_missing_path(root.path):
        result.missing += (root.name,)
    for path, relative, status in _walk_below_root(root, result):
        # The folders above are searched separately, so that a name counts once and not for each file below it.
        name = os.fsencode(Path(relative).name)
        if stat.S_ISLNK(status.st_mode):
            name += b"\n" + os.fsencode(Path(path).readlink())
            if not _leads_within_roots(path, roots):
                result.unread.append(Unread(root.name, relative, "a link that leads out of the roots"))
        names.append(_FoundName(relative, name))
        if stat.S_ISREG(status.st_mode):
            yield ListedFile(number, Path(path), relative, status.st_size, relative)


def _walk_below_root(root: ScanRoot, result: ScanResult) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yields the root and all that is below it: path, path relative to the root, status. Does not follow links."""
    without = {os.path.realpath(path) for path in root.without}
    waiting = [root.path]
    while waiting:
        path = waiting.pop()
        if without and os.path.realpath(path) in without:
            continue
        relative = _relative_result_path(path, root)
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone since its folder was listed
        except OSError as error:
            result.unread.append(Unread(root.name, relative, f"it cannot be examined: {error.strerror}"))
            continue
        yield path, relative, status
        if stat.S_ISDIR(status.st_mode):
            try:
                waiting += sorted((entry.path for entry in os.scandir(path)), reverse=True)
            except OSError as error:
                result.unread.append(Unread(root.name, relative, f"the folder cannot be listed: {error.strerror}"))


def _relative_result_path(path: str, root: ScanRoot) -> str:
    """A path in results: relative to the root; for a root that is a file its own name, since names show kinds."""
    return os.path.relpath(path, root.path if path != root.path or _is_folder(path) else Path(path).parent)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except OSError:
        return False


def _leads_within_roots(path: str, roots: Sequence[ScanRoot]) -> bool:
    target = os.path.realpath(path)
    folders = (os.path.realpath(root.path) for root in roots if not is_on_store(root.path))
    return _is_missing_path(target) or any(Path(target).is_relative_to(folder) for folder in folders)


def _is_missing_path(path: str) -> bool:
    """Whether nothing of that name exists. Something that cannot be examined does exist."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


# -------------------------------------------------------------------------------------------------------- stores


def _list_store_root(number: int, roots: Sequence[ScanRoot], names: list[_FoundName], result: ScanResult) -> Iterator[ListedFile]:
    root, named = roots[number], set[str]()
    try:
        listed = StoredFile.from_url(root.path)
        without = tuple(StoredFile.from_url(path).key for path in root.without)
        for one in list_stored_versions(listed):
            key = one.key.rstrip("/")  # of a folder's marker, as Hadoop makes them
            if any(key == left or key.startswith(f"{left}/") for left in without):
                continue
            relative = key[len(listed.key) :].strip("/") if key != listed.key else listed.name
            names += _list_new_names(relative, named)
            if one.size is not None:
                shown = f"{relative} (version {one.version})" if one.version else relative
                yield ListedFile(number, StoredFile(listed.bucket, one.key, one.version), relative, one.size, shown)
        for key in list_unfinished_uploads(listed):
            result.unread.append(
                Unread(
                    root.name,
                    key[len(listed.key) :].strip("/"),
                    "an upload that was never completed, whose parts nobody can read",
                )
            )
        if not named:
            result.missing += (root.name,)
    except FileNotFoundError:
        result.missing += (root.name,)
    except OSError as error:
        result.unread.append(Unread(root.name, ".", f"the store cannot be listed: {error.strerror}"))


def _list_new_names(relative: str, named: set[str]) -> Iterator[_FoundName]:
    """The names of an object and of the folders above it that are not in `named` yet, and are then."""
    parts = relative.split("/")
    for depth in range(len(parts), 0, -1):
        path = "/".join(parts[:depth])
        if path in named:
            return
        named.add(path)
        yield _FoundName(path, parts[depth - 1].encode())


# --------------------------------------------------------------------------------------------------------- names


def _search_path_names(root: ScanRoot, names: Iterable[_FoundName], compiled: CompiledNeedles, result: ScanResult) -> None:
    """Searches names: all at once, and one by one only if something is found."""
    together = Inspection(compiled, root, ".")
    together.several("names", (one.name for one in names))
    if not together.counts:
        together.add_to(result)
        return
    for path, name in names:
        inspection = Inspection(compiled, root, path)
        inspection.whole("names", name)
        inspection.add_to(result)
