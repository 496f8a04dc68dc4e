"""Scans the files below the roots, on all cores, and the rows of tables.

Rows that somebody else reads, such as those of a table's current version, are searched as the cells of files are.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from residue.compiled import CompiledNeedles
from residue.decoders import columnar
from residue.inspection import Inspection
from residue.listing import ListedFile, list_files, resolve_root
from residue.opening import search_file
from residue.result import Needle, ScanResult, ScanRoot, TableClock

_SMALL = 64 << 20
"""If all roots together have at most this many bytes, one process scans them: starting more would take longer."""
_PART = 64 << 20
_MOST_FILES = 500


class ScannedSoFar(NamedTuple):
    """The progress of a scan: the files and bytes scanned so far, and their totals."""

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

    heard: is called now and then with the progress.

    Needles go to the processes by a pipe, never by an argument or a file. A root that is not there holds nothing, and is named. A root that
    is a link is where that leads: only links below a root are not followed.
    """
    started = time.monotonic()
    result = ScanResult(roots=tuple(roots))
    roots = [resolve_root(root, result) for root in roots]
    result.needles.update((one.of, one.kind) for one in needles if not one.shared)
    compiled = CompiledNeedles(needles, canary)
    files = list(list_files(roots, compiled, result))
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
    parts: Iterable[ScanResult], batches: Sequence[Sequence[ListedFile]], scanned: ScannedSoFar, heard: HearScan
) -> list[ScanResult]:
    found = []
    for part, batch in zip(parts, batches, strict=True):
        found.append(part)
        size = scanned.bytes + sum(one.size for one in batch)
        scanned = scanned._replace(files=scanned.files + len(batch), bytes=size)
        heard(scanned)
    return found


def _batch_files_by_size(files: Sequence[ListedFile]) -> Iterator[list[ListedFile]]:
    """Splits the files into batches that take about equally long, large files first."""
    part: list[ListedFile] = []
    size = 0
    for one in sorted(files, key=lambda one: -one.size):
        part.append(one)
        size += one.size
        if size >= _PART or len(part) >= _MOST_FILES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _scan_files(files: Sequence[ListedFile], roots: Sequence[ScanRoot], compiled: CompiledNeedles) -> ScanResult:
    result = ScanResult()
    for one in files:
        inspection = Inspection(compiled, roots[one.root], one.relative, one.shown)
        try:
            size = search_file(one.path, inspection)
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


def _scan_file_batch(files: Sequence[ListedFile]) -> ScanResult:
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
