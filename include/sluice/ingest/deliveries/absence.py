"""Landing folders whose files are gone: the disk that holds them may not be mounted.

If every file that should be in a folder is gone, discovery stops there, unless the folder holds `MAY_BE_EMPTY`. That file is beside the
others, so it disappears with the disk.
"""

from __future__ import annotations

from sluice.declare.ingest.source import Source
from sluice.errors import UsageError
from sluice.ingest.deliveries.landed_file import resolve_landed_path
from sluice.ingest.deliveries.seen_files import SeenFiles
from sluice.locations import Location, is_on_disk
from sluice.printable import count_noun, match_number

MAY_BE_EMPTY = "_MAY_BE_EMPTY"
"""A file with this name in a source's folder confirms that this is the right folder, and that missing files were removed for good."""
MANY = 10
"""If this many files vanish at once, and they are half of all, there is a warning."""


class AbsentFolder(UsageError):
    """A source's folder has none of the files that the ledger knows there."""


def is_landing_folder_absent(source: Source, landing: Location, seen: SeenFiles) -> bool:
    """Whether every file that should be in a source's folder is gone, and nothing says that this is intended.

    landing: the pipeline's landing folder. seen: what the ledger knows. If only some files are missing, somebody removed them, and the next run
    records that.
    """
    folder = landing / source.path
    if next(seen.expected_files(), None) is None or not is_path_missing(folder / MAY_BE_EMPTY):
        return False
    if not is_on_disk(folder) and not folder.is_dir():
        return True  # nothing is below: one request shows that for a million files
    return all(is_path_missing(resolve_landed_path(folder, file, seen)) for file in seen.expected_files())


def is_path_missing(path: Location) -> bool:
    """Whether a path does not exist. False if this process may not look."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # its folder cannot be looked into now
        return False
    return False


def absent_folder_remedy(folder: Location) -> str:
    """Returns what to do about a folder whose files are gone."""
    return (
        f"If it is on a disk or a share, mount that. If its files were removed for good, say so: "
        f"mkdir -p '{folder}' && touch '{folder / MAY_BE_EMPTY}', and run the pipeline, which takes note of it."
    )


def refuse_absent_folder(source: Source, landing: Location, seen: SeenFiles, here: bool, moved: bool) -> None:
    """Raises AbsentFolder if every file that should be there is gone and the folder is missing, is empty, or is on another device.

    here: whether the folder has any readable file. moved: whether the folder is on another device than before. Other files on the same device
    show that the folder is in use.
    """
    if (here and not moved) or not is_landing_folder_absent(source, landing, seen):
        return
    folder = landing / source.path
    how = "is on another device than before" if folder.is_dir() and here else "is empty" if folder.is_dir() else "is not there"
    count = seen.count_expected()
    raise AbsentFolder(
        f"Source '{source.name}' has no landing folder with its files: {folder} {how}, and the ledger knows {count} "
        f"{'file' if count == 1 else 'files'} in it. Nothing was noted as vanished. {absent_folder_remedy(folder)}"
    )


def vanished_files_warning(folder: Location, missing: int, seen: SeenFiles) -> str | None:
    """Returns the warning for many files that have vanished from a source's folder while others are there, or None."""
    if missing < MANY or 2 * missing < (expected := seen.count_expected()):
        return None
    return (
        f"{missing} of {count_noun(expected, 'file')} {match_number(missing, 'is', 'are')} "
        f"gone from {folder}: their rows stay. Where nobody removed them, bring them back; "
        "those that come back as they were are not read again."
    )
