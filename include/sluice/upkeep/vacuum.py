"""VACUUM by a table's own retention property. A retention given with the command would be ignored by Delta, unless it is 0."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sluice.lake import log
from sluice.lake.report import FlowReport, report_table_change
from sluice.lake.tables import RETENTION, parse_interval_length
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import VACUUM

_REMOVES_FILES = ("MERGE", "OPTIMIZE", "DELETE", "UPDATE", "REORG", "RESTORE", "TRUNCATE")


def vacuum_table(workspace: Workspace, name: str, path: str, behind: Sequence[object] = (), always: bool = False) -> FlowReport:
    """Remove the files of one table that no version within its retention needs. No such file, no commit.

    behind: what says of each flow that has yet to read such a file; then nothing is removed. always: also where no commit of the table
    tells of such a file, since those of writes that were aborted are in none.
    """
    with report_table_change(name, VACUUM.name, path) as report:
        if not always and not _is_vacuum_due(path, datetime.now(UTC)):
            pass
        elif behind:
            report.notes += [f"not vacuumed: {one}" for one in behind]
        else:
            workspace.note(VACUUM.name)
            before = _count_data_files(path)
            workspace.session.sql(f"VACUUM delta.`{path}`")
            report.deleted = before - _count_data_files(path)
            report.notes.append(f"{report.deleted} files removed")
    return report


def _is_vacuum_due(path: str, now: datetime) -> bool:
    """Whether a file that was removed from the table has outlived the retention since the last VACUUM."""
    keep = parse_interval_length(log.read_table_properties(path).get(RETENTION, "interval 7 days"))
    last = None
    for commit in log.read_commit_history(path):
        operation, at = str(commit["operation"]), commit["at"]
        if operation == "VACUUM END":
            last = last or at
        elif _is_removing_commit(operation, commit["parameters"]) and at is not None:
            outlived = at + keep
            if outlived <= now and (last is None or last < outlived):
                return True
    return False


def _is_removing_commit(operation: str, parameters: dict[str, object]) -> bool:
    return operation in _REMOVES_FILES or (operation == "WRITE" and parameters.get("mode") == "Overwrite")


def _count_data_files(path: str) -> int:
    return sum(1 for file in Path(path).rglob("*.parquet") if "_delta_log" not in file.parts)
