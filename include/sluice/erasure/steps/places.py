"""Where rows of people are: every table that the declarations give a subject, with how to tell whose a row is and of what time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluice.declare.assembly import subjects
from sluice.declare.datasets.tables import Dataset
from sluice.declare.ingest.file_formats import CsvDialect
from sluice.declare.ingest.source import Source
from sluice.lake import log
from sluice.lake.workspace import Workspace, has_quarantine
from sluice.privacy import anonymised
from sluice.settings import name_quarantine


@dataclass(frozen=True)
class SubjectTable:
    """A table and whose its rows are. subject: SQL over its columns; at: SQL of what time a row tells, None where that does not matter.

    where: SQL of which rows the other two hold; None for all. dialect: of its records, where they are rows of fields.
    """

    name: str
    path: str
    subject: str
    domain: str
    at: str | None = None
    where: str | None = None
    dialect: CsvDialect | None = None
    others: bool = False
    """Whether a record may hold another person than its subject."""


def find_subject_tables(workspace: Workspace) -> list[SubjectTable]:
    """Bronze, silver, change logs, restricted ones. Views and what streams write are not among them: they follow."""
    found: list[SubjectTable] = []
    for declared in workspace.graph:
        own = workspace.graph.table_of(declared.name) == declared.name
        if (
            own
            and declared.folded_source
            and not _is_anonymised_instead(workspace, declared)
            and log.is_delta_table(workspace.path(declared.name))
        ):
            found += _list_table_subjects(workspace, declared)
    return found


def _list_table_subjects(workspace: Workspace, declared: Source | Dataset[Any]) -> Iterator[SubjectTable]:
    """By its subject, and by the pseudonyms that it has."""
    path, domain = workspace.path(declared.name), workspace.graph.domain(declared)
    if domain and declared.subject:
        subject = bronze_subject_expression(declared, workspace) if isinstance(declared, Source) else f"`{declared.subject}`"
        yield SubjectTable(declared.name, path, subject, domain, subjects.subject_time_expression(declared))
    if not isinstance(declared, Source):
        for column, other in subjects.find_table_subjects(workspace.graph, declared, log.read_column_names(path)).columns:
            if column != declared.subject:
                yield SubjectTable(declared.name, path, f"`{column}`", other, subjects.subject_time_expression(declared))


def find_subject_quarantines(workspace: Workspace) -> list[SubjectTable]:
    """What flows did not accept: known by `_subject`, and told of a time only by what is in the record itself."""
    found: list[SubjectTable] = []
    for declared in workspace.graph:
        domain = workspace.graph.domain(declared)
        if domain and has_quarantine(declared):
            source = find_originating_source(workspace, declared)
            path = workspace.quarantine(declared.name)
            others = bool(
                subjects.find_other_subject_columns(workspace.graph, source)
                or subjects.find_free_text_columns(workspace.graph, source)
            )
            place = SubjectTable(
                name_quarantine(declared.name), path, "`_subject`", domain, source.subject_at, None, source.row_dialect, others
            )
            found.append(place)
    return [place for place in found if log.is_delta_table(place.path)]


def find_late_subject_tables(workspace: Workspace) -> list[SubjectTable]:
    """What came too late for streams: rows of their inputs, by the inputs' own columns."""
    found = []
    for stream in (one for one in workspace.graph.streams.values() if one.may_be_late):
        path = workspace.late(stream.name)
        if log.is_delta_table(path):
            columns = log.read_column_names(path)
            found += [
                SubjectTable(stream.late, path, f"`{column}`", domain, at, f"`_input` = '{name}'")
                for name in stream.watermarks
                for column, domain, at in _list_late_subjects(workspace, workspace.graph[name], columns)
                if column not in stream.treatments
            ]
    return found


def _list_late_subjects(
    workspace: Workspace, declared: Source | Dataset[Any], columns: list[str]
) -> Iterator[tuple[str, str, str | None]]:
    if declared.subject in columns and declared.domain and not declared.subject_in:
        yield str(declared.subject), declared.domain, declared.subject_at
    for column, domain in subjects.find_other_subject_columns(workspace.graph, declared).items():
        if column in columns:
            yield column, domain, declared.subject_at  # it is one row of what was set aside, and goes as a whole
    if isinstance(declared, Source):
        return
    for column, domain in subjects.find_table_subjects(workspace.graph, declared, columns).columns:
        if column in columns:
            yield column, domain, declared.subject_at


def find_originating_source(workspace: Workspace, declared: Source | Dataset[Any]) -> Source:
    """The source that a declaration's rows come from."""
    return workspace.graph.sources[declared.folded_source or declared.name]


def _is_anonymised_instead(workspace: Workspace, declared: Source | Dataset[Any]) -> bool:
    """Whether the link is cut instead: see `sluice.erasure.emptied_cells`."""
    if isinstance(declared, Source):
        return anonymised.keeps_anonymised_facts(workspace.graph, declared)
    return declared.on_erasure == "anonymise"


def bronze_subject_expression(source: Source, workspace: Workspace) -> str:
    """From its column, or from what did not fit into one."""
    path = workspace.path(source.name)
    columns = log.read_column_names(path) if log.is_delta_table(path) else []
    return subjects.build_subject_expression(workspace.graph, source, columns) or "CAST(NULL AS STRING)"
