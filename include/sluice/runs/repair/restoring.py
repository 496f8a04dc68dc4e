"""Restores a table, in a run of its own under the lease, which the run ledger has as stage and mode `restore`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sluice import delta_log
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.erasure import request_record
from sluice.erasure.removals_by_age import find_last_removal_by_age
from sluice.erasure.request_record import ErasureRequest
from sluice.errors import SluiceError, UsageError, nearest_name_hint
from sluice.lake import commit_history, log, versions
from sluice.lake.commit_history import WITHOUT_ROWS
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import name_quarantined_table
from sluice.pipeline_stages import DELETIONS, RESTORE
from sluice.runs import job
from sluice.runs.execution import clones
from sluice.table_properties import PSEUDONYM_KEYS

if TYPE_CHECKING:
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace


_SECOND = timedelta(seconds=1)  # requests are dated to the second


def find_restorable_table(graph: Graph, name: str) -> Dataset[Any]:
    """The table to restore. Raises UsageError, with the reason, for tables that are never restored."""
    dataset = graph.datasets.get(name)
    called = f"{graph.pipeline.name}.{name}"
    if name in graph.sources:
        raise UsageError(
            f"'{called}' is bronze, which holds every ingested record and cannot go back; the ledgers depend on it. Restore a table that is "
            f"made from it. To remove records: sluice quarantine, sluice erase."
        )
    if dataset is None and name_quarantined_table(name):
        raise UsageError(
            f"'{called}' is a quarantine, on which the ledgers depend. To remove rows from it: sluice quarantine replay, discard."
        )
    if name in graph.computed:
        raise UsageError(f"'{called}' is a view that is computed when it is read. Restore a table that it reads.")
    if dataset and dataset.serves:
        raise UsageError(
            f"'{called}' is the change log of '{dataset.serves}', and complete like bronze. Restore '{dataset.serves}'."
        )
    if dataset is None:
        known = [one.name for one in graph.datasets.values() if not one.serves]
        raise UsageError(f"There is no table '{called}'.{nearest_name_hint(name, known)}")
    return dataset


def run_table_restore(lake: PipelineLake, name: str, to: str, wait: float = 0.0) -> dict[str, Any]:
    """Bring a table back to a version, date or instant. Returns the run's report. Raises as `job.run_recorded_stage` does."""
    dataset = find_restorable_table(lake.graph, name)
    clones.refuse_shared_restricted_tables(lake, [name])
    path = lake.path(name)
    called = f"{lake.graph.pipeline.name}.{name}"
    if not delta_log.is_delta_table(path):
        raise SluiceError(f"Table '{called}' has not been made yet: it has no version to go back to.")
    version = versions.resolve_version(called, path, to)

    def work(workspace: Workspace) -> list[FlowReport]:
        from sluice.flows.copies import restoration
        from sluice.flows.quarantine import settlement
        from sluice.lake.flow_report import FlowReport, end_at_failure
        from sluice.runs.execution import parallel_flows

        _check_restorable_version(workspace, dataset, version, called)
        settlement.finish_interrupted_journals(workspace)
        report = FlowReport(flow=name, layer=RESTORE)
        with end_at_failure([], report):
            parallel_flows.run_timed_flow(
                workspace,
                report,
                lambda: restoration.restore_table_version(
                    workspace, dataset, version, report, _find_expiring_bronze(workspace, dataset)
                ),
            )
        return [report]

    return job.run_under_lease(lake, job.JobRequest(lake.graph.pipeline.name, RESTORE, RESTORE, wait=wait), work)


def describe_restore_effects(dataset: Dataset[Any]) -> str:
    """Describes what happens to the table from now on."""
    if isinstance(dataset, MaterializedView):
        return (
            "The next change of its inputs recomputes what it touches, or all of it if that is cheaper; those rows then follow the inputs again. "
            + ("Its change log was not restored. " if _has_change_log(dataset) else "")
        )
    if dataset.kind.keeps_state:
        return "Its stream goes on with what is new; what it wrote since that version returns only with a refresh. "
    return "Its flow goes on with what is new; what it took since that version is not in it. "


def _has_change_log(dataset: MaterializedView[Any]) -> bool:
    return dataset.of_some is not None


