"""Removes rows by age: those that are older than their source keeps them, and what was set aside or came too late for streams.

Rows older than their source keeps them leave bronze, its quarantine, and every table made from them. Before anything is deleted, a journal records
the deliveries and numbers of the bronze rows to delete. If the run is killed, the next one finishes its work from the journal, however much
later: it knows what has already left bronze, and folds the tables again.

Quarantined rows, and rows that came too late, expire after a declared time. Their counts stay: the outcomes of deliveries and the run ledger
never expire. The bytes go with VACUUM, like those of any row.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import parse_duration
from sluice.erasure.removals_by_age import record_removal_by_age
from sluice.erasure.steps.erasure_step import Follow
from sluice.erasure.steps.flows import reset_restored_views
from sluice.erasure.steps.row_journal import RowJournal
from sluice.erasure.steps.rows import SAME_ROW, delete_by_merge, note_rows, refold_tables_of_source
from sluice.lake import commit_history, file_statistics, log, table_creation, table_frames
from sluice.lake.flow_report import FlowReport, FlowsFailed, TableTurns, report_table_change
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.open_tables import open_table_snapshot
from sluice.own_records import AGING
from sluice.pipeline_records import name_quarantine
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun
from sluice.privacy import suppression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delete_expired_rows(workspace: Workspace, follow: Follow, now: datetime | None = None) -> list[FlowReport]:
    """Deletes what is too old, for every source with `keep_for`. follow: runs the layers above bronze if anything was deleted.

    now: UTC. With nothing to do there is no report and no commit. Raises FlowsFailed, with all reports, if flows that had to follow
    failed; the next run goes on from there.
    """
    turns = TableTurns()
    for source in workspace.graph.sources.values():
        before = suppression.oldest_kept_instant(source, now)
        # What was begun is finished, even if its source by now declares that everything is kept.
        if (before is not None or _open_expiry_journal(workspace, source).is_written()) and delta_log.is_delta_table(
            workspace.path(source.name)
        ):
            turns.reports += turns.take_part(source.name, DELETIONS.name, partial(_expire_source, workspace, source, before))
    every = [one for one in workspace.graph.sources.values() if one.name not in turns.errors]
    begun = [source for source in every if _open_expiry_journal(workspace, source).is_written()]
    reset_restored_views(workspace, set[str]().union(*(workspace.graph.below(source.name) for source in begun)))
    try:
        turns.reports += follow() if begun else []
    except FlowsFailed as failed:  # what was begun stays so, and the next run follows it
        raise FlowsFailed(turns.reports + failed.reports, {**turns.errors, **failed.errors}) from None
    for source in begun:
        record_removal_by_age(workspace.records, source.name)
        _open_expiry_journal(workspace, source).remove_journal()
    return turns.end_turns()


def _expire_source(workspace: Workspace, source: Source, before: datetime | None) -> list[FlowReport]:
    reports: list[FlowReport] = []
    if before is not None:
        reports = [
            one
            for one in (
                _expire_quarantine(workspace, source.name, before),
                *_expire_feeding_quarantines(workspace, source, before),
            )
            if one.deleted
        ]
        if not _open_expiry_journal(workspace, source).is_written():
            _write_expiry_journal(workspace, source, before)
    return reports + (_delete_journalled_rows(workspace, source) if _open_expiry_journal(workspace, source).is_written() else [])


def _delete_journalled_rows(workspace: Workspace, source: Source) -> list[FlowReport]:
    path = workspace.path(source.name)
    old = _open_expiry_journal(workspace, source).read_rows().persist()
    try:
        with report_table_change(source.name, DELETIONS.name, path) as report:
            note_rows(workspace, source.name, old)
            report.deleted = report.rows_out = delete_by_merge(workspace, path, old, SAME_ROW)
            age_of = source.keep_for or "they were kept for when their deletion was begun"
            report.notes.append(f"{count_noun(report.deleted, 'row')} older than {age_of}")
        return [report, *refold_tables_of_source(workspace, source, old, gone=True)]
    finally:
        old.unpersist()


def _select_expired_rows(workspace: Workspace, source: Source, before: datetime) -> DataFrame:
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name))
    return bronze.where(suppression.is_older_than_kept(source, bronze, before)).select(*PROVENANCE)


def _expire_feeding_quarantines(workspace: Workspace, source: Source, before: datetime) -> list[FlowReport]:
    """Expires the quarantines of sources that go into the same table. Those of tables expire with the rows of bronze."""
    return [_expire_quarantine(workspace, one.name, before) for one in workspace.graph.feeding(source.name) if one is not source]


def _expire_quarantine(workspace: Workspace, source: str, before: datetime) -> FlowReport:
    """Rows that could not be read have no time of their own; they count from when they were set aside."""
    name, path = name_quarantine(source), workspace.quarantine(source)
    with report_table_change(name, DELETIONS.name, path) as report:
        if delta_log.is_delta_table(path):
            aside = table_frames.read_table(workspace.session, path)
            old = aside.where(F.col("quarantined_at") < F.lit(before)).select(*PROVENANCE).distinct()
            if note_rows(workspace, name, old):
                report.deleted = report.rows_out = delete_by_merge(workspace, path, old, SAME_ROW)
    return report


def _write_expiry_journal(workspace: Workspace, source: Source, before: datetime) -> None:
    """Writes the list of rows to delete; nothing if there are none."""
    _open_expiry_journal(workspace, source).write_rows(
        _select_expired_rows(workspace, source, before), {"before": before.isoformat()}
    )


def _open_expiry_journal(workspace: Workspace, source: Source) -> RowJournal:
    remedy = f"Remove it: the stage {DELETIONS.name} then begins anew with what is too old."
    return RowJournal(workspace, AGING.name, source.name, "before when rows are too old", remedy)


_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
_SAME_RUN = "t.`_run` <=> s.`_run`"


def remove_old_rows_aside_or_late(workspace: Workspace, now: datetime) -> list[FlowReport]:
    """Remove rows from quarantines and late tables that are older at `now` (UTC) than the pipeline keeps them.

    With nothing to do there is no report and no commit. Each table has one commit: if a run is killed, the next one finds what is left.
    """
    pipeline = workspace.graph.pipeline
    found: list[FlowReport] = []
    if pipeline.keep_quarantine is not None:
        before = now - parse_duration(pipeline.keep_quarantine)
        for declared in workspace.graph:
            if declared.kind.sets_rows_aside:
                name, path = name_quarantine(declared.name), workspace.quarantine(declared.name)
                found += _remove_rows_aside_or_late(
                    workspace, name, path, _find_old_rows_aside(workspace, path, before), SAME_ROW
                )
    if pipeline.keep_late is not None:
        before = now - parse_duration(pipeline.keep_late)
        for stream in workspace.graph.streams.values():
            if stream.may_be_late and stream.late is not None:
                path = workspace.late(stream.name)
                found += _remove_rows_aside_or_late(
                    workspace, stream.late, path, _find_old_late_runs(workspace, path, before), _SAME_RUN
                )
    return found


def _remove_rows_aside_or_late(
    workspace: Workspace, name: str, path: str, old: DataFrame | None, condition: str
) -> Iterator[FlowReport]:
    """old: the old rows, by the columns of the condition; None if there are none."""
    if old is None:
        return
    with report_table_change(name, DELETIONS.name, path) as report:
        if note_rows(workspace, name, old):
            report.expired = report.deleted = report.rows_out = delete_by_merge(workspace, path, old, condition)
            report.notes.append(f"{count_noun(report.expired, 'row')} expired")
    if report.expired:
        yield report


def _find_old_rows_aside(workspace: Workspace, path: str, before: datetime) -> DataFrame | None:
    """The old rows of a quarantine. Checks the log first, which takes no Spark job."""
    if (
        not delta_log.is_delta_table(path)
        or file_statistics.count_rows_in_matching_files(path, {"quarantined_at": [(_LONG_AGO, before)]}) == 0
    ):
        return None
    aside = table_frames.read_table(workspace.session, path)
    return aside.where(F.col("quarantined_at") < F.lit(before)).select(*PROVENANCE).distinct()


def _find_old_late_runs(workspace: Workspace, path: str, before: datetime) -> DataFrame | None:
    """The old rows of a late table, which have the time that they are about, and the run that found them late.

    A killed run is in no ledger. Its commit tells when it was, or, if that is no longer in the log, how long ago at least.
    """
    state = log.read_table_state(path) if delta_log.is_delta_table(path) else None
    if state is None or state.rows == 0:
        return None
    commits = commit_history.read_commit_history(path)
    began = {str(commit["note"]["run"]): commit["at"] for commit in commits if "run" in commit["note"] and commit["at"]}
    began |= _read_starts_of_runs(workspace)
    oldest = min((commit["at"] for commit in commits if commit["at"]), default=before)
    runs = open_table_snapshot(path).query_rows("SELECT DISTINCT _run FROM t")["_run"].to_pylist()
    old = sorted(run for run in runs if run is not None and began.get(run, oldest) < before)
    return table_creation.make_inline_frame(workspace.session, [(run,) for run in old], "_run STRING") if old else None


def _read_starts_of_runs(workspace: Workspace) -> dict[str, datetime]:
    """When each run began."""
    path = workspace.records.run_ledger
    if not delta_log.is_delta_table(path):
        return {}
    rows = open_table_snapshot(path).query_rows("SELECT run, min(started_at) AS at FROM t GROUP BY run").to_pylist()
    return {str(row["run"]): row["at"] for row in rows if row["at"] is not None}
