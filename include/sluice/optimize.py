"""How tables are laid out on disk (OPTIMIZE). What is laid out anew `sluice.lake.layout` decides.

Files that hold instants as INT96, as Spark writes them unless told otherwise, are rewritten, once a table: every reader
then understands them. INT96 counts nanoseconds from a day. Spark reads every instant of it; other engines make nanoseconds
since 1970 of it, which are of the years 1677 to 2262 only: whatever lies outside becomes another instant, without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from sluice import delta_log, record_tables
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_identifier
from sluice.lake import commit_marks, deletion_vectors, file_rewrites, log, log_files, small_writes, table_frames
from sluice.lake.file_overlap import FileGroup, QuestionCost, describe_question_costs
from sluice.lake.file_statistics import PartitionFiles
from sluice.lake.flow_report import FlowReport, report_table_change
from sluice.lake.layout import JoinedSizes, LayoutDecision, decide_layout, measure_asked_questions
from sluice.lake.layout_properties import choose_file_size, read_declared_file_size
from sluice.lake.marked_row_purge import purge_marked_rows, rewrite_files
from sluice.lake.workspace import Workspace
from sluice.lake.written_alike import choose_statistics_columns
from sluice.locations import Location, locate, open_to_read
from sluice.open_tables import open_delta_table
from sluice.pipeline_stages import OPTIMIZE
from sluice.printable import count_noun
from sluice.table_properties import INSTANTS, MICROSECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def optimize_table(workspace: Workspace, declared: Source | Dataset[Any], demanded: bool = False) -> FlowReport:
    """Lay out the files of one table, or of those of its partitions that have need of it, as `sluice.lake.layout` decides.

    demanded: whatever has come since the last time.
    """
    path, asked = workspace.path(declared.name), workspace.graph.find_asked_columns(declared.name)
    with report_table_change(declared.name, workspace.graph.layer(declared), path) as report:
        if demanded:
            _purge_deleted_rows(workspace, path, report)
        _lay_out_where_needed(workspace, path, report, declared.zorder_by, asked, demanded)
    return report


def optimize_table_beside(workspace: Workspace, name: str, path: str) -> FlowReport:
    """Lay out the files of a table that a flow keeps beside a declared one, a quarantine or a late table: without an order."""
    with report_table_change(name, OPTIMIZE.name, path) as report:
        _lay_out_where_needed(workspace, path, report)
    return report


def _lay_out_where_needed(
    workspace: Workspace,
    path: str,
    report: FlowReport,
    zorder: Sequence[str] = (),
    asked: Sequence[str] = (),
    demanded: bool = False,
) -> None:
    """asked: the columns of the questions that it may make cheaper."""
    decision = decide_layout(path, zorder, demanded)
    report.note_decision(decision.needed, decision.why)
    if decision.needed:
        workspace.mark_next_commits(OPTIMIZE.name)
        questions = measure_asked_questions(path, asked)
        before, after = lay_out_as_decided(workspace.session, path, zorder, decision)
        order = log_files.read_cluster_columns(path) if decision.clustered else zorder
        report.notes.append(f"{count_noun(before, 'file')} > {after}" + (f" by {', '.join(order)}" if order else ""))
        _note_what_it_bought(report, questions, measure_asked_questions(path, asked))


def is_laid_out_without_spark(path: str, zorder: Sequence[str]) -> bool:
    """Whether delta-rs does what a table's files need now, or they need nothing. Spark may have to do it all the same if delta-rs fails."""
    if not _holds_microseconds(path):
        return False
    decision = decide_layout(path, zorder)
    if not decision.needed:
        return True
    if decision.groups:  # each is less than the table
        return small_writes.is_laid_out_by_delta_rs(path, zorder)
    return not (decision.marked or decision.clustered) and _is_laid_out_at_once(path, zorder, decision)


def _is_laid_out_at_once(path: str, zorder: Sequence[str], decision: LayoutDecision) -> bool:
    """Whether delta-rs writes all files of the table anew, which is all that it can."""
    in_part = decision.join or len(decision.partitions) < decision.of
    return not in_part and small_writes.is_laid_out_by_delta_rs(path, zorder)


