"""De-identified copies with numbers, for people who may not read the lake: where they lie, and what each says about itself. Needs no JVM.

<SLUICE_RELEASED>/<pipeline>/<number>/ holds a folder for each Delta table, and `release.json`. Only erasures change it. On a disk,
everybody may read its files and nobody may change them; on a store the bucket's policy decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sluice.delta_log import LOG
from sluice.durable_files import write_json_durably, write_text_durably
from sluice.errors import SluiceError, UsageError
from sluice.locations import Location, remove_folder
from sluice.open_tables import find_table_snapshot
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import RELEASE
from sluice.record_states import DONE
from sluice.stores.store_location import StoreLocation
from sluice.stores.trial import require_able_store

MANIFEST = "release.json"
LAST = "last"
"""The file beside the releases that holds the greatest number ever given to one."""
_OLD, _NEW = ".old", ".new"
_SWAPPING = ".swapping"
"""Ends the name of the object that marks a table on a store as being replaced. What was written to replace it is whole."""


@dataclass(frozen=True)
class Release:
    """A release. said: its manifest.

    The manifest has the release's time and, by table, the version that it was made from, its columns, what was left out, and what was erased
    since.
    """

    pipeline: str
    number: int
    folder: Location
    said: dict[str, Any]

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """What the manifest says about each table."""
        found: dict[str, dict[str, Any]] = self.said["tables"]
        return found

    @property
    def domain(self) -> str:
        """The domain of its pseudonyms. They are made from those of the suppression list, with the same key."""
        return f"sluice: release {self.number} of {self.pipeline}"


def releases_folder(records: PipelineRecords) -> Location:
    """Returns where a pipeline's releases lie."""
    return records.settings.released / records.pipeline


def are_releases_absent(records: PipelineRecords) -> bool:
    """Whether runs have made releases, and nothing is where they lie: the disk that holds them may not be mounted."""
    root = releases_folder(records)
    if (root / LAST).exists() or any(one.name.isdecimal() for one in root.glob("*")):
        return False
    runs = find_table_snapshot(records.run_ledger)
    made = runs.query_rows("SELECT DISTINCT stage, state FROM t").to_pylist() if runs else []
    return {"stage": RELEASE, "state": DONE} in made


def refuse_absent_releases(records: PipelineRecords) -> None:
    """Raises SluiceError if the releases are absent: an erasure would pass them over, and a new one would get a number again."""
    if are_releases_absent(records):
        root = releases_folder(records)
        raise SluiceError(
            f"Pipeline '{records.pipeline}' has made releases, and they are not there: {root}. If they are on a disk or a share, mount that, or "
            f"let SLUICE_RELEASED say where they are. If they were removed for good, say so: write into {root / LAST} the greatest number "
            "that a release had."
        )


def read_pipeline_releases(records: PipelineRecords) -> list[Release]:
    """Returns a pipeline's releases, oldest first, unfinished ones included, because people may be in them."""
    found = [one for one in releases_folder(records).glob("*") if one.name.isdecimal() and one.is_dir()]
    return [
        Release(records.pipeline, int(one.name), one, _read_release_manifest(one))
        for one in sorted(found, key=lambda one: int(one.name))
    ]


def find_release(records: PipelineRecords, number: int) -> Release:
    """Returns a release by its number. Raises UsageError if there is none."""
    known = read_pipeline_releases(records)
    for release in known:
        if release.number == number:
            return release
    there = ", ".join(str(release.number) for release in known) or "none"
    raise UsageError(f"Pipeline '{records.pipeline}' has no release {number}. There are: {there}.")


def begin_release(records: PipelineRecords, said: dict[str, Any]) -> Release:
    """Creates the folder of the next release, with a number that was never used. The manifest is there before any table.

    Raises UsageError for a store on which commits are not safe, and SluiceError if earlier releases are absent.
    """
    refuse_absent_releases(records)
    root = releases_folder(records)
    root.mkdir(parents=True, exist_ok=True)
    last = root / LAST
    if isinstance(root, StoreLocation) and not last.exists():
        require_able_store(str(root))
    number = (
        max([int(last.read_text()) if last.exists() else 0, *(release.number for release in read_pipeline_releases(records))]) + 1
    )
    write_text_durably(last, str(number))
    made = Release(records.pipeline, number, root / str(number), {**said, "release": number, "tables": {}})
    made.folder.mkdir()
    write_release_manifest(made)
    return made


def write_release_manifest(release: Release) -> None:
    """Writes the manifest of the release."""
    write_json_durably(release.folder / MANIFEST, release.said, indent=1)


def remove_release(release: Release) -> None:
    """Removes a release with all of its tables."""
    with release_made_writable(release):
        remove_folder(release.folder, strict=True)


@contextmanager
def release_made_writable(release: Release) -> Iterator[None]:
    """Makes a release writable for a while. Afterwards everybody may read it and nobody may change it. Also repairs what a killed swap left."""
    if isinstance(release.folder, StoreLocation):
        _recover_swap_on_store(release.folder)
        yield
        return
    for path in (release.folder, *release.folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    _recover_interrupted_swap(release)
    try:
        yield
    finally:
        if release.folder.exists():
            for path in sorted(release.folder.rglob("*"), reverse=True):
                path.chmod(0o555 if path.is_dir() else 0o444)
            release.folder.chmod(0o555)


def new_release_table_path(release: Release, table: str) -> Location:
    """Returns where a table is written before it replaces the present one."""
    return release.folder / f"{table}{_NEW}"


def swap_release_table(release: Release, table: str) -> None:
    """Replaces the table by what was written. Nothing of the former one stays: a release has no versions.

    A store has no folders to rename: there the table is away while its files are copied.
    """
    there, old = release.folder / table, release.folder / f"{table}{_OLD}"
    if isinstance(there, StoreLocation):
        mark = there.with_name(f"{table}{_SWAPPING}")
        mark.touch()
        _finish_swap_on_store(mark)
        return
    if there.exists():
        there.rename(old)
    new_release_table_path(release, table).rename(there)
    remove_folder(old)


def remove_release_table(release: Release, table: str) -> None:
    """Removes one table of a release."""
    remove_folder(release.folder / table)


def _recover_interrupted_swap(release: Release) -> None:
    for left in release.folder.glob(f"*{_NEW}"):
        remove_folder(left, strict=True)
    for left in release.folder.glob(f"*{_OLD}"):
        there = left.with_name(left.name.removesuffix(_OLD))
        if there.exists():
            remove_folder(left, strict=True)
        else:
            left.rename(there)


def _finish_swap_on_store(mark: StoreLocation) -> None:
    """Replaces a table by what was written, from whichever step on: what was written stays whole until the mark is gone."""
    there = mark.with_name(mark.name.removesuffix(_SWAPPING))
    written = there.with_name(f"{there.name}{_NEW}")
    there.remove_below()
    files = [folder / name for folder, _, names in written.walk_below() for name in names]
    for file in sorted(files, key=lambda one: LOG in one.parts):  # the log last: a table that is there is whole
        file.copy_to(there.joinpath(*file.relative_to(written).parts))
    mark.unlink(missing_ok=True)
    written.remove_below()


def _recover_swap_on_store(folder: StoreLocation) -> None:
    for mark in folder.glob(f"*{_SWAPPING}"):
        _finish_swap_on_store(mark)
    for left in folder.glob(f"*{_NEW}"):  # it may be incomplete, and the table that it should replace is there
        remove_folder(left)


def _read_release_manifest(path: Location) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads((path / MANIFEST).read_text())
    except FileNotFoundError:
        said = {"tables": {}}
    return said
