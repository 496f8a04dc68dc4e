"""Removes records from landed and archived files: each file is rewritten beside itself and then replaced in one step.

The ledger is told, so that the file does not count as a new delivery. A journal makes both one step: the next run finishes, before any
discovery, what a killed erasure began. The journal holds names of files, sizes and hashes. A bucket with versions keeps the files as they
were: a list beside the journal says of which files an erasure still has to remove those. An ingest needs no rights for that.

A file keeps its compression and encoding, and the rest of its text stays as delivered. Records are numbered from 0 in the order of
`formats.read_file_records`. JSON lines and text are rewritten block by block; CSV, JSON documents and Parquet files are held in memory whole.
"""

from __future__ import annotations

import bz2
import gzip
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

import pyarrow as pa

from sluice import record_states
from sluice.declare.ingest.file_formats import FILE_FORMATS
from sluice.declare.ingest.source import Source
from sluice.delivery_rows import DeliveryRow
from sluice.durable_files import flush_file, load_kept_json, move_file_durably, write_json_durably
from sluice.ingest import delivery_tables, formats
from sluice.ingest.deliveries import known_files
from sluice.ingest.deliveries.landed_file import FileState, hash_regular_file, is_file_in_state, read_file_state
from sluice.ingest.formats import NO_FIELDS
from sluice.locations import Location, is_on_disk, locate, open_new_file
from sluice.pipeline_stages import DELETIONS
from sluice.stores.former_versions import remove_replaced_versions
from sluice.stores.opening import ObjectChanged, is_store_url
from sluice.stores.s3_client import is_on_s3
from sluice.stores.store_location import StoreLocation

MARK = ".rewritten.part"
"""The ending of names of files that are being written. They are never listed as delivered."""

_VERSIONS = ".versions"
"""The ending of names of lists of files whose former versions a bucket still keeps. It is not that of a journal, which stops an ingest."""


@dataclass(frozen=True)
class RewrittenFile:
    """A file and its replacement. part: None if the whole file is removed. known: whether the ledger knows the file as it was.

    size, modified (microseconds since 1970), etag: those of the old file. new_size, sha256: those of its replacement.
    """

    source: str
    file: str
    path: str
    part: str | None
    known: bool
    size: int | None
    modified: int | None
    etag: str | None = None
    new_size: int | None = None
    sha256: str | None = None

    @property
    def state(self) -> FileState:
        """The state of the old file."""
        return FileState(self.size, self.modified, self.etag)


def prepare_rewritten_file(
    source: Source,
    file: str,
    path: Location,
    gone: Collection[int] | None,
    is_known: bool,
    emptied: Mapping[int, Collection[str]] = NO_FIELDS,
) -> RewrittenFile:
    """Rewrites a file beside itself without the records of these numbers. None: the whole file is to be removed.

    emptied: by number of a record that stays, the fields that become empty. On a disk the file keeps its modification time and mode. Raises
    UnreadableFile, and OSError if the file has changed meanwhile or cannot be written.
    """
    state = read_file_state(path)
    if gone is None or FILE_FORMATS[source.format].is_one_record:
        return RewrittenFile(source.name, file, str(path), None, is_known, *state)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{MARK}")
    try:
        write_without_records(source, path, file, gone, part, emptied)
        if is_on_disk(part):
            shutil.copystat(path, part)
            flush_file(part)  # before a journal names it
        digest = hash_regular_file(str(part))
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    grown = part.stat().st_size
    return RewrittenFile(source.name, file, str(path), str(part), is_known, *state, grown, digest)


def replace_rewritten_files(journals: Location, deliveries: str, files: Sequence[RewrittenFile], run: str) -> int:
    """Puts prepared files in their places and tells the ledger. Returns how many; a file that changed meanwhile stays as it is."""
    if not files:
        return 0
    journals.mkdir(parents=True, exist_ok=True)
    journal = journals / f"{uuid.uuid4().hex}.json"
    write_json_durably(journal, [asdict(one) for one in files])
    return _finish_rewriting_journal(journal, deliveries, run)


def finish_rewriting_journals(journals: Location, deliveries: str, run: str) -> int:
    """Finishes what a killed erasure began. Call it before any discovery. Returns how many files that were."""
    return sum(_finish_rewriting_journal(journal, deliveries, run) for journal in sorted(journals.glob("*.json")))


_REMEDY = (
    f"Put a copy of it back. Without one, move it away and run the stage {DELETIONS.name}, which looks through the landed files again "
    "and removes what was left half done."
)


_VERSIONS_REMEDY = (
    "Put a copy of it back. Without one, remove the former versions of the landed files in the bucket by hand, then this file."
)


def _parse_paths(said: list[str]) -> list[str]:
    if not isinstance(said, list):
        raise TypeError  # any other object names no files
    return [str(path) for path in said]


def _parse_rewritten_files(said: list[dict[str, Any]]) -> list[RewrittenFile]:
    if not isinstance(said, list):
        raise TypeError  # any other object is not a file to replace
    return [RewrittenFile(**one) for one in said]


