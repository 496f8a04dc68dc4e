"""Erasure by age: rows older than their source keeps them leave bronze, its quarantine, and every table made from them.

Before anything is deleted, a journal records the deliveries and numbers of the bronze rows to delete. If the run is killed, the next
one finishes its work from the journal, however much later: it knows what has already left bronze, and folds the tables again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.ingest.source import Source
from sluice.erasure.removals_by_age import record_removal_by_age
from sluice.erasure.steps.erasing import Follow, NotFollowed
from sluice.erasure.steps.flows import reset_restored_views
from sluice.erasure.steps.row_journal import RowJournal
from sluice.erasure.steps.rows import SAME_ROW, delete_by_merge, note_rows, refold_tables_of_source
from sluice.errors import StageEnded
from sluice.lake import table_frames
from sluice.lake.report import FlowReport, report_table_change
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.pipeline_records import name_quarantine
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun
from sluice.privacy import suppression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delete_expired_rows(workspace: Workspace, follow: Follow, now: datetime | None = None) -> list[FlowReport]:
    """Deletes what is too old, for every source with `keep_for`. follow: runs the layers above bronze if anything was deleted.

    now: UTC. With nothing to do there is no report and no commit. Raises NotFollowed, with all reports, if flows that had to follow
    failed; the next run goes on from there.
    """
    reports: list[FlowReport] = []
    errors: dict[str, BaseException] = {}
    for source in workspace.graph.sources.values():
        before = suppression.oldest_kept_instant(source, now)
        # What was begun is finished, even if its source by now declares that everything is kept.
        if (before is not None or _open_expiry_journal(workspace, source).is_written()) and delta_log.is_delta_table(
            workspace.path(source.name)
        ):
            try:
                reports += _expire_source(workspace, source, before)
            except StageEnded:
                raise
            except Exception as error:  # of one source: the others go on
                errors[source.name] = error
                reports.append(FlowReport(flow=source.name, layer=DELETIONS.name))
    every = [one for one in workspace.graph.sources.values() if one.name not in errors]
    begun = [source for source in every if _open_expiry_journal(workspace, source).is_written()]
    reset_restored_views(workspace, set[str]().union(*(workspace.graph.below(source.name) for source in begun)))
    _follow_expired_sources(follow, begun, reports, errors)
    for source in begun:
        record_removal_by_age(workspace.records, source.name)
        _open_expiry_journal(workspace, source).remove_journal()
    if errors:
        raise NotFollowed(reports, errors)
    return reports


def _follow_expired_sources(
    follow: Follow, begun: Sequence[Source], reports: list[FlowReport], errors: Mapping[str, BaseException]
) -> None:
    """Runs the layers above bronze if anything was deleted. Raises NotFollowed, with earlier failures included."""
    if begun:
        try:
            reports += follow()
        except NotFollowed as failed:
            raise NotFollowed(reports + failed.reports, {**errors, **failed.errors}) from None


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
    return RowJournal(workspace, "aging", source.name, "before when rows are too old", remedy)
