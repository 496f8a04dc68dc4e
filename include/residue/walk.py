"""Walks the roots: scans the name and content of every file and folder, on all cores, and the rows of tables.

Rows that somebody else reads, such as those of a table's current version, are searched as the cells of files are.
"""

from __future__ import annotations

import multiprocessing
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from residue.compiled import CompiledNeedles
from residue.decoders import columnar
from residue.inspection import Inspection
from residue.opening import search_file
from residue.result import Needle, ScanResult, ScanRoot, TableClock, Unread

_SMALL = 64 << 20
"""If all roots together have at most this many bytes, one process scans them: starting more would take longer."""
_PART = 64 << 20
_MOST_FILES = 500


class _ListedFile(NamedTuple):
    root: int
    path: str
    size: int


class ScannedSoFar(NamedTuple):
    """How far a scan is: files and bytes that it has looked at, of how many."""

    files: int
    all_files: int
    bytes: int
    all_bytes: int


HearScan = Callable[[ScannedSoFar], object]


def scan_roots(
    roots: Sequence[ScanRoot],
    needles: Sequence[Needle],
    canary: Sequence[Needle] = (),
    processes: int | None = None,
    heard: HearScan = lambda scanned: None,
) -> ScanResult:
    """Scans the roots for the needles of the people and of the canary. processes: by default as many as there are cores.

    heard: is told now and then how far it is.

    Needles go to the processes by a pipe, never by an argument or a file. A root that is not there holds nothing, and is named. A root that
    is a link is where that leads: only links below a root are not followed.
    """
    started = time.monotonic()
    result = ScanResult(roots=tuple(roots))
    roots = [_resolve_root(root, result) for root in roots]
    result.needles.update((one.of, one.kind) for one in needles if not one.shared)
    result.missing = tuple(root.name for root in roots if _is_missing_path(root.path))
    compiled = CompiledNeedles(needles, canary)
    files = list(_walk_roots(roots, compiled, result))
    wanted = processes or min(os.cpu_count() or 1, 8)
    scanned = ScannedSoFar(0, len(files), 0, sum(one.size for one in files))
    batches = list(_batch_files_by_size(files))
    if wanted == 1 or scanned.all_bytes < _SMALL:
        parts: Iterable[ScanResult] = (_scan_files(batch, roots, compiled) for batch in batches)
        result.add(_hear_of_batches(parts, batches, scanned, heard))
    else:
        # No fork: a process with a JVM, or with Arrow's threads, must not be copied.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(wanted, context, _prepare_scan_process, (roots, needles, canary)) as pool:
            result.add(_hear_of_batches(pool.map(_scan_file_batch, batches), batches, scanned, heard))
    result.hits.sort()
    result.unread.sort()
    result.seconds = time.monotonic() - started
    return result


def _hear_of_batches(
    parts: Iterable[ScanResult], batches: Sequence[Sequence[_ListedFile]], scanned: ScannedSoFar, heard: HearScan
) -> list[ScanResult]:
    found = []
    for part, batch in zip(parts, batches, strict=True):
        found.append(part)
        size = scanned.bytes + sum(one.size for one in batch)
        scanned = scanned._replace(files=scanned.files + len(batch), bytes=size)
        heard(scanned)
    return found


def _resolve_root(root: ScanRoot, result: ScanResult) -> ScanRoot:
    """A root with its links resolved. One that leads nowhere may be on a disk that is not mounted now."""
    path = os.path.realpath(root.path)
    if any(map(_is_dangling_link, (Path(root.path), *Path(root.path).parents))):
        result.unread.append(Unread(root.name, ".", "a link that leads nowhere"))
    return replace(root, path=path)


def _is_dangling_link(path: Path) -> bool:
    """Whether it is a link to nothing. What cannot be examined is reported when the scan reaches it."""
    try:
        return path.is_symlink() and not path.exists()
    except OSError:
        return False


