"""Removes rows of erased people from tables, by a merge on the table's own values: no value gets into a plan or the history.

Also removes them from every release, at once, since a release has no earlier version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice import delta_log
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_columns, quote_identifier
from sluice.erasure import vault
from sluice.erasure.request_events import name_erasure_flow
from sluice.erasure.steps import subject_tables
from sluice.erasure.steps.erasure_step import ErasureStep, Propagation
from sluice.erasure.steps.subject_tables import SubjectTable
from sluice.flows.copies import released
from sluice.flows.silver import refold
from sluice.lake import commit_marks, releases, small_writes, table_frames
from sluice.lake.batch_sizes import collect_few_rows
from sluice.lake.flow_report import FlowReport, report_table_change
from sluice.lake.releases import Release
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.pipeline_records import name_quarantined_table
from sluice.pipeline_stages import DELETIONS
from sluice.privacy import secrets, suppression
from sluice.privacy.pseudonyms import compute_pseudonym

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sluice.declare.datasets.tables import AnyTable

SAME_ROW = " AND ".join(f"t.{quote_identifier(name)} <=> s.{quote_identifier(name)}" for name in PROVENANCE)
"""The merge condition by which rows of bronze or quarantine are the same: their provenance."""

_SUBJECT, _AT = "_erased_subject", "_erased_at"
_DELIVERY = PROVENANCE[0]


def erase_quarantined_rows(step: ErasureStep) -> None:
    """Erases from the quarantines of bronze and silver, as far as their rows are attributed."""
    erase_step_tables(step, subject_tables.find_subject_quarantines(step.propagation.workspace), by_row=True)


def erase_late_rows(step: ErasureStep) -> None:
    """Erases from the late tables of streams."""
    erase_step_tables(step, subject_tables.find_late_subject_tables(step.propagation.workspace))


def erase_step_tables(
    step: ErasureStep, found: list[SubjectTable], left: Mapping[str, int] = MappingProxyType({}), by_row: bool = False
) -> None:
    """Erases from these tables, except where the step is done. left: by reported table, how many rows have already left it.

    by_row: see `delete_suppressed_rows`.
    """
    propagation = step.propagation
    for name, of_table in group_by_table(found).items():
        if not step.is_done(name):
            report = delete_suppressed_rows(propagation.workspace, of_table, by_row=by_row)
            propagation.reports += [report] if report.deleted or name not in left else []
            step.record_done(name, rows=report.deleted + left.get(name, 0))


def group_by_table(found: Iterable[SubjectTable]) -> dict[str, list[SubjectTable]]:
    """The subject tables by table: a table is there once per kind of subject it has."""
    by_table: dict[str, list[SubjectTable]] = {}
    for subject_table in found:
        by_table.setdefault(subject_table.name, []).append(subject_table)
    return by_table


def delete_suppressed_rows(workspace: Workspace, of_table: list[SubjectTable], by_row: bool = False) -> FlowReport:
    """Removes the rows of everybody on the suppression list from a table. of_table: the table, once per kind of subject it has.

    by_row: rows are matched by delivery and number, and their time is taken from the record.
    """
    name, path = of_table[0].name, of_table[0].path
    with report_table_change(name, DELETIONS.name, path) as report:
        for subject_table in of_table:
            gone = (
                _find_suppressed_quarantine_rows(workspace, subject_table)
                if by_row
                else _find_suppressed_subjects(workspace, subject_table)
            ).persist()
            try:
                if note_rows(workspace, name, gone):
                    deleted = delete_by_merge(workspace, path, gone, _erasure_merge_condition(subject_table, gone.columns))
                    report.deleted += deleted
                    report.rows_out += deleted
            finally:
                gone.unpersist()
    return report


def note_rows(workspace: Workspace, name: str, rows: DataFrame) -> bool:
    """Marks the following commits as the erasure's, with the deliveries of these rows if known. Returns whether there are any rows."""
    if "_delivery" not in rows.columns:
        workspace.mark_next_commits(name_erasure_flow(name))
        return not rows.isEmpty()
    deliveries = sorted(row._delivery for row in rows.select("_delivery").distinct().collect())
    workspace.mark_next_commits(name_erasure_flow(name), deliveries)
    return bool(deliveries)


