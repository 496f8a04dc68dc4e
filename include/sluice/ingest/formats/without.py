"""Rewrites a delivered file without some of its records, or with some of their fields emptied.

The file stays compressed and encoded as it was, and the rest of its text stays as it came. Records are numbered from 0 as
`formats.read_file_records` gives them. JSON lines and text go by blocks; CSV, JSON documents and Parquet files are held in memory whole.
"""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Collection, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest import formats
from sluice.ingest.formats import NO_FIELDS


def write_without_records(
    source: Source, path: Path, gone: Collection[int], target: Path, emptied: Mapping[int, Collection[str]] = NO_FIELDS
) -> None:
    """Write the file to `target` without the records of these numbers. A binary file, which is one record, becomes an empty one.

    emptied: by number of a record that stays, the fields that become empty in it: of JSON, CSV and Parquet.
    Raises Unreadable and OSError.
    """
    with ExitStack() as stack:
        file = stack.enter_context(target.open("xb"))
        packed = stack.enter_context(_open_compressed_output(file, path.suffix.lower()))
        formats.write_remaining_records(source, path, frozenset(gone), emptied, packed)


def _open_compressed_output(file: IO[bytes], suffix: str) -> Any:
    """A file that compresses what is written to it as its suffix says."""
    if suffix == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    if suffix == ".bz2":
        return bz2.BZ2File(file, "wb")
    if suffix == ".zst":
        return pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
    return nullcontext(file)
