"""Where rows of people are: every table whose declarations give it a subject, with expressions for a row's subject and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.field_values import find_column_spelling
from sluice.declare.ingest.file_formats import CsvDialect
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_identifier
from sluice.lake import log, restricted_tables
from sluice.lake.workspace import Workspace
from sluice.pipeline_records import name_quarantine
from sluice.privacy import anonymised


@dataclass(frozen=True)
class SubjectTable:
    """A table and the subject of its rows. subject: SQL over its columns; at: SQL for the instant a row is about, None if irrelevant.

    where: an SQL condition for the rows that the other two apply to; None for all. dialect: that of its records, if they are rows of
    fields.
    """

    name: str
    path: str
    subject: str
    domain: str
    at: str | None = None
    where: str | None = None
    dialect: CsvDialect | None = None
    others: bool = False
    """Whether a record may hold people other than its subject."""


def find_subject_tables(workspace: Workspace) -> list[SubjectTable]:
    """Bronze, silver, change logs and restricted tables. Views and streams' tables are not included: they follow.

    Raises SluiceError if a restricted table is gone: it may lie on a disk that is not mounted, and would be passed over.
    """
    found: list[SubjectTable] = []
    restricted_tables.refuse_absent_restricted_tables(workspace.lake)
    for declared in workspace.graph:
        own = workspace.graph.table_of(declared.name) == declared.name
        if (
            own
            and declared.folded_source
            and not _is_anonymised_instead(workspace, declared)
            and delta_log.is_delta_table(workspace.path(declared.name))
        ):
            found += _list_table_subjects(workspace, declared)
    return found


def _list_table_subjects(workspace: Workspace, declared: Source | Dataset[Any]) -> Iterator[SubjectTable]:
    """Yields the table by its subject, and by its pseudonyms."""
    path, domain = workspace.path(declared.name), workspace.graph.domain(declared)
    if domain and declared.subject:
        subject = (
            bronze_subject_expression(declared, workspace) if isinstance(declared, Source) else quote_identifier(declared.subject)
        )
        yield SubjectTable(declared.name, path, subject, domain, subjects.subject_time_expression(declared))
    if not isinstance(declared, Source):
        for column, other in subjects.find_table_subjects(workspace.graph, declared, log.read_column_names(path)).columns:
            if column.lower() != (declared.subject or "").lower():
                yield SubjectTable(
                    declared.name, path, quote_identifier(column), other, subjects.subject_time_expression(declared)
                )


def find_subject_quarantines(workspace: Workspace) -> list[SubjectTable]:
    """The quarantines. `_subject` identifies their rows, and only the record itself gives a time."""
    found: list[SubjectTable] = []
    for declared in workspace.graph:
        domain = workspace.graph.domain(declared)
        if domain and declared.kind.sets_rows_aside:
            source = find_originating_source(workspace, declared)
            path = workspace.quarantine(declared.name)
            others = bool(
                subjects.find_other_subject_columns(workspace.graph, source)
                or subjects.find_free_text_columns(workspace.graph, source)
            )
            table = SubjectTable(
                name_quarantine(declared.name), path, "`_subject`", domain, source.subject_at, None, source.row_dialect, others
            )
            found.append(table)
    return [table for table in found if delta_log.is_delta_table(table.path)]


def find_late_subject_tables(workspace: Workspace) -> list[SubjectTable]:
    """The late tables of streams. Their rows are rows of the inputs, and the inputs' columns identify them."""
    found = []
    for stream in (one for one in workspace.graph.streams.values() if one.may_be_late):
        path = workspace.late(stream.name)
        if delta_log.is_delta_table(path):
            columns = log.read_column_names(path)
            found += [
                SubjectTable(stream.late, path, quote_identifier(column), domain, at, f"`_input` = '{name}'")
                for name in stream.watermarks
                for column, domain, at in _list_late_subjects(workspace, workspace.graph[name], columns)
                if find_column_spelling(column, stream.treatments) is None
            ]
    return found


def _list_late_subjects(
    workspace: Workspace, declared: Source | Dataset[Any], columns: list[str]
) -> Iterator[tuple[str, str, str | None]]:
    own = find_column_spelling(declared.subject, columns)
    if own and declared.domain and not declared.subject_in:
        yield own, declared.domain, declared.subject_at
    for name, domain in subjects.find_other_subject_columns(workspace.graph, declared).items():
        if column := find_column_spelling(name, columns):
            yield column, domain, declared.subject_at  # a row of what was set aside, removed as a whole
    if isinstance(declared, Source):
        return
    for column, domain in subjects.find_table_subjects(workspace.graph, declared, columns).columns:
        if column in columns:
            yield column, domain, declared.subject_at


def find_originating_source(workspace: Workspace, declared: Source | Dataset[Any]) -> Source:
    """The source that a declaration's rows come from."""
    return workspace.graph.sources[declared.folded_source or declared.name]


def _is_anonymised_instead(workspace: Workspace, declared: Source | Dataset[Any]) -> bool:
    """Whether rows are anonymised instead of deleted: see `sluice.erasure.emptied_cells`."""
    if isinstance(declared, Source):
        return anonymised.keeps_anonymised_facts(workspace.graph, declared)
    return declared.on_erasure == "anonymise"


def bronze_subject_expression(source: Source, workspace: Workspace) -> str:
    """An SQL expression for the subject, from its column or from the rescued data."""
    path = workspace.path(source.name)
    columns = log.read_column_names(path) if delta_log.is_delta_table(path) else []
    return subjects.build_subject_expression(workspace.graph, source, columns) or "CAST(NULL AS STRING)"
