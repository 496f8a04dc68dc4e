"""The shallow clones that read a pipeline's files: erased people stay in them, and they break when the files are removed.

So VACUUM waits for a clone, as it does for a flow that is behind. Needs no JVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from deltalake.exceptions import DeltaError

from sluice.declare.pipeline import parse_duration
from sluice.delta_log import DamagedLog, is_delta_table
from sluice.lake.clone_registry import find_shallow_clone_lakes
from sluice.lake.commit_history import read_commit_history
from sluice.lake.file_statistics import list_file_values
from sluice.lake.inventory import lies_in_another_table, read_file_inventory
from sluice.lake.log import may_have_deletion_vectors
from sluice.open_tables import open_checked_table
from sluice.pipeline_records import PipelineRecords


@dataclass(frozen=True)
class LaggingClone:
    """A shallow clone that reads files which its source table no longer has, and which VACUUM would remove.

    lake: the clone's. at: since when the table no longer has the first of these files (UTC). now: when that was found. waits: how long VACUUM
    waits, as declared; None: for ever.
    """

    pipeline: str
    lake: str
    at: datetime
    now: datetime
    waits: str | None = None

    @property
    def until(self) -> datetime | None:
        """Returns when VACUUM stops waiting; None: never."""
        return None if self.waits is None else self.at + parse_duration(self.waits)

    @property
    def overdue(self) -> bool:
        """Whether VACUUM has waited long enough."""
        return self.until is not None and self.until <= self.now

    def __str__(self) -> str:
        """Returns a sentence for a report."""
        return f"the shallow clone {self.lake} reads files that the table no longer has; remove that folder, and the files go with the next VACUUM"

    def let_go(self) -> str:
        """Returns a sentence that says that the clone can no longer be read, and how to make it again."""
        return (
            f"the shallow clone {self.lake} is broken now: VACUUM waited {self.waits} for it. Remove that folder and make the clone again, as a "
            f"copy or with --shallow: sluice clone {self.pipeline} --to {self.lake}"
        )


def find_lagging_clones(
    records: PipelineRecords, paths: Iterable[str], waits: str | None, now: datetime
) -> dict[str, list[LaggingClone]]:
    """Returns, by table path, the shallow clones from which VACUUM would take files at `now` (UTC). waits: how long VACUUM waits, as declared.

    A table or clone whose log is damaged is left out: VACUUM reports the table, and the clone cannot be read anyway. A clone that cannot be
    opened, such as for its rights, may read them.
    """
    lakes, found = find_shallow_clone_lakes(records), dict[str, list[LaggingClone]]()
    for path in paths if lakes else ():
        for lake in lakes:
            try:
                at = _find_first_loss(path, _locate_in_clone(records, path, lake), now)
            except DamagedLog:
                continue
            except (DeltaError, OSError):  # nobody can tell now which files it reads, and VACUUM must not fail for other tables
                at = now
            if at is not None:
                found.setdefault(path, []).append(LaggingClone(records.pipeline, lake, at, now, waits))
    return found


def _locate_in_clone(records: PipelineRecords, path: str, lake: str) -> str | None:
    """Returns where a clone has a table; None if tables that lie there are not cloned."""
    home = records.settings.lake
    return lake + path.removeprefix(home) if path.startswith(f"{home}/") else None


def _find_first_loss(path: str, clone: str | None, now: datetime) -> datetime | None:
    """Returns since when a table no longer has a file that its clone reads and that outlived the retention; None if there is no such file.

    If the table's log does not say when files left, it is since the clone was made, and the clone is taken to read what the table has lost.
    """
    if clone is None or not (is_delta_table(path) and is_delta_table(clone)):
        return None
    # The clone names files by addresses and the table by paths; a writer gives no name twice.
    read = {_name_of(file) for file in list_file_values(open_checked_table(clone), "path") if lies_in_another_table(file)}
    if not read:
        return None
    inventory = read_file_inventory(path, now)
    lost = [file.at for file in inventory.expired if _name_of(file.path) in read]
    if lost or not inventory.unknown:
        return min(lost, default=None)
    table, made = open_checked_table(path), read_commit_history(clone)[-1]["at"]
    kept = {_name_of(file) for file in list_file_values(table, "path")}
    # A file that stays may lose the vector of deleted rows that the clone reads.
    return made if made + inventory.keep <= now and (read - kept or may_have_deletion_vectors(table)) else None


def _name_of(file: str) -> str:
    return file.rpartition("/")[2]
