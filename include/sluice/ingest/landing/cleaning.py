"""Cleans a landing folder: files whose ingestion was committed are archived or deleted after a while, if the source says so.

That a file was cleaned is committed before it is touched. So the next run finishes a killed cleaning, and a file that its producer puts back
unchanged is not a new delivery.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sluice.declare.ingest.source import Source
from sluice.delivery_rows import RECORDED, DeliveryRow
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.absence import is_path_missing
from sluice.ingest.deliveries.known_files import KnownFiles, read_known_files
from sluice.ingest.deliveries.landed_file import LandedFile, is_file_in_state
from sluice.ingest.deliveries.listing import list_ready_files
from sluice.ingest.files import decompression
from sluice.locations import Location, locate
from sluice.printable import count_noun
from sluice.record_states import CLEANED, DELIVERED, INGESTED
from sluice.stores.opening import ObjectChanged
from sluice.stores.store_location import StoreLocation

ARCHIVE = "_archive"
"""The folder below a pipeline's landing folder for archived files. No source looks into it."""

_IN_FRONT, _BEHIND = re.compile(r"\A(\d+\.){1,2}"), re.compile(r"(\.\d+){1,2}\Z")


@dataclass(frozen=True)
class CleaningResult:
    """What was done. files: how many were archived or deleted. failed: how many could not be, by reason."""

    files: int = 0
    failed: Counter[str] = field(default_factory=Counter)

    def notes(self, source: Source) -> list[str]:
        """Returns notes for a run's report."""
        what = "archived" if source.clean_source == "archive" else "deleted"
        said = [f"{count_noun(self.files, 'file')} {what}"] if self.files else []
        return said + [f"{count_noun(count, 'file')} could not be {what}: {why}" for why, count in sorted(self.failed.items())]


def clean_landing_folder(source: Source, landing: Location, deliveries: str, outcomes: str, run: str) -> CleaningResult:
    """Archives or deletes the files of a source that are due, and notes it in the deliveries table. landing: the pipeline's landing folder.

    A file is due if its last delivery was ingested `clean_after_days` ago and the file is unchanged since. Call it under the lease.
    """
    if source.clean_source == "keep":
        return CleaningResult()
    known = read_known_files(deliveries, outcomes)
    before = datetime.now(UTC) - timedelta(days=source.clean_after_days)
    ingested = _find_cleanable_deliveries(outcomes, source.name, before)
    due = [(file, number) for file, number in _list_unchanged_files(source, landing, known) if number in ingested]
    fresh: list[DeliveryRow] = [
        {
            "source": source.name,
            "file": file.file,
            "event": CLEANED,
            "size": file.size,
            "modified_at": file.modified_at,
            "etag": file.etag,
        }
        for file, _ in due
        if known.files_of_source(source.name)[file.file].event == DELIVERED
    ]
    delivery_tables.append_numbered_deliveries(deliveries, [fresh], known.last, run)
    remove = _build_file_archiver(source, landing) if source.clean_source == "archive" else _delete_landed_file
    failed: Counter[str] = Counter()
    for file, number in due:
        try:
            remove(file, number)
        except (FileNotFoundError, ObjectChanged):  # changed or gone since it was listed
            continue
        except OSError as error:
            failed[error.strerror or type(error).__name__] += 1
    return CleaningResult(len(due) - sum(failed.values()), failed)


def _list_unchanged_files(source: Source, landing: Location, known: KnownFiles) -> Iterator[tuple[LandedFile, int]]:
    """Returns the unchanged files, each with the number of its delivery, or 0 if it should be gone already."""
    seen = known.files_of_source(source.name)
    for file, last in seen.look_up_files(list_ready_files(source, landing)):
        if last is not None and last.state.is_same(file.state):
            if last.event == CLEANED:
                yield file, 0
            elif last.event == DELIVERED:
                yield file, last.delivery


def _find_cleanable_deliveries(outcomes: str, source: str, before: datetime) -> set[int]:
    """Returns the source's deliveries that were ingested before an instant and still count as ingested; and 0."""
    last = delivery_tables.read_last_outcomes(outcomes, ["state"], source=source)
    return {0, *(number for number, row in last.items() if row["state"] == INGESTED and row[RECORDED] <= before)}


def _delete_landed_file(file: LandedFile, number: int) -> None:
    _require_unchanged_file(file)
    path = locate(file.path)
    if isinstance(path, StoreLocation) and file.etag is not None:
        path.remove_tagged(file.etag)
    else:
        path.unlink()


def _build_file_archiver(source: Source, landing: Location) -> Callable[[LandedFile, int], None]:
    root = landing / source.path

    def move(file: LandedFile, number: int) -> None:
        _require_unchanged_file(file)
        path = locate(file.path)
        target = landing / ARCHIVE / source.path / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(_find_free_path(target, number))

    return move


def archived_file_names(archived: str) -> tuple[str, str, str]:
    """Returns the name of an archived file, and its names before it got a number: in front, or behind as in earlier versions."""
    return archived, _IN_FRONT.sub("", archived), _BEHIND.sub("", archived)


def restore_archived_suffix(archived: Location) -> Location:
    """Returns where an archived file lies from now on. A number behind the name, as in earlier versions, hid the suffix: it is put in front."""
    number, name = _BEHIND.search(archived.name), _BEHIND.sub("", archived.name)
    if number is None or not name.lower().endswith(decompression.SUFFIXES) or archived.is_symlink():
        return archived
    target = _find_free_path(archived.with_name(name), int(number[0].split(".")[1]))
    try:
        return archived.rename(target)
    except FileNotFoundError:  # gone since it was listed
        return archived


def _find_free_path(target: Location, number: int) -> Location:
    """Returns a free path: the target, or its name with the delivery's number, or with a further one.

    The number comes before the name, because the name's end says how to read the file.
    """
    if is_path_missing(target):
        return target
    names = [f"{number}.{target.name}", *(f"{number}.{further}.{target.name}" for further in range(1, 10_000))]
    return next(path for name in names if is_path_missing(path := target.with_name(name)))


def _require_unchanged_file(file: LandedFile) -> None:
    """Raises FileNotFoundError if the file has changed since it was listed."""
    if not is_file_in_state(file.path, file.state):
        raise FileNotFoundError
