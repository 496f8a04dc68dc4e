"""VACUUM: the files go that no version within a table's retention needs, by the inventory of its log (`sluice.lake.inventory`).

The retention is the table's own property: one given with the command Delta would ignore, unless it is 0. To be called under the lease.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sluice.delta_log import LOG
from sluice.delta_rs_commits import complete_commit
from sluice.durable_files import write_file_durably
from sluice.errors import SluiceError
from sluice.lake import commit_history, commit_marks, log
from sluice.lake.flow_report import FlowReport, report_table_change
from sluice.lake.inventory import END, START, FileInventory, decide_vacuum, list_possible_locations
from sluice.lake.workspace import Workspace
from sluice.locations import Location, locate
from sluice.open_tables import keep_written_table, open_delta_table
from sluice.pipeline_stages import VACUUM
from sluice.printable import count_noun
from sluice.stores.commit_settling import load_listed_version
from sluice.table_properties import REMOVED_UNTIL, VACUUMED_VERSION, WAITING_FROM, WALKED_AT
from sluice.work_progress import count_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SlowReader(Protocol):
    """A flow or a clone that still needs files which VACUUM would remove; in words, what is to be done. overdue: it was waited for long enough."""

    @property
    def overdue(self) -> bool:
        """Whether it holds the files no longer."""

    def let_go(self) -> str:
        """Do what must be done before the files go. Returns in words what follows for it."""


RemoveInFull = Callable[["SparkSession", str, timedelta, str | None], None]
"""Removes all files that no version of a table needs, by walking its folder: takes the session, the table's path
and retention, and the mark of its commits."""


def vacuum_table(
    workspace: Workspace,
    name: str,
    path: str,
    behind: Sequence[SlowReader] = (),
    at_once: bool = False,
    always: bool = False,
    remove_in_full: RemoveInFull | None = None,
    now: datetime | None = None,
) -> FlowReport:
    """Remove the files of one table that no version within its retention needs, where that is worth it. No such file, no commit.

    behind: the flows and clones that still need such files; as long as one is waited for, nothing is removed. at_once: as `decide_vacuum`.
    always: walk the whole folder even if the log names nothing to remove, since files of aborted writes are in no commit. remove_in_full:
    what does it in full; without it Delta on Spark does. now: when `behind` was found, after which no other file may have become old.
    """
    with report_table_change(name, VACUUM.name, path) as report:
        decision = decide_vacuum(path, now or datetime.now(UTC), at_once)
        needed = always or decision.needed
        report.note_decision(needed, "demanded" if always else decision.why)
        holding = [one for one in behind if not one.overdue]
        if needed and holding:
            report.holds_files = True
            report.notes += [f"not vacuumed: {one}" for one in holding]
            report.note_decision(False, f"{count_noun(len(holding), 'reader', 'is', 'are')} behind; else {report.decision}")
        elif needed:
            report.notes += [one.let_go() for one in behind]
            workspace.mark_next_commits(VACUUM.name)
            mark = commit_marks.read_session_mark(workspace.session)
            if not (always or decision.in_full):
                report.deleted = remove_inventory_files(path, decision.inventory, mark)
            else:
                remove, keep = remove_in_full or _remove_through_spark, decision.inventory.keep
                report.deleted = _count_removed(path, partial(remove, workspace.session, path, keep, mark))
            report.notes.append(f"{count_noun(report.deleted, 'file')} removed")
    return report


def _remove_through_spark(session: SparkSession, path: str, keep: timedelta, mark: str | None) -> None:
    session.sql(f"VACUUM delta.`{path}`")


def _count_removed(path: str, remove: Callable[[], None]) -> int:
    """How many files a VACUUM has removed, by what its last commit says."""
    before = log.latest_table_version(path) or 0
    remove()
    new = (log.latest_table_version(path) or 0) - before
    ended = [commit for commit in commit_history.read_commit_history(path, new) if commit["operation"] == END] if new > 0 else []
    return sum(int(commit["metrics"].get("numDeletedFiles") or 0) for commit in ended)


def remove_inventory_files(path: str, inventory: FileInventory, mark: str | None) -> int:
    """Remove the files of an inventory that may go, between two commits, as Delta's VACUUM does. Returns how many there were.

    The first commit follows the version that the inventory is of: a version that somebody else committed meanwhile, such as a restored one, may
    need the files. Raises SluiceError then, and nothing is removed.
    If it is killed, there is no second commit: the next one finds the same files again, and ignores those that are gone.
    """
    began = datetime.now(UTC)
    kept = str(_milliseconds(inventory.keep.total_seconds()))
    start = _describe_commit(
        START,
        {"retentionCheckEnabled": "true", "defaultRetentionMillis": kept},
        {"numFilesToDelete": str(len(inventory.expired)), "sizeOfDataToDelete": str(inventory.expired_bytes)},
        mark,
    )
    if not _commit_without_data(path, inventory.version + 1, start):
        raise SluiceError(f"Somebody else wrote to the table {path} meanwhile. Nothing was removed. Run again.")
    root, folders = locate(path), set[Location]()
    removed = 0
    with count_work("files removed", len(inventory.expired)) as work:
        for file in inventory.expired:
            found = next(
                (one for one in list_possible_locations(root, file.path) if ".." not in one.parts and one.is_file()), None
            )
            if found is not None:
                found.unlink(missing_ok=True)
                found.with_name(f".{found.name}.crc").unlink(missing_ok=True)
                folders.add(found.parent)
                removed += 1
            work.advance()
    _remove_empty_folders(root, folders)
    walked = {} if inventory.walked_at is None else {WALKED_AT: _milliseconds(inventory.walked_at.timestamp())}
    until = max((file.at for file in inventory.expired), default=began - inventory.keep)
    end = _describe_commit(
        END, {"status": "COMPLETED"}, {"numDeletedFiles": str(removed), "numVacuumedDirectories": "0"}, mark
    ) | {
        **walked,
        REMOVED_UNTIL: _milliseconds(until.timestamp()),
        VACUUMED_VERSION: inventory.version,
        WAITING_FROM: min((file.version for file in inventory.waiting), default=inventory.version + 1),
    }
    while not _commit_without_data(path, open_delta_table(path).version() + 1, end):
        pass  # it says what was done, after whatever somebody else commits
    return removed


def _remove_empty_folders(root: Location, folders: set[Location]) -> None:
    """Those of partitions that have no file any more."""
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        while folder != root and folder.is_relative_to(root):
            try:
                folder.rmdir()
            except OSError:  # there is something in it
                break
            folder = folder.parent


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _describe_commit(operation: str, parameters: dict[str, str], metrics: dict[str, str], mark: str | None) -> dict[str, object]:
    """What a commit says about itself that changes no file of the table."""
    return {
        "timestamp": _milliseconds(time.time()),
        "operation": operation,
        "operationParameters": parameters,
        "isBlindAppend": True,
        "operationMetrics": metrics,
        "engineInfo": commit_history.SLUICE,
        **({"userMetadata": mark} if mark else {}),
    }


def _commit_without_data(path: str, version: int, info: dict[str, object]) -> bool:
    """Commits a version that has the files of the one before. Returns False if somebody else has committed it."""
    content, commit = (json.dumps({"commitInfo": info}) + "\n").encode(), locate(path) / LOG / f"{version:020d}.json"
    try:
        write_file_durably(commit, content, overwrite=False)
    except FileExistsError:
        if commit.read_bytes() != content:  # a store may have lost its answer to this very commit
            return False
    table = load_listed_version(path, version, lambda: open_delta_table(path, version=version))
    complete_commit(path, table)
    keep_written_table(path, open_delta_table(path))
    return True
