"""Compares a source's folder with the ledger. It keeps one byte for each known and unchanged file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sluice.ingest.deliveries.known import KnownFiles
from sluice.ingest.deliveries.landed_file import LandedFile
from sluice.ingest.deliveries.seen_files import CONTENT, LastSeenFile, Marks
from sluice.work_progress import count_work


@dataclass(frozen=True)
class FolderLook:
    """told: the files about which something may have to be recorded, each with what is known of it. listed: which of the known files were listed.

    alive: whether the folder has any readable file.
    """

    listed: Marks
    told: list[tuple[LandedFile, LastSeenFile | None]] = field(default_factory=list)
    alive: bool = False


def look_at_files(source: str, files: Iterable[LandedFile], known: KnownFiles) -> FolderLook:
    """Compares files of a source's folder, in any order, with what is known of them. source: its name."""
    seen = known.files_of_source(source)
    listed, told, alive = seen.mark_none(), [], False
    with count_work(f"files of {source} listed") as work:
        for file, last in seen.look_up_files(files, listed):
            alive = alive or file.problem is None
            if last is None or file.problem is not None or not _is_as_it_was_read(file, last, known):
                told.append((file, last))
            work.advance()
    return FolderLook(listed, told, alive)


def _is_as_it_was_read(file: LandedFile, last: LastSeenFile, known: KnownFiles) -> bool:
    return last.event in CONTENT and last.state.is_same(file.state) and not known.is_unread(last)
