"""The physical erasure: after the tables' retention, removes the files of former versions, and files that no version ever listed.

It never removes files of a version that a flow has yet to read, and removes nothing while a shallow clone reads the files.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial

from sluice import delta_log, vacuum
from sluice.erasure import request_events, request_record, requests
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.steps import canaries, sweep
from sluice.errors import SluiceError
from sluice.flows.progress import positions, streams
from sluice.flows.quarantine import settlement
from sluice.ingest.landing import rewriting
from sluice.lake import releases, restricted_tables
from sluice.lake.clone_registry import find_shallow_clone_lakes
from sluice.lake.flow_report import FlowReport, TableTurns, take_table_turns
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import VACUUM
from sluice.printable import count_noun
from sluice.stores.former_versions import remove_former_versions
from sluice.stores.store_location import StoreLocation
from sluice.work_progress import count_work

REMOVAL_OF_BYTES = "removal_of_bytes"
"""The name of all of it as a part of a stage."""


def finish_physical_erasure(workspace: Workspace, now: datetime, only: Collection[str] = ()) -> list[FlowReport]:
    """Finishes the requests whose rows have left every table and whose retention is over at `now`. Returns one report per table.

    only: the ids of the requests to finish; empty means all. While a flow is behind, a request keeps its state, and its report says so.
    Raises SluiceError if restricted tables or releases are absent or a shallow clone still reads the files, StopRequested between two
    tables, and FlowsFailed, once all tables had their turn, if the work failed on one: then too the requests keep their state.
    """
    due = _find_physically_due_requests(workspace, now, only)
    if not due:
        return []
    # What is on a disk that is not mounted has not been removed.
    restricted_tables.refuse_absent_restricted_tables(workspace.lake)
    releases.refuse_absent_releases(workspace.records)
    clones = find_shallow_clone_lakes(workspace.records)
    if clones:
        raise SluiceError(
            f"Erased people are still in the shallow clone {clones[0]}, which reads the files of this lake. Remove that folder, or make the "
            f"clone anew; then: sluice run {workspace.pipeline} --stage {VACUUM.name}"
        )
    with take_table_turns(VACUUM.name) as turns:
        _vacuum_due_tables(workspace, turns, due, now)
        turns.reports += turns.take_part(_LEFT_OVER, VACUUM.name, lambda: _sweep_leftover_files(workspace, now))
        held = any(report.holds_files for report in turns.reports)
        if not (held or turns.errors):
            turns.reports += _remove_due_versions(workspace, due)
    if not held:
        removed = sum(report.deleted for report in turns.reports)
        for request in due:
            requests.advance_request_state(
                workspace.records, request, request_events.PHYSICALLY, f"{count_noun(removed, 'file')} removed"
            )
    return turns.reports


_LEFT_OVER = "left_over_files"


def _find_physically_due_requests(workspace: Workspace, now: datetime, only: Collection[str] = ()) -> list[ErasureRequest]:
    """The requests whose bytes may be removed, limited to `only` if given."""
    found = [one for one in request_record.list_erasure_requests(workspace.records) if not only or one.request in only]
    return [one for one in found if one.may_bytes_go(now)]


def _vacuum_due_tables(workspace: Workspace, turns: TableTurns, due: list[ErasureRequest], now: datetime) -> None:
    """Runs VACUUM on tables where our own listing finds files to remove, then removes what VACUUM does not look at."""
    lagging = positions.find_lagging_flows(workspace, now)
    paths = {**workspace.lake.record_tables(), **canaries.canary_table_paths(workspace, due)}
    with count_work("tables searched for files of erased people", list(paths)) as work:
        for name, path in paths.items():
            if delta_log.is_delta_table(path):
                turns.take_turn(
                    name, VACUUM.name, path, partial(_vacuum_due_table, workspace, name, path, lagging.get(path, ()), now)
                )
            work.advance()


def _vacuum_due_table(
    workspace: Workspace, name: str, path: str, lagging: Sequence[vacuum.SlowReader], now: datetime
) -> FlowReport | None:
    """Returns None for a table without a file to remove."""
    if not sweep.find_orphan_files(path, now):
        return None
    streams.stop_if_requested(workspace)
    report = vacuum.vacuum_table(workspace, name, path, lagging, always=True)
    report.deleted += 0 if report.holds_files else sweep.remove_orphan_files(path, now)
    return report


def _sweep_leftover_files(workspace: Workspace, now: datetime) -> list[FlowReport]:
    left = FlowReport(flow=_LEFT_OVER, layer=VACUUM.name)
    left.deleted = sweep.remove_leftover_files(workspace, min(time.time(), now.timestamp()))
    return [left] if left.deleted else []


def _remove_due_versions(workspace: Workspace, due: list[ErasureRequest]) -> list[FlowReport]:
    """Removes the versions of objects that a store keeps from before the people had left every table, and of landed files rewritten since."""
    settings, left = workspace.settings, max(datetime.fromisoformat(one.rows_left_at) for one in due if one.rows_left_at)
    report = FlowReport(flow="former_versions", layer=VACUUM.name)
    for root in settings.scanned_roots.values():
        folder = root / workspace.pipeline
        if isinstance(folder, StoreLocation):
            report.deleted += remove_former_versions(folder, left, lambda: streams.stop_if_requested(workspace))
    report.deleted += rewriting.remove_versions_of_rewritten_files(settlement.rewriting_journal_folder(workspace))
    return [report] if report.deleted else []
