"""Discovery: what is new in a landing folder becomes deliveries. Others write into that folder; nothing there is changed."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sluice.declare.interval import Interval
from sluice.declare.source import Source
from sluice.errors import UsageError
from sluice.ingest import dates, ledger

Known = dict[tuple[str, str], dict[str, object]]
DELIVERED, GONE = "delivered", "vanished"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LandedFile:
    """A file as it lies in a landing folder now. file: below the source's folder; modified_at: to the microsecond, UTC."""

    file: str
    path: Path
    size: int
    modified_at: datetime


def modified(path: Path) -> tuple[int, datetime]:
    """A file's size in bytes and its modification time. Raises FileNotFoundError."""
    found = path.stat()
    return found.st_size, _EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)


def listing(source: Source, landing: Path) -> Iterator[LandedFile]:
    """The files of a source that are there now. Hidden files and folders (a name that starts with a dot) are not looked at."""
    folder = landing / source.path
    if not folder.is_dir():
        raise UsageError(
            f"Source '{source.name}' has no landing folder {folder}. Create it and put files there, or run: sluice land {landing.name}"
        )
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(here) / name
            if not name.startswith(".") and fnmatch.fnmatch(name, source.pattern):
                try:
                    size, at = modified(path)
                except FileNotFoundError:
                    continue
                yield LandedFile(path.relative_to(folder).as_posix(), path, size, at)


def discover(sources: list[Source], landing: Path, deliveries: str, run: str, within: Interval | None = None) -> int:
    """Give each new or changed file, and each that is there no more, the next delivery number. Returns how many there are.

    landing: the pipeline's landing folder. deliveries: the table. within: only files that are there, of dates in this interval.
    To be called under the pipeline's lease: the numbers increase.
    """
    ledger.create(deliveries, ledger.DELIVERIES)
    known = latest(deliveries)
    number = max((int(str(row["delivery"])) for row in known.values()), default=0)
    found: list[dict[str, object]] = []
    for source in sources:
        found += _of_source(source, landing, known, within)
    now = datetime.now(UTC)
    for offset, row in enumerate(found, start=1):
        row.update(delivery=number + offset, discovered_at=now, run=run)
    most = min((source.max_files_per_trigger for source in sources), default=1)
    for start in range(0, len(found), most):
        ledger.append(deliveries, found[start : start + most], ledger.DELIVERIES, run)
    return len(found)


def news(source: Source, landing: Path, known: Known, within: Interval | None = None) -> tuple[list[LandedFile], list[str]]:
    """What a discovery would find: files that are new or changed, in the order in which they get their numbers, and files that are gone.

    known: of `latest`. within: as of `discover`. Raises UsageError where there is no landing folder.
    """
    seen = {file: row for (name, file), row in known.items() if name == source.name}
    here = {file.file: file for file in listing(source, landing)}
    fresh = [file for file in here.values() if _is_new(file, seen.get(file.file))]
    if within is not None:
        fresh = [file for file in fresh if dates.of_file(source, file.file, file.modified_at) in within]
    gone = sorted(file for file, row in seen.items() if row["event"] == DELIVERED and file not in here)
    return sorted(fresh, key=lambda file: (file.modified_at, file.file)), [] if within else gone


def _of_source(source: Source, landing: Path, known: Known, within: Interval | None) -> list[dict[str, object]]:
    fresh, gone = news(source, landing, known, within)
    found: list[dict[str, object]] = [
        {
            "source": source.name,
            "file": f.file,
            "event": DELIVERED,
            "size": f.size,
            "modified_at": f.modified_at,
            "sha256": _sha256(f.path),
        }
        for f in fresh
    ]
    return found + [{"source": source.name, "file": file, "event": GONE} for file in gone]


def _is_new(file: LandedFile, known: dict[str, object] | None) -> bool:
    return known is None or known["event"] == GONE or (known["size"], known["modified_at"]) != (file.size, file.modified_at)


def latest(deliveries: str) -> Known:
    """By source and file, the last row of the deliveries table at that path."""
    rows = ledger.rows(deliveries, ["delivery", "source", "file", "event", "size", "modified_at"])
    return {(str(row["source"]), str(row["file"])): row for row in sorted(rows, key=lambda row: int(str(row["delivery"])))}


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