def refold_tables_of_source(
    workspace: Workspace,
    source: Source,
    rows: DataFrame,
    concerned: Callable[[AnyTable], bool] = lambda _: True,
    gone: bool = False,
) -> list[FlowReport]:
    """Folds again what rows of bronze contributed, in each table made from the source. rows: _delivery and _row of each.

    gone: whether bronze lost them, and equal rows that it still has take their places.
    """
    reports = []
    for table in workspace.graph.tables.values():
        path = workspace.path(table.name)
        if table.reads[0] == source.name and concerned(table) and delta_log.is_delta_table(path):
            with report_table_change(table.name, DELETIONS.name, path) as report:
                refold.refold_rows(workspace, table, rows, report, gone)
            reports.append(report)
    return reports


def delete_by_merge(workspace: Workspace, path: str, gone: DataFrame, condition: str) -> int:
    """Deletes what matches, in one merge. gone: as `s`, the table as `t`. Returns how many rows were deleted."""
    few = _collect_few_matches(workspace, path, gone, condition)
    if few is not None and not few.num_rows:
        return 0
    bounds = {} if few is None else _find_delivery_bounds(few)
    if few is not None and small_writes.fits_in_memory(path, bounds):
        # The mark is read last: reading it fails if the JVM is gone, and then nothing may be written.
        mark = commit_marks.read_session_mark(workspace.session)
        # Other rows in the rewritten files may be such that delta-rs cannot write them. Nobody's erasure may wait for that for ever.
        with small_writes.leave_failure_to_spark():
            return small_writes.delete_few_rows(path, few, bounds, mark)
    merging = DeltaTable.forPath(workspace.session, path).alias("t").merge(gone.alias("s"), condition).whenMatchedDelete()
    done = merging.execute().first()
    return int(done["num_deleted_rows"]) if done else 0


def _collect_few_matches(workspace: Workspace, path: str, gone: DataFrame, condition: str) -> pa.Table | None:
    """What the table's rows that match have in the columns that the condition looks at: rows that equal them match, too.

    Returns None if Spark must delete them: because there are many, or because of the table.
    """
    rows = table_frames.read_table(workspace.session, path).alias("t")
    matches = rows.join(gone.alias("s"), F.expr(condition), "left_semi")
    columns = _find_columns_of_table(matches)
    if not columns or not small_writes.is_merged_by_delta_rs(path, columns, 0, 0, _DELIVERY in columns):
        return None
    found = matches.select(*quote_columns(columns)).distinct()
    return collect_few_rows(found, small_writes.MOST_ROWS, small_writes.MOST_ROW_BYTES)


def _find_columns_of_table(matches: DataFrame) -> list[str]:
    """Returns the columns of the left side that the condition of a join looks at, spelt as the table spells them."""
    join: Any = matches._jdf.queryExecution().analyzed()
    looked_at, output = join.condition().get().references(), join.left().output()
    columns = [output.apply(position) for position in range(output.size())]
    return [str(column.name()) for column in columns if looked_at.contains(column)]


def _find_delivery_bounds(rows: pa.Table) -> dict[str, tuple[int, int]]:
    """Returns the numbers of deliveries that the rows lie between, if they have them: of whole numbers, these alone are nobody's."""
    if _DELIVERY not in rows.schema.names or rows[_DELIVERY].null_count:
        return {}
    numbers = rows[_DELIVERY].to_pylist()
    return {_DELIVERY: (min(numbers), max(numbers))}


def _erasure_merge_condition(subject_table: SubjectTable, columns: list[str]) -> str:
    if _SUBJECT not in columns:
        return " AND ".join(f"t.{quote_identifier(name)} <=> s.{quote_identifier(name)}" for name in columns)
    same = [f"CAST({subject_table.subject} AS STRING) <=> s.{quote_identifier(_SUBJECT)}"]
    same += [f"try_cast({subject_table.at} AS TIMESTAMP) <=> s.{quote_identifier(_AT)}"] if _AT in columns else []
    same += [subject_table.where] if subject_table.where else []
    return " AND ".join(f"({one})" for one in same)


