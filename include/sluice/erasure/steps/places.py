"""Where rows of people are: every table that the declarations give a subject, with how to tell whose a row is and of what time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluice.declare.assembly import subjects
from sluice.declare.datasets.tables import Dataset, Table
from sluice.declare.ingest.source import Source
from sluice.lake import log
from sluice.lake.workspace import Workspace, has_quarantine
from sluice.privacy import anonymised


@dataclass(frozen=True)
class Place:
    """A table and whose its rows are. subject: SQL over its columns; at: SQL of what time a row tells, None where that does not matter.

    where: SQL of which rows the other two hold; None for all. delimiter: what parts the fields of its records, where they are such.
    """

    name: str
    path: str
    subject: str
    domain: str
    at: str | None = None
    where: str | None = None
    delimiter: str | None = None
    others: bool = False
    """Whether a record may hold another person than its subject."""


def tables(workspace: Workspace) -> list[Place]:
    """Bronze, silver, change logs, restricted ones. Views and what streams write are not among them: they follow."""
    found: list[Place] = []
    for declared in workspace.graph:
        own = workspace.graph.table_of(declared.name) == declared.name
        if (
            own
            and isinstance(declared, Source | Table)
            and not _keeps_facts(workspace, declared)
            and log.exists(workspace.path(declared.name))
        ):
            found += _of_table(workspace, declared)
    return found


def _of_table(workspace: Workspace, declared: Source | Table[Any]) -> Iterator[Place]:
    """By its subject, and by the pseudonyms that it has."""
    path, domain = workspace.path(declared.name), workspace.graph.domain(declared)
    if domain and declared.subject:
        subject = subject_in_bronze(declared, workspace) if isinstance(declared, Source) else f"`{declared.subject}`"
        yield Place(declared.name, path, subject, domain, subjects.instant(declared))
    if isinstance(declared, Table):
        for column, other in subjects.of(workspace.graph, declared, log.columns(path)).columns:
            if column != declared.subject:
                yield Place(declared.name, path, f"`{column}`", other, subjects.instant(declared))


def quarantines(workspace: Workspace) -> list[Place]:
    """What flows did not accept: known by `_subject`, and told of a time only by what is in the record itself."""
    found: list[Place] = []
    for declared in workspace.graph:
        domain = workspace.graph.domain(declared)
        if domain and has_quarantine(declared):
            source = source_of(workspace, declared)
            delimiter = source.delimiter if source.format == "csv" else None
            path = workspace.quarantine(declared.name)
            others = bool(subjects.other_cells(workspace.graph, source) or subjects.free_text(workspace.graph, source))
            place = Place(f"{declared.name}_quarantine", path, "`_subject`", domain, source.subject_at, None, delimiter, others)
            found.append(place)
    return [place for place in found if log.exists(place.path)]


def late(workspace: Workspace) -> list[Place]:
    """What came too late for streams: rows of their inputs, by the inputs' own columns."""
    found = []
    for stream in (one for one in workspace.graph.streams.values() if one.may_be_late):
        path = workspace.late(stream.name)
        if log.exists(path):
            columns = log.columns(path)
            found += [
                Place(stream.late, path, f"`{column}`", domain, at, f"`_input` = '{name}'")
                for name in stream.watermarks
                for column, domain, at in _subjects(workspace, workspace.graph[name], columns)
                if column not in stream.treatments
            ]
    return found


def _subjects(workspace: Workspace, declared: Source | Dataset[Any], columns: list[str]) -> Iterator[tuple[str, str, str | None]]:
    if isinstance(declared, Source) and declared.subject in columns and declared.domain and not declared.subject_in:
        yield str(declared.subject), declared.domain, declared.subject_at
    for column, domain in subjects.other_cells(workspace.graph, declared).items():
        if column in columns:
            yield column, domain, declared.subject_at  # it is one row of what was set aside, and goes as a whole
    if isinstance(declared, Source):
        return
    for column, domain in subjects.of(workspace.graph, declared, columns).columns:
        if column in columns:
            yield column, domain, declared.subject_at


def source_of(workspace: Workspace, declared: Source | Dataset[Any]) -> Source:
    """The source that a declaration's rows come from."""
    return declared if isinstance(declared, Source) else workspace.graph.sources[declared.reads[0]]


def _keeps_facts(workspace: Workspace, declared: Source | Table[Any]) -> bool:
    """Whether the link is cut instead: see `sluice.erasure.anonymisation`."""
    if isinstance(declared, Source):
        return anonymised.of_source(workspace.graph, declared)
    return declared.on_erasure == "anonymise"


def subject_in_bronze(source: Source, workspace: Workspace) -> str:
    """From its column, or from what did not fit into one."""
    path = workspace.path(source.name)
    columns = log.columns(path) if log.exists(path) else []
    return subjects.expression(workspace.graph, source, columns) or "CAST(NULL AS STRING)"
