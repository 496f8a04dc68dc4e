"""Taking records out of landed and archived files: each is written anew beside itself and put in its place at once.

The ledger hears of it, so that the file is not taken for a new delivery, and a journal makes both one step: whoever comes next, before
any discovery, brings to its end what a killed erasure had begun. The journal holds names of files, sizes and hashes.

A file stays compressed and encoded as it was, and the rest of its text stays as it came. Records are numbered from 0 as
`formats.read_file_records` gives them. JSON lines and text go by blocks; CSV, JSON documents and Parquet files are held in memory whole.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from sluice import file_events
from sluice.declare.ingest.file_formats import FILE_FORMATS
from sluice.declare.ingest.source import Source
from sluice.durable_files import flush_file, load_kept_json, move_file_durably, write_json_durably
from sluice.ingest import formats, ledger
from sluice.ingest.deliveries import known
from sluice.ingest.formats import NO_FIELDS
from sluice.pipeline_stages import DELETIONS

MARK = ".rewritten.part"
"""How the names of files end that are being written; none of them is listed as delivered."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RewrittenFile:
    """A file and what takes its place. part: None where the file goes as a whole. known: whether the ledger knows it as it was.

    size, modified (microseconds since 1970): of the file as it was; new_size, sha256: of what takes its place.
    """

    source: str
    file: str
    path: str
    part: str | None
    known: bool
    size: int
    modified: int
    new_size: int | None = None
    sha256: str | None = None


def prepare_rewritten_file(
    source: Source,
    file: str,
    path: Path,
    gone: Collection[int] | None,
    is_known: bool,
    emptied: Mapping[int, Collection[str]] = NO_FIELDS,
) -> RewrittenFile:
    """Write a file anew beside itself, without the records of these numbers; None: it is to go as a whole.

    emptied: by number of a record that stays, the fields of it that become empty.
    Its modification time stays, and its mode. Raises Unreadable, and OSError where it has changed meanwhile or cannot be written.
    """
    size, modified = _read_size_and_mtime(path)
    if gone is None or FILE_FORMATS[source.format].is_one_record:
        return RewrittenFile(source.name, file, str(path), None, is_known, size, modified)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{MARK}")
    try:
        write_without_records(source, path, gone, part, emptied)
        shutil.copystat(path, part)
        flush_file(part)  # before a journal names it
        with part.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    grown = part.stat().st_size
    return RewrittenFile(source.name, file, str(path), str(part), is_known, size, modified, grown, digest)


def replace_rewritten_files(journals: Path, deliveries: str, files: Sequence[RewrittenFile], run: str) -> int:
    """Put prepared files in their places and tell the ledger. Returns how many were; one that was changed meanwhile stays as it is."""
    if not files:
        return 0
    journals.mkdir(parents=True, exist_ok=True)
    journal = journals / f"{uuid.uuid4().hex}.json"
    write_json_durably(journal, [asdict(one) for one in files])
    return _finish_rewriting_journal(journal, deliveries, run)


def finish_rewriting_journals(journals: Path, deliveries: str, run: str) -> int:
    """Bring to its end what a killed erasure had begun. To be called before any discovery. Returns how many files it was."""
    return sum(_finish_rewriting_journal(journal, deliveries, run) for journal in sorted(journals.glob("*.json")))


_REMEDY = (
    f"Put a copy of it back. Without one, move it away and run the stage {DELETIONS.name}, which looks through the landed files again "
    "and removes what was left half done."
)


def _parse_rewritten_files(said: list[dict[str, Any]]) -> list[RewrittenFile]:
    if not isinstance(said, list):
        raise TypeError  # else an object would be no file to replace
    return [RewrittenFile(**one) for one in said]


def _finish_rewriting_journal(journal: Path, deliveries: str, run: str) -> int:
    files = load_kept_json(journal, "which landed files an erasure was about to replace", _REMEDY, _parse_rewritten_files)
    waiting = [one for one in files if _is_still_replaceable(one)]
    _record_rewritten_files(deliveries, [one for one in waiting if one.known], run)
    for one in waiting:
        if one.part is None:
            Path(one.path).unlink()
        elif Path(one.part).exists():
            move_file_durably(Path(one.part), Path(one.path))
    for one in files:
        if one.part is not None:  # of a file that its producer has written again since
            Path(one.part).unlink(missing_ok=True)
    journal.unlink()
    return len(waiting)


def _record_rewritten_files(deliveries: str, files: Sequence[RewrittenFile], run: str) -> None:
    """Note what the files are from now on; what is the last that is noted of a file is not noted again."""
    before = known.read_known_files(deliveries)
    told = {
        (row["source"], row["file"]): (row["event"], row["sha256"])
        for row in ledger.sort_deliveries_by_number(ledger.read_delivery_ledger_rows(deliveries))
    }
    rows = []
    for one in files:
        event = file_events.CLEANED if one.part is None else file_events.REWRITTEN
        # Not any note of before: a file that came again since was another in between.
        if told.get((one.source, one.file)) != (event, one.sha256):
            at = _EPOCH + timedelta(microseconds=one.modified)
            size = one.size if one.part is None else one.new_size
            row: dict[str, Any] = {"source": one.source, "file": one.file, "event": event, "size": size, "modified_at": at}
            rows.append({**row, "sha256": one.sha256})
    ledger.append_numbered_deliveries(deliveries, [rows], before.last, run)


def _is_still_replaceable(one: RewrittenFile) -> bool:
    try:
        there = _read_size_and_mtime(Path(one.path)) == (one.size, one.modified)
    except FileNotFoundError:
        return False
    # A file that was put in place already may have the size of before.
    return there and (one.part is None or Path(one.part).exists())


def _read_size_and_mtime(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_size, found.st_mtime_ns // 1000


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