def _check_restorable_version(workspace: Workspace, dataset: Dataset[Any], version: int, called: str) -> None:
    """Raises SluiceError if the version cannot be restored, or if an erased person could come back with it."""
    path = workspace.path(dataset.name)
    versions.check_version_readable(called, path, version)
    now, then = versions.read_version_columns(path), versions.read_version_columns(path, version)
    if now != then:
        differing = sorted(name for name in {*now, *then} if now.get(name) != then.get(name))
        raise SluiceError(
            f"Version {version} of '{called}' has other columns than it has now ({', '.join(differing)}). "
            f"Versions with the columns of now: {versions.describe_versions_with_columns(path, now)}."
        )
    if versions.read_version_properties(path, version).get(PSEUDONYM_KEYS) != log.read_table_properties(path).get(PSEUDONYM_KEYS):
        raise SluiceError(
            f"Version {version} of '{called}' has pseudonyms that were made with another key. Choose a later version."
        )
    _check_expired_rows(workspace, dataset, version, called)
    _check_erased_people(workspace, dataset, version, called, list(now))


def _find_expiring_bronze(workspace: Workspace, dataset: Dataset[Any]) -> str | None:
    """Returns where the bronze rows of a silver table lie, if some of them were, or will be, removed by age. They name the ones that are left."""
    source = dataset.folded_source
    if source is None:
        return None
    expires = (
        workspace.graph.sources[source].keep_for is not None or find_last_removal_by_age(workspace.records, [source]) is not None
    )
    path = workspace.path(source)
    return path if expires and delta_log.is_delta_table(path) else None


def _check_expired_rows(workspace: Workspace, dataset: Dataset[Any], version: int, called: str) -> None:
    """Raises SluiceError for a view's version from before rows were removed by age: nothing says which of its rows were made of them."""
    if dataset.name not in workspace.graph.views:
        return
    below = {source.name for source in workspace.graph.sources.values() if dataset.name in workspace.graph.below(source.name)}
    last = find_last_removal_by_age(workspace.records, below)
    later = [
        commit["at"]
        for commit in commit_history.read_commit_history(workspace.path(dataset.name))
        if commit["version"] > version and commit["at"] is not None and commit["operation"] not in WITHOUT_ROWS
    ]
    # The last version of before, or of, that removal has followed it.
    if last is not None and later and min(later) <= last:
        raise SluiceError(
            f"Rows that have become too old since may be in version {version} of '{called}', and nothing in a view says which. "
            f"Versions from {last:%Y-%m-%dT%H:%M:%SZ} on have none of them. "
            f"Make it from scratch instead: sluice run {workspace.pipeline} --mode refresh --table {dataset.name}"
        )


def _refuse_while_requests_wait(workspace: Workspace, known: list[ErasureRequest]) -> None:
    pipeline = workspace.pipeline
    if any(request.is_waiting for request in known):
        unapproved = " ".join(one.request for one in request_record.list_unapproved_requests(workspace.records))
        approve = f"sluice erase approve {pipeline} {unapproved}, or withdraw them; then: " if unapproved else ""
        raise SluiceError(
            f"Erasure requests of '{pipeline}' wait; a table is restored after them. "
            f"Run: {approve}sluice run {pipeline} --stage {DELETIONS.name}"
        )


def _check_erased_people(workspace: Workspace, dataset: Dataset[Any], version: int, called: str, columns: list[str]) -> None:
    from sluice.flows.copies import restoration

    pipeline = workspace.pipeline
    known = {request.request: request for request in request_record.list_erasure_requests(workspace.records)}
    _refuse_while_requests_wait(workspace, list(known.values()))
    at = versions.read_version_commit_time(workspace.path(dataset.name), version) or datetime.min.replace(tzinfo=UTC)
    for domain, names in sorted(restoration.find_unreachable_erasures(workspace, dataset, columns).items()):
        done = [datetime.fromisoformat(said) for name in names if (one := known.get(name)) and (said := one.rows_left_at)]
        if len(done) < len(names) or at <= max(done) + _SECOND:
            since = f" Versions from {max(done):%Y-%m-%dT%H:%M:%SZ} on have none of them." if len(done) == len(names) else ""
            raise SluiceError(
                f"Somebody who was erased may be in version {version} of '{called}': no column of it says whose its rows are "
                f"by '{domain}', so that they cannot be left out.{since} "
                f"Make it from scratch instead: sluice run {pipeline} --mode refresh --table {dataset.name}"
            )
