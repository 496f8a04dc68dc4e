"""Readmits and discards quarantined rows, in a run of its own under the lease, which the run ledger has as stage `quarantine`."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.errors import UsageError, nearest_name_hint
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_stages import READMISSION
from sluice.runs import job
from sluice.runs.execution import clones

if TYPE_CHECKING:
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace
    from sluice.quality.quarantine import QuarantinedRow


@dataclass(frozen=True)
class QuarantineSelection:
    """Entries of one table's quarantine; None: all of them."""

    table: str
    entries: tuple[QuarantinedRow, ...] | None


def parse_quarantine_selection(graph: Graph, ids: Sequence[str], all_of: str | None = None) -> list[QuarantineSelection]:
    """Parse ids TABLE/DELIVERY and TABLE/DELIVERY/ROW into entries by table. all_of: a table. Raises UsageError for an invalid id."""
    if bool(ids) == bool(all_of):
        raise UsageError("Say either which entries, as TABLE/DELIVERY or TABLE/DELIVERY/ROW, or --all TABLE.")
    names = [*graph.sources, *graph.tables]
    found: dict[str, list[QuarantinedRow]] = {}
    for text in ids:
        table, entry = parse_quarantine_entry(text)
        found.setdefault(table, []).append(entry)
    for name in [all_of] if all_of else found:
        if name not in names:
            raise UsageError(f"No table '{name}' of '{graph.pipeline.name}' has a quarantine.{nearest_name_hint(name, names)}")
    if all_of:
        return [QuarantineSelection(all_of, None)]
    return [QuarantineSelection(name, tuple(dict.fromkeys(found[name]))) for name in names if name in found]


def parse_quarantine_entry(text: str) -> tuple[str, QuarantinedRow]:
    """The table and entry of an id. Raises UsageError."""
    table, *numbers = text.split("/")
    if not table or not 1 <= len(numbers) <= 2 or not all(number.isdecimal() for number in numbers):
        raise UsageError(
            f"'{text[:60]}' is no id: write TABLE/DELIVERY for a file or all its rows, TABLE/DELIVERY/ROW for one row."
        )
    return table, (int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else None)


def run_quarantine_replay(lake: PipelineLake, wanted: Sequence[QuarantineSelection], wait: float = 0.0) -> dict[str, Any]:
    """Check entries again by today's declarations. Returns the run's report. Raises as `job.run_recorded_stage` does."""
    from sluice.flows.quarantine import readmission

    def again(workspace: Workspace, one: QuarantineSelection, report: FlowReport) -> None:
        readmission.replay_quarantined_entries(workspace, one.table, one.entries, report)

    return _run_on_quarantine(lake, wanted, wait, again)


def run_quarantine_discard(
    lake: PipelineLake, wanted: Sequence[QuarantineSelection], reason: str, wait: float = 0.0
) -> dict[str, Any]:
    """Remove entries for good; the ledger records who did it and why. Returns the run's report. Raises as `job.run_recorded_stage` does.

    Raises UsageError for a table that is no source, before anything starts.
    """
    for one in wanted:
        if one.table not in lake.graph.sources:
            raise UsageError(
                f"'{one.table}' is a table, no source: its rows stay in bronze, and every run that folds them checks them again. "
                f"Correct the transform or the rule, then: sluice quarantine replay {lake.graph.pipeline.name} --all {one.table}. "
                "Only rows in a source's quarantine can be discarded."
            )
    from sluice.flows.quarantine import readmission

    said = f"discarded by {_current_user_name()}: {' '.join(reason.split())}"

    def away(workspace: Workspace, one: QuarantineSelection, report: FlowReport) -> None:
        readmission.discard_quarantined_entries(workspace, one.table, one.entries or (), said, report)

    return _run_on_quarantine(lake, wanted, wait, away)


def _run_on_quarantine(
    lake: PipelineLake,
    wanted: Sequence[QuarantineSelection],
    wait: float,
    do: Callable[[Workspace, QuarantineSelection, FlowReport], None],
) -> dict[str, Any]:
    def work(workspace: Workspace) -> list[FlowReport]:
        from sluice.flows.quarantine import settlement
        from sluice.lake.flow_report import FlowReport, end_at_failure
        from sluice.runs.execution import parallel_flows

        settlement.finish_interrupted_journals(workspace)
        reports: list[FlowReport] = []
        for one in wanted:
            report = FlowReport(flow=one.table, layer=lake.graph.layer(lake.graph[one.table]))
            with end_at_failure(reports, report):
                parallel_flows.run_timed_flow(workspace, report, partial(do, workspace, one, report))
        return reports

    clones.refuse_in_clone(lake.records, "Readmit or discard rows there, then remove the clone and make it again.")
    return job.run_under_lease(lake, job.JobRequest(lake.graph.pipeline.name, READMISSION, wait=wait), work)


def _current_user_name() -> str:
    return os.environ.get("SUDO_USER") or getpass.getuser()