def _walk_roots(roots: Sequence[ScanRoot], compiled: CompiledNeedles, result: ScanResult) -> Iterator[_ListedFile]:
    """Yields every file, and searches the names of everything on the way."""
    for number, root in enumerate(roots):
        names: list[tuple[str, bytes]] = []
        for path, relative, status in _walk_below_root(root, result):
            # The folders above are searched separately, so that a name counts once and not for each file below it.
            name = os.fsencode(Path(relative).name)
            if stat.S_ISLNK(status.st_mode):
                name += b"\n" + os.fsencode(Path(path).readlink())
                if not _leads_within_roots(path, roots):
                    result.unread.append(Unread(root.name, relative, "a link that leads out of the roots"))
            names.append((relative, name))
            if stat.S_ISREG(status.st_mode):
                yield _ListedFile(number, path, status.st_size)
        _search_path_names(root, names, compiled, result)


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
    return _is_missing_path(target) or any(Path(target).is_relative_to(os.path.realpath(root.path)) for root in roots)


def _is_missing_path(path: str) -> bool:
    """Whether nothing of that name exists. Something that cannot be examined does exist."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _search_path_names(root: ScanRoot, names: Sequence[tuple[str, bytes]], compiled: CompiledNeedles, result: ScanResult) -> None:
    """Searches names, given with their paths: all at once, and one by one only if something is found."""
    together = Inspection(compiled, root, ".")
    together.several("names", (name for _, name in names))
    if not together.counts:
        together.add_to(result)
        return
    for path, name in names:
        inspection = Inspection(compiled, root, path)
        inspection.whole("names", name)
        inspection.add_to(result)


def _batch_files_by_size(files: Sequence[_ListedFile]) -> Iterator[list[_ListedFile]]:
    """Splits the files into batches that take about equally long, large files first."""
    part: list[_ListedFile] = []
    size = 0
    for one in sorted(files, key=lambda one: -one.size):
        part.append(one)
        size += one.size
        if size >= _PART or len(part) >= _MOST_FILES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _scan_files(files: Sequence[_ListedFile], roots: Sequence[ScanRoot], compiled: CompiledNeedles) -> ScanResult:
    result = ScanResult()
    for one in files:
        root = roots[one.root]
        inspection = Inspection(compiled, root, _relative_result_path(one.path, root))
        try:
            size = search_file(Path(one.path), inspection)
        except FileNotFoundError:
            continue  # gone since it was listed; another file has replaced it
        except OSError as error:
            inspection.unread(f"the file cannot be read: {error.strerror}")
            size = 0
        except Exception as error:  # a decoder's own mistake must not pass for a clean file
            inspection.unread(f"a decoder failed: {type(error).__name__}")
            size = one.size
        result.files += 1
        result.bytes += size
        inspection.add_to(result)
    return result


_prepared: tuple[Sequence[ScanRoot], CompiledNeedles] | None = None


def _prepare_scan_process(roots: Sequence[ScanRoot], needles: Sequence[Needle], canary: Sequence[Needle]) -> None:
    global _prepared
    _prepared = roots, CompiledNeedles(needles, canary)


def _scan_file_batch(files: Sequence[_ListedFile]) -> ScanResult:
    if _prepared is None:
        raise RuntimeError("the process was not prepared")
    return _scan_files(files, *_prepared)


DECODER = "rows"


def scan_tables(
    tables: Mapping[str, str],
    read_batches: Callable[[str], Iterable[pa.RecordBatch]],
    needles: Sequence[Needle],
    clocks: Mapping[str, TableClock],
) -> ScanResult:
    """Searches the rows of tables. tables: paths by name; read_batches: reads one by its path; clocks: by name, for tables that have one.

    A hit's path is the table's name.
    """
    compiled, result = CompiledNeedles(needles, []), ScanResult()
    for name, path in sorted(tables.items()):
        clock = (replace(clocks[name], below=""),) if name in clocks else ()
        inspection = Inspection(compiled, ScanRoot(name, path, clocks=clock), name)
        try:
            for batch in read_batches(path):
                columnar.search_record_batch(batch, inspection, DECODER)
        except Exception as error:  # of any reader: a table that cannot be read is not known to be clean
            inspection.unread(f"the table cannot be read: {type(error).__name__}")
        inspection.add_to(result)
    return result
