"""Releases tables: makes a numbered, de-identified copy of their current state, for people who may not read the lake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice import delta_log
from sluice.declare.datasets.dataset import Dataset
from sluice.erasure import request_record
from sluice.errors import SluiceError, UsageError, nearest_name_hint
from sluice.lake import log, releases
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.releases import Release
from sluice.pipeline_stages import DELETIONS, RELEASE
from sluice.runs import job
from sluice.runs.execution import clones

if TYPE_CHECKING:
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace


def release_tables(lake: PipelineLake, names: Sequence[str], wait: float = 0.0) -> Release:
    """Releases these tables in their current state, under the pipeline's lease. Raises UsageError for one that cannot be released.

    Raises SluiceError if erasure requests wait: those people would be in the copy. For the same reason UsageError in a clone, which does not
    know who was erased, and whose releases would be those of the lake that it was cloned from.
    """
    clones.refuse_in_clone(lake.records, "Release its tables: they are without those who were erased since.")
    chosen = [_find_releasable_table(lake, name) for name in dict.fromkeys(names)]
    if request_record.list_waiting_requests(lake.records):
        raise SluiceError(
            f"Erasure requests of '{lake.graph.pipeline.name}' wait; a release is made after them. "
            f"Run: sluice run {lake.graph.pipeline.name} --stage {DELETIONS.name}"
        )
    made: list[Release] = []

    def work(workspace: Workspace) -> list[FlowReport]:
        return _write_released_tables(workspace, chosen, made)

    job.run_under_lease(lake, job.JobRequest(lake.graph.pipeline.name, RELEASE, RELEASE, wait=wait), work)
    return made[0]


def _find_releasable_table(lake: PipelineLake, name: str) -> Dataset[Any]:
    from sluice.flows.copies import released

    known = [one.name for one in lake.graph.datasets.values() if not one.serves]
    if name not in known:
        raise UsageError(f"'{lake.graph.pipeline.name}.{name}' is no table that can be released.{nearest_name_hint(name, known)}")
    path, declared = lake.path(name), lake.graph.datasets[name]
    if not delta_log.is_delta_table(path):
        raise SluiceError(
            f"Table '{lake.graph.pipeline.name}.{name}' has not been made yet. Run: sluice run {lake.graph.pipeline.name}"
        )
    released.plan_released_columns(lake.graph, declared, log.read_column_names(path))
    return declared


def _write_released_tables(workspace: Workspace, chosen: Sequence[Dataset[Any]], made: list[Release]) -> list[FlowReport]:
    from sluice.declare.assembly import subjects
    from sluice.flows.copies import released
    from sluice.lake.flow_report import FlowReport

    at = datetime.now(UTC).isoformat(timespec="seconds")
    into = releases.begin_release(workspace.records, {"pipeline": workspace.pipeline, "at": at, "run": workspace.run})
    made.append(into)
    reports = []
    with releases.release_made_writable(into):
        for dataset in chosen:
            report = FlowReport(flow=dataset.name, layer=RELEASE)
            workspace.mark_next_commits(f"release_{into.number}")
            whose = subjects.find_table_subjects(workspace.graph, dataset, log.read_column_names(workspace.path(dataset.name)))
            # Written before any row: an erasure must know of a half-written table.
            into.tables[dataset.name] = {"pseudonyms": {}, "erased": [], "rows": 0, "of_people": True}
            releases.write_release_manifest(into)
            told = released.release_table(workspace, dataset, into)
            into.tables[dataset.name] = {**told, "of_people": bool(whose.columns or whose.unknown)}
            releases.write_release_manifest(into)
            report.count_changes(told["rows"], 0, 0)
            report.note_seconds()
            reports.append(report)
    return reports