def lay_out_as_decided(session: SparkSession, path: str, zorder: Sequence[str], decision: LayoutDecision) -> tuple[int, int]:
    """How many files were rewritten, and of how many before."""
    if decision.groups:
        return _rewrite_file_groups(session, path, zorder, decision.groups)
    where = _partitions_clause(decision.partitions) if len(decision.partitions) < decision.of else ""
    if decision.marked:
        return _drop_marked_rows(session, path, where, zorder)
    if decision.clustered:
        into = choose_file_size(path, ordered=bool(log_files.read_cluster_columns(path)))
        how = " FULL" if decision.in_full else ""
        return _lay_out_through_spark(session, path, how, (), decision.join or JoinedSizes(into, into))
    if _is_laid_out_at_once(path, zorder, decision):
        with small_writes.leave_failure_to_spark():
            return small_writes.lay_out_small_table(path, zorder, commit_marks.read_session_mark(session))
    size = read_declared_file_size(path)
    join = decision.join or (None if size is None else JoinedSizes(size, size))
    return _lay_out_through_spark(session, path, where, zorder, join)


def _drop_marked_rows(session: SparkSession, path: str, where: str, zorder: Sequence[str]) -> tuple[int, int]:
    """Writes all files anew that have rows only marked as deleted.

    A file with sorted rows is rewritten alone. Joined with another one, its range would overlap every file between the two.
    """
    with _setting(session, {_MADE_OF: "1" if zorder else str(choose_file_size(path, False))}):
        return purge_marked_rows(session, path, where)


def _purge_deleted_rows(workspace: Workspace, path: str, report: FlowReport) -> None:
    """Writes files anew in which rows are only marked as deleted, whether or not the table may have such rows from now on."""
    files = deletion_vectors.count_files_with_deleted_rows(path)
    if files:
        workspace.mark_next_commits(OPTIMIZE.name)
        purge_marked_rows(workspace.session, path)
        report.notes.append(f"{count_noun(files, 'file')} rewritten, whose deleted rows were only marked")


def _rewrite_file_groups(session: SparkSession, path: str, zorder: Sequence[str], groups: Sequence[FileGroup]) -> tuple[int, int]:
    def lay_out(staged: str) -> None:
        if small_writes.is_laid_out_by_delta_rs(staged, zorder):
            with small_writes.leave_failure_to_spark():
                small_writes.lay_out_small_table(staged, zorder, None)
                return
        made_of = choose_file_size(path, bool(zorder))
        _lay_out_through_spark(session, staged, "", zorder, JoinedSizes(made_of, made_of))

    return file_rewrites.rewrite_file_groups(path, groups, zorder, commit_marks.read_session_mark(session), lay_out)


def _note_what_it_bought(
    report: FlowReport, before: Mapping[str, QuestionCost | None], after: Mapping[str, QuestionCost | None]
) -> None:
    for column, was in before.items():
        now = after.get(column)
        report.notes.append(describe_question_costs(column, was, now))
        if was is not None and now is not None:
            report.questions[column] = {
                "files_before": round(was.files, 2),
                "files_after": round(now.files, 2),
                "bytes_before": round(was.bytes),
                "bytes_after": round(now.bytes),
            }


def join_record_files(workspace: Workspace, name: str, path: str) -> FlowReport | None:
    """Join small files of one of Sluice's own record tables, where that is worth it; None where there is no such table."""
    if not delta_log.is_delta_table(path):
        return None
    with report_table_change(name, OPTIMIZE.name, path) as report:
        join, why = record_tables.decide_file_join(path)
        report.note_decision(join, why)
        if join:
            workspace.mark_next_commits(OPTIMIZE.name)
            before, after = record_tables.join_small_files(path, commit_marks.read_session_mark(workspace.session))
            report.notes.append(f"{count_noun(before, 'file')} > {after}")
    return report


