"""Propagating deletions: whoever asked to be erased leaves every place of the lake, and what is made from those places follows.

The order matters. The suppression list is extended first, so that nothing lets the person in again while the deletion goes on; what
remembers people by itself is reset before the rows go that it was made of; what reads tables follows when they are clean; and files that
nobody reads any more go last. Each step is noted for each table, so that a killed propagation goes on where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from sluice.erasure import anonymisation, asking, canonical_entries, ledger, other_cells, requests
from sluice.erasure.control import canary
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.steps import canaries, flows, landing, naming, purge, releases, rows, state, sweep
from sluice.erasure.steps.erasing import Erasing, Follow
from sluice.erasure.subjects import settling
from sluice.lake import log, shallow
from sluice.lake.report import FlowReport
from sluice.lake.tables import RETENTION, duration
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression

Step = Callable[[Erasing], None]


def suppress(erasing: Erasing) -> None:
    """Put the requests' subjects on the suppression list."""
    suppression.add(erasing.workspace, {request.request: request.subjects for request in erasing.waiting})


def _tables(erasing: Erasing) -> None:
    rows.tables(erasing)
    canaries.clear(erasing, "table")


def _quarantine(erasing: Erasing) -> None:
    rows.quarantine(erasing)
    canaries.clear(erasing, "quarantine")


def _landing(erasing: Erasing) -> None:
    landing.landing(erasing)
    canaries.clear(erasing, "landing", "archive")


def _state(erasing: Erasing) -> None:
    state.state(erasing)
    canaries.clear(erasing, "state")


def _sweep(erasing: Erasing) -> None:
    sweep.sweep(erasing)
    canaries.clear(erasing, "temporary")


STEPS: Mapping[str, Step] = MappingProxyType({
    "suppress": suppress,
    "flows": flows.rebase,
    "anonymise": anonymisation.anonymise,
    "other_cells": other_cells.empty_cells,
    "tables": _tables,
    "late": rows.late,
    "quarantine": _quarantine,
    "unattributed": naming.unattributed,
    "views": flows.views,
    "releases": releases.erase,
    "purge": purge.purge,
    "state": _state,
    "landing": _landing,
    "sweep": _sweep,
})
"""What is done, by name and in order. The bytes of former versions follow when their retention is over: `physical`."""


def propagate(
    workspace: Workspace, follow: Follow, without: Collection[str] = frozenset(), only: Collection[str] = ()
) -> list[FlowReport]:
    """Carry out every request that is received. follow: runs the flows above bronze. without: steps that are left out, for tests.

    only: ids of the requests that are carried out; the others wait, those too that are found in data. None means all.
    A killed propagation is simply run again. Raises SluiceError where a step cannot be done; the requests then stay as they are.
    """
    settings, pipeline = workspace.settings, workspace.pipeline
    canonical_entries.recompute_entries(workspace)
    asking.take(workspace)
    if not requests.waiting(settings, pipeline, only):
        return landing.again(workspace)
    settled = canary.plant(workspace, settling.settled(workspace, only))
    erasing = Erasing(workspace, settled, follow)
    for name, step in STEPS.items():
        if name not in without:
            step(erasing)
    _told_of_clones(workspace, erasing.reports)
    due = _physical_due(workspace, settled)
    taken_out = _taken_out(workspace)
    for request in settled:
        note = f"{taken_out[request.request]} rows"
        requests.advance(settings, pipeline, request, requests.LOGICALLY, note, physical_due_at=due.isoformat(timespec="seconds"))
    return erasing.reports


def _taken_out(workspace: Workspace) -> Counter[str]:
    """How many rows the requests have taken out of tables; those that are carried out together have the same ones."""
    found: Counter[str] = Counter()
    for one in ledger.rows(workspace.settings, workspace.pipeline):
        found[one.request] += one.rows if one.step in ("tables", "late", "quarantine") else 0
    return found


def _physical_due(workspace: Workspace, settled: Sequence[ErasureRequest]) -> datetime:
    """When the files that hold them may go: the longest retention of a table after now, when the last of them was taken out."""
    tables = {**workspace.tables(), **canaries.tables_of(workspace, settled)}
    keeps = [duration(log.properties(path).get(RETENTION, "interval 7 days")) for path in tables.values() if log.exists(path)]
    # A second more, since commits are stamped in milliseconds and this is not.
    return datetime.now(UTC) + max(keeps, default=timedelta()) + timedelta(seconds=1)


def _told_of_clones(workspace: Workspace, reports: list[FlowReport]) -> None:
    lakes = shallow.registered(workspace.settings, workspace.pipeline)
    for report in reports[:1]:
        report.notes += [f"still in the shallow clone {lake}: remove it" for lake in lakes]