def _finish_rewriting_journal(journal: Location, deliveries: str, run: str) -> int:
    files = load_kept_json(journal, "which landed files an erasure was about to replace", _REMEDY, _parse_rewritten_files)
    waiting = [one for one in files if _is_still_replaceable(one)]
    waiting = [put for one in waiting if (put := _put_object_in_place(one) if is_store_url(one.path) else one) is not None]
    _record_rewritten_files(deliveries, [one for one in waiting if one.known], run)
    done = sum([_replace_or_remove_file(one) for one in waiting])
    for one in files:
        if one.part is not None:  # the producer has written the file again since
            locate(one.part).unlink(missing_ok=True)
    versioned = [one.path for one in files if is_store_url(one.path) and is_on_s3(StoreLocation.from_url(one.path))]
    if versioned:
        write_json_durably(journal.with_name(journal.name.removesuffix(".json") + _VERSIONS), versioned)
    journal.unlink()
    return done


def remove_versions_of_rewritten_files(journals: Location) -> int:
    """Removes what a bucket with versions keeps of files that were replaced, however old. Only an erasure does this. Returns how many.

    Raises SluiceError if the store refuses it, with the rights that are missing; the list of the files then stays for the next erasure.
    """
    removed = 0
    for noted in sorted(journals.glob(f"*{_VERSIONS}")):
        for path in load_kept_json(
            noted, "of which replaced files a bucket still keeps versions", _VERSIONS_REMEDY, _parse_paths
        ):
            removed += remove_replaced_versions(StoreLocation.from_url(path))
        noted.unlink()
    return removed


def _put_object_in_place(one: RewrittenFile) -> RewrittenFile | None:
    """Puts a replacement on a store in its place, unless a run that was killed has. Returns it with the time that the store gave it.

    None: the producer has written the object again; a conditional PUT replaces the old one alone. The ledger is told afterwards, since
    nobody knows that time before. The replacement beside it stays until then.
    """
    if one.part is None:
        return one
    part, path = StoreLocation.from_url(one.part), StoreLocation.from_url(one.path)
    with suppress(ObjectChanged):
        path.replace_tagged(part.read_bytes(), one.etag)
    there = read_file_state(path)  # before the content: if that is replaced now, the state told is not that of the new one
    return replace(one, modified=there.modified, etag=there.etag) if hash_regular_file(one.path) == one.sha256 else None


def _replace_or_remove_file(one: RewrittenFile) -> bool:
    """Replaces a file on a disk, or removes a whole one. Returns whether it did: a file that its producer has written meanwhile stays.

    It is looked at directly before, since the commit to the ledger took its time. What stays differs from what the ledger says, so that the
    next discovery delivers it.
    """
    path = locate(one.path)
    if one.part is not None and isinstance(path, StoreLocation):
        return True  # it was put in its place before the ledger was told
    try:
        if not is_file_in_state(path, one.state):
            return False
        if one.part is not None:
            move_file_durably(locate(one.part), path)
        elif isinstance(path, StoreLocation) and one.etag is not None:
            path.remove_tagged(one.etag)
        else:
            path.unlink()
    except (FileNotFoundError, ObjectChanged):
        return False
    return True


def _record_rewritten_files(deliveries: str, files: Sequence[RewrittenFile], run: str) -> None:
    """Notes what the files are from now on. Nothing is noted that is already the last note about a file."""
    before = known_files.read_known_files(deliveries)
    told = {
        (row["source"], row["file"]): (row["event"], row["sha256"])
        for row in delivery_tables.sort_deliveries_by_number(delivery_tables.read_delivery_ledger_rows(deliveries))
    }
    rows: list[DeliveryRow] = []
    for one in files:
        event = record_states.CLEANED if one.part is None else record_states.REWRITTEN
        # Only the last note counts: a file that came again since was another in between.
        if told.get((one.source, one.file)) != (event, one.sha256):
            size = one.size if one.part is None else one.new_size
            state: DeliveryRow = {"size": size, "modified_at": one.state.modified_at, "sha256": one.sha256, "etag": one.etag}
            rows.append({"source": one.source, "file": one.file, "event": event, **state})
    delivery_tables.append_numbered_deliveries(deliveries, [rows], before.last, run)


def _is_still_replaceable(one: RewrittenFile) -> bool:
    try:
        there = is_file_in_state(one.path, one.state)
    except FileNotFoundError:
        return False
    # A file that was already put in place may have the same size as before.
    waits = one.part is None or locate(one.part).exists()
    if is_store_url(one.path) and one.part is not None and not there:
        return waits and hash_regular_file(one.path) == one.sha256  # it is in its place, and the ledger was not told
    return there and waits


def write_without_records(
    source: Source,
    path: Location,
    file: str,
    gone: Collection[int],
    target: Location,
    emptied: Mapping[int, Collection[str]] = NO_FIELDS,
) -> None:
    """Writes the file to `target` without the records of these numbers. A binary file, which is one record, becomes an empty file.

    file: its name relative to the source's folder. emptied: by number of a record that stays, the fields that become empty, for JSON, CSV and
    Parquet. Raises UnreadableFile and OSError.
    """
    with ExitStack() as stack:
        written = stack.enter_context(open_new_file(target))
        packed = stack.enter_context(_open_compressed_output(written, path.suffix.lower()))
        formats.write_remaining_records(source, path, file, frozenset(gone), emptied, packed)


def _open_compressed_output(file: IO[bytes], suffix: str) -> Any:
    """Opens a file that compresses what is written to it, by its suffix."""
    if suffix == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    if suffix == ".bz2":
        return bz2.BZ2File(file, "wb")
    if suffix == ".zst":
        return pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
    return nullcontext(file)
