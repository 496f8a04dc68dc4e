"""Expires quarantined rows, and rows that came too late for streams, after a declared time.

Their counts stay: the outcomes of deliveries and the run ledger never expire. The bytes go with VACUUM, like those of any row.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.pipeline import parse_duration
from sluice.erasure.steps.rows import SAME_ROW, delete_by_merge, note_rows
from sluice.lake import commit_history, file_statistics, log, table_frames, tables
from sluice.lake.report import FlowReport, report_table_change
from sluice.lake.workspace import PROVENANCE, Workspace, has_quarantine
from sluice.open_tables import open_table_snapshot
from sluice.pipeline_records import name_quarantine
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
_SAME_RUN = "t.`_run` <=> s.`_run`"


def remove_expired_rows(workspace: Workspace, now: datetime) -> list[FlowReport]:
    """Remove rows from quarantines and late tables that are older at `now` (UTC) than the pipeline keeps them.

    With nothing to do there is no report and no commit. Each table has one commit: if a run is killed, the next one finds what is left.
    """
    pipeline = workspace.graph.pipeline
    found: list[FlowReport] = []
    if pipeline.keep_quarantine is not None:
        before = now - parse_duration(pipeline.keep_quarantine)
        for declared in workspace.graph:
            if has_quarantine(declared):
                name, path = name_quarantine(declared.name), workspace.quarantine(declared.name)
                found += _remove_rows(workspace, name, path, _find_old_rows_aside(workspace, path, before), SAME_ROW)
    if pipeline.keep_late is not None:
        before = now - parse_duration(pipeline.keep_late)
        for stream in workspace.graph.streams.values():
            if stream.may_be_late and stream.late is not None:
                path = workspace.late(stream.name)
                found += _remove_rows(workspace, stream.late, path, _find_old_late_runs(workspace, path, before), _SAME_RUN)
    return found


def _remove_rows(workspace: Workspace, name: str, path: str, old: DataFrame | None, condition: str) -> Iterator[FlowReport]:
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
    return tables.make_inline_frame(workspace.session, [(run,) for run in old], "_run STRING") if old else None


def _read_starts_of_runs(workspace: Workspace) -> dict[str, datetime]:
    """When each run began."""
    path = workspace.records.run_ledger
    if not delta_log.is_delta_table(path):
        return {}
    rows = open_table_snapshot(path).query_rows("SELECT run, min(started_at) AS at FROM t GROUP BY run").to_pylist()
    return {str(row["run"]): row["at"] for row in rows if row["at"] is not None}
