"""Landing folders whose files are not there: a disk may not be mounted, with all that is on it.

Where none of the files is there that should be, the folder is not looked at any further, unless it holds `MAY_BE_EMPTY`. That lies with
the files: it goes when the disk goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from sluice.declare.ingest.source import Source
from sluice.errors import UsageError
from sluice.file_events import DELIVERED, EXISTING
from sluice.ingest.deliveries.known import LastSeenFile
from sluice.ingest.deliveries.listing import resolve_landed_path

MAY_BE_EMPTY = "_MAY_BE_EMPTY"
"""A file of that name in a source's folder says that this is the folder, and that whatever is not in it was removed for good."""
MANY = 10
"""So many vanished files at once, if they are half of all, are worth a warning."""


class AbsentFolder(UsageError):
    """A source's folder has none of the files that the ledger knows there."""


def expected_files(seen: Mapping[str, LastSeenFile]) -> list[str]:
    """The files that should be in a source's folder. seen: what the ledger knows."""
    return [file for file, last in seen.items() if file and last.event in (DELIVERED, EXISTING)]


def is_landing_folder_absent(source: Source, landing: Path, seen: Mapping[str, LastSeenFile]) -> bool:
    """Whether there are files that should be in a source's folder and each of them is gone, and no word says that this may be.

    landing: the pipeline's; seen: what the ledger knows. One that is missing beside others was removed by somebody: the next run takes
    note of it.
    """
    folder = landing / source.path
    files = expected_files(seen)
    return (
        bool(files)
        and is_path_missing(folder / MAY_BE_EMPTY)
        and all(is_path_missing(resolve_landed_path(folder, file)) for file in files)
    )


def is_path_missing(path: Path) -> bool:
    """Whether nothing is there. Not of what may not be looked at."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # its folder may not be looked into now
        return False
    return False


def absent_folder_remedy(folder: Path) -> str:
    """What to do about a folder whose files are not there."""
    return (
        f"If it is on a disk or a share, mount that. If its files were removed for good, say so: "
        f"mkdir -p '{folder}' && touch '{folder / MAY_BE_EMPTY}', and run the pipeline, which takes note of it."
    )


def refuse_absent_folder(
    source: Source, landing: Path, seen: Mapping[str, LastSeenFile], here: Collection[str], moved: bool
) -> None:
    """Raise AbsentFolder where a source's folder is not there, is empty, or is another device's, with none of the files that should be there.

    here: the files that are there and can be looked at; moved: whether the folder is on another device than it was. Other files in the
    place of those that should be there, on the same device, are a folder that lives.
    """
    if (here and not moved) or not is_landing_folder_absent(source, landing, seen):
        return
    folder = landing / source.path
    how = "is on another device than before" if folder.is_dir() and here else "is empty" if folder.is_dir() else "is not there"
    count = len(expected_files(seen))
    raise AbsentFolder(
        f"Source '{source.name}' has no landing folder with its files: {folder} {how}, and the ledger knows {count} "
        f"{'file' if count == 1 else 'files'} in it. Nothing was noted as vanished. {absent_folder_remedy(folder)}"
    )


def vanished_files_warning(folder: Path, missing: int, expected: int) -> str | None:
    """What is said where many of a source's files have vanished from a folder that lives."""
    if missing < MANY or 2 * missing < expected:
        return None
    return (
        f"{missing} of {expected} files are gone from {folder}: their rows stay. Where nobody removed them, bring them back; "
        "those that come back as they were are not read again."
    )
