"""The bytes: when the retention of the tables is over, what former versions were made of goes, and what no version ever knew of.

Never the files of a version that a flow has yet to read, and not while a shallow clone reads them.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime

from sluice import vacuum
from sluice.erasure import requests
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.steps import canaries, sweep
from sluice.errors import SluiceError
from sluice.flows.progress import behind, streams
from sluice.lake import log, shallow
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import VACUUM
from sluice.work_progress import count_work

STEPS = (VACUUM.name, "sweep")


def finish_physical_erasure(
    workspace: Workspace, now: datetime, without: Collection[str] = frozenset(), only: Collection[str] = ()
) -> list[FlowReport]:
    """Bring the requests to their end whose rows have left every table and whose retention is over at `now`. A report a table.

    without: of STEPS, those that are left out, for tests. only: ids of the requests that are brought on; none means all.
    A request stays as it is as long as a flow is behind; its report says so.
    Raises SluiceError where a shallow clone still reads the files, and StopRequested between two tables.
    """
    due = _find_physically_due_requests(workspace, now, only)
    if not due:
        return []
    clones = shallow.find_shallow_clone_lakes(workspace.records)
    if clones:
        raise SluiceError(
            f"Erased people are still in the shallow clone {clones[0]}, which reads the files of this lake. Remove that folder, or make the "
            f"clone anew; then: sluice run {workspace.pipeline} --stage {VACUUM.name}"
        )
    reports = _vacuum_due_tables(workspace, due, now) if VACUUM.name not in without else []
    if "sweep" not in without:
        left = FlowReport(flow="left_over_files", layer=VACUUM.name)
        left.deleted = sweep.remove_leftover_files(workspace, min(time.time(), now.timestamp()))
        reports += [left] if left.deleted else []
    held = [report.flow for report in reports if any(note.startswith(vacuum.HELD) for note in report.notes)]
    if not held:
        removed = sum(report.deleted for report in reports)
        for request in due:
            requests.advance_request_state(workspace.records, request, requests.PHYSICALLY, f"{removed} files removed")
    return reports


def _find_physically_due_requests(workspace: Workspace, now: datetime, only: Collection[str] = ()) -> list[ErasureRequest]:
    """The requests, or of these those, whose bytes may go."""
    found = [one for one in requests.list_erasure_requests(workspace.records) if not only or one.request in only]
    return [one for one in found if _is_physically_due(one, now)]


def _vacuum_due_tables(workspace: Workspace, due: list[ErasureRequest], now: datetime) -> list[FlowReport]:
    """VACUUM where a listing of one's own finds something to remove, and then what VACUUM does not look at."""
    reports, lagging = [], behind.find_lagging_flows(workspace, now)
    paths = {**workspace.tables(), **canaries.canary_table_paths(workspace, due)}
    with count_work("tables searched for files of erased people", len(paths)) as work:
        for name, path in paths.items():
            if log.is_delta_table(path) and sweep.find_orphan_files(path, now):
                streams.stop_if_requested(workspace)
                report = vacuum.vacuum_table(workspace, name, path, lagging.get(path, ()), always=True)
                held = any(note.startswith(vacuum.HELD) for note in report.notes)
                report.deleted += 0 if held else sweep.remove_orphan_files(path, now)
                reports.append(report)
            work.advance()
    return reports


def _is_physically_due(request: ErasureRequest, now: datetime) -> bool:
    due = request.physical_due_at
    return request.state == requests.LOGICALLY and (due is None or datetime.fromisoformat(due) <= now)