_JOINED_BELOW = "spark.databricks.delta.optimize.minFileSize"
_MADE_OF = "spark.databricks.delta.optimize.maxFileSize"
_MOST_MARKED = "spark.databricks.delta.optimize.maxDeletedRowsRatio"
"""Without it Delta writes every file anew of which 5% of the rows are marked."""


def _lay_out_through_spark(
    session: SparkSession, path: str, where: str, zorder: Sequence[str], join: JoinedSizes | None
) -> tuple[int, int]:
    """join: only through Spark: delta-rs knows one size, and would join what is good to what is small."""
    by = f" ZORDER BY ({', '.join(quote_identifier(column) for column in zorder)})" if zorder else ""
    conf = {_MOST_MARKED: str(deletion_vectors.REWRITE_ABOVE_SHARE)}
    conf |= {} if join is None else {_JOINED_BELOW: str(join.below), _MADE_OF: str(join.into)}
    with _setting(session, conf):
        return rewrite_files(session, f"OPTIMIZE delta.`{path}`{where}{by}")


@contextmanager
def _setting(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Sets what is in conf for as long as the block lasts."""
    before = {name: session.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, given in before.items():
            session.conf.unset(name)
            if given is not None:
                session.conf.set(name, given)


def _partitions_clause(partitions: Sequence[PartitionFiles]) -> str:
    """A WHERE clause for these partitions."""
    groups = [" AND ".join(_partition_condition(name, value) for name, value in one.values.items()) for one in partitions]
    return f" WHERE {' OR '.join(f'({group})' for group in groups)}"


def _partition_condition(name: str, value: object) -> str:
    if isinstance(value, bytes):
        return f"{quote_identifier(name)} = X'{value.hex()}'"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"{quote_identifier(name)} IS NULL" if value is None else f"{quote_identifier(name)} = '{text}'"


_CHECKED = "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled"


def _holds_microseconds(path: str) -> bool:
    """Whether it is recorded that no file of a table holds INT96."""
    return log.read_table_properties(path).get(INSTANTS) == MICROSECONDS


def rewrite_int96_files(workspace: Workspace, name: str, path: str) -> FlowReport | None:
    """Write a table's files anew where one of them holds INT96; None where there was nothing to do, as after the first time.

    It is an OPTIMIZE: no row changes, and readers of the change feed see nothing. A table property records that it was done; new
    tables have it from the start.
    """
    if _holds_microseconds(path):
        return None
    with report_table_change(name, OPTIMIZE.name, path) as report:
        workspace.mark_next_commits("instants")
        old = [file for file in _list_current_files(path) if _has_int96(file)]
        if old:
            _rewrite_all_files(workspace.session, path)
            report.notes.append(f"{count_noun(len(old), 'file')} held instants as INT96; all are rewritten")
        workspace.session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{INSTANTS}' = '{MICROSECONDS}')")
    return report


def _rewrite_all_files(session: SparkSession, path: str) -> None:
    """ZORDER takes every file, also one that is alone or large enough. By which column does not matter here; it need have no statistics."""
    schema, partitions = table_frames.read_table(session, path).schema, log.read_partition_columns(path)
    others = (field.name for field in schema if field.name not in partitions and field.dataType.typeName() != "map")
    ordered = next(iter(choose_statistics_columns(schema, private=partitions)), None) or next(others)
    session.conf.set(_CHECKED, "false")
    try:
        session.sql(f"OPTIMIZE delta.`{path}` ZORDER BY ({quote_identifier(ordered)})").collect()
    finally:
        session.conf.unset(_CHECKED)


def _list_current_files(path: str) -> list[Location]:
    """The files of the latest version."""
    found = []
    for uri in open_delta_table(path).file_uris():
        file = locate(urlparse(uri).path if uri.startswith("file:") else uri)
        found.append(file if file.exists() else locate(unquote(str(file))))
    return found


def _has_int96(file: Location) -> bool:
    with open_to_read(file) as content:
        schema = pq.read_metadata(content).schema
    return any(schema.column(position).physical_type == "INT96" for position in range(len(schema)))
