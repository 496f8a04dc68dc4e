"""Discovery: what is new in a landing folder becomes deliveries. Others write into that folder; nothing there is changed."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sluice.declare.source import Source
from sluice.errors import UsageError
from sluice.ingest import ledger

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


def discover(sources: list[Source], landing: Path, deliveries: str, run: str) -> int:
    """Give each new or changed file, and each that is there no more, the next delivery number. Returns how many there are.

    landing: the pipeline's landing folder. deliveries: the table. To be called under the pipeline's lease: the numbers increase.
    """
    ledger.create(deliveries, ledger.DELIVERIES)
    known = _latest(deliveries)
    number = max((int(str(row["delivery"])) for row in known.values()), default=0)
    found: list[dict[str, object]] = []
    for source in sources:
        found += _of_source(source, landing, {file: row for (name, file), row in known.items() if name == source.name})
    now = datetime.now(UTC)
    for offset, row in enumerate(found, start=1):
        row.update(delivery=number + offset, discovered_at=now, run=run)
    most = min((source.max_deliveries for source in sources), default=1)
    for start in range(0, len(found), most):
        ledger.append(deliveries, found[start : start + most], ledger.DELIVERIES, run)
    return len(found)


def _of_source(source: Source, landing: Path, known: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    here = {file.file: file for file in listing(source, landing)}
    fresh = [file for file in here.values() if _is_new(file, known.get(file.file))]
    found: list[dict[str, object]] = [
        {
            "source": source.name,
            "file": f.file,
            "event": DELIVERED,
            "size": f.size,
            "modified_at": f.modified_at,
            "sha256": _sha256(f.path),
        }
        for f in sorted(fresh, key=lambda file: (file.modified_at, file.file))
    ]
    gone = sorted(file for file, row in known.items() if row["event"] == DELIVERED and file not in here)
    return found + [{"source": source.name, "file": file, "event": GONE} for file in gone]


def _is_new(file: LandedFile, known: dict[str, object] | None) -> bool:
    return known is None or known["event"] == GONE or (known["size"], known["modified_at"]) != (file.size, file.modified_at)


def _latest(deliveries: str) -> dict[tuple[str, str], dict[str, object]]:
    rows = ledger.rows(deliveries, ["delivery", "source", "file", "event", "size", "modified_at"])
    return {(str(row["source"]), str(row["file"])): row for row in sorted(rows, key=lambda row: int(str(row["delivery"])))}


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