def _find_suppressed_subjects(workspace: Workspace, subject_table: SubjectTable) -> DataFrame:
    """The table's values for people on the list, with the times of their rows if the identifier changes hands.

    Each value is looked up once, however many rows have it.
    """
    table = table_frames.read_table(workspace.session, subject_table.path)
    rows = table.where(subject_table.where) if subject_table.where else table
    at = suppression.row_instant_column(rows, subject_table.at)
    told = rows.select(F.expr(subject_table.subject).cast("string").alias(_SUBJECT), *([] if at is None else [at.alias(_AT)]))
    told = told.where(F.col(_SUBJECT).isNotNull())
    people = suppression.select_suppressed_rows(
        workspace, told.select(_SUBJECT).distinct(), F.col(_SUBJECT), subject_table.domain
    )
    if at is None:
        return people.select(_SUBJECT)
    near = told.join(F.broadcast(people.select(_SUBJECT)), _SUBJECT, "left_semi").distinct()
    return suppression.select_suppressed_rows(workspace, near, F.col(_SUBJECT), subject_table.domain, F.col(_AT)).select(
        _SUBJECT, _AT
    )


def find_suppressed_rows(workspace: Workspace, subject_table: SubjectTable) -> DataFrame:
    """The table's rows of people on the list, by their provenance: those that `delete_suppressed_rows` removes."""
    gone = _find_suppressed_subjects(workspace, subject_table)
    theirs = F.expr(_erasure_merge_condition(subject_table, gone.columns))
    rows = table_frames.read_table(workspace.session, subject_table.path).alias("t")
    return rows.join(F.broadcast(gone.alias("s")), theirs, "left_semi").select(*PROVENANCE)


def _find_suppressed_quarantine_rows(workspace: Workspace, subject_table: SubjectTable) -> DataFrame:
    """The rows of a quarantine that belong to people on the list. A record without a time counts as theirs."""
    rows = table_frames.read_table(workspace.session, subject_table.path).where("`_subject` IS NOT NULL")
    told = rows.select(*PROVENANCE, "_subject", "record")
    at = None
    if subject_table.at:
        source = subject_tables.find_originating_source(
            workspace, workspace.graph[name_quarantined_table(subject_table.name) or subject_table.name]
        )
        schema = table_frames.read_table(workspace.session, workspace.path(source.name)).schema
        fields = StructType([schema[name] for name in delivered_columns(schema.names)])
        told = told.select(*PROVENANCE, "_subject", F.from_json("record", fields).alias("_told")).select(
            *PROVENANCE, "_subject", "_told.*"
        )
        at = suppression.row_instant_column(told, subject_table.at)
    found = suppression.select_suppressed_rows(workspace, told, F.col("_subject"), subject_table.domain, at)
    return found.select(*PROVENANCE).distinct()


def erase_from_releases(step: ErasureStep) -> None:
    """Erases from every table of every release. A release that does not say whose its rows are is withdrawn, as anyone may be in it."""
    workspace = step.propagation.workspace
    releases.refuse_absent_releases(workspace.records)
    for release in releases.read_pipeline_releases(workspace.records):
        waiting = [name for name in release.tables if not step.is_done(_release_table_key(release, name))]
        if not waiting:
            continue
        with releases.release_made_writable(release):
            for name in waiting:
                _erase_from_release_table(step, release, name)


def _pseudonyms_as_written(propagation: Propagation) -> set[tuple[str, str]]:
    """By domain (and former name), pseudonyms of identifiers as written, where the list has those of another form."""
    workspace = propagation.workspace
    records, forms = workspace.records, workspace.graph.forms
    if not forms:
        return set()
    key = secrets.read_suppression_key(records.settings, workspace.suppression)
    known = [
        one
        for request in propagation.waiting
        if vault.has_vault_entry(records, request.request)
        for one in vault.read_vault_identifiers(records, request.request)
        if one.domain in forms
    ]
    names = {domain: {domain, *workspace.graph.former(domain)} for domain in forms}
    hashed = ((name, compute_pseudonym(key, name, one.value)) for one in known for name in names[one.domain])
    return {(name, made) for name, made in hashed if made}


def _release_table_key(release: Release, table: str) -> str:
    return f"{release.number}/{table}"


def _erase_from_release_table(step: ErasureStep, release: Release, name: str) -> None:
    propagation, told, now = step.propagation, release.tables[name], datetime.now(UTC).isoformat(timespec="seconds")
    gone = 0
    if not (release.folder / name).exists():
        told.setdefault("withdrawn", now)
    elif told["pseudonyms"]:
        gone = released.erase_from_release(propagation.workspace, release, name, _pseudonyms_as_written(propagation))
        if gone:
            told["erased"].append({"at": now, "rows": gone})
            told["rows"] -= gone
    elif told["of_people"]:
        releases.remove_release_table(release, name)
        told["withdrawn"] = now
    releases.write_release_manifest(release)
    step.record_done(_release_table_key(release, name), rows=gone)
