"""The rows of links, as their tables have them now and as bronze ever had them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.declare.datasets.tables import Table
from sluice.declare.erasure.identifiers import Link
from sluice.declare.field_values import find_column_spelling
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.privacy.treat import AS_TEXT, Canonical
from sluice.declare.quoting import quote_column
from sluice.erasure.vault import Identifier
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.lake import log, table_creation, table_frames
from sluice.lake.workspace import Workspace
from sluice.privacy import secrets, suppression_list
from sluice.privacy.pseudonyms import add_pseudonym_column, canonical_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WANTED = "_wanted"
_AS_IS = "_as_is"


@dataclass(frozen=True)
class LinkRow:
    """From `since` on, the identifier is the person's. None: it always was."""

    person: str = field(repr=False)
    identifier: str = field(repr=False)
    since: datetime | None


@dataclass
class LinkRows:
    """The rows of all links of a lake. Reads each link once, and looks up each value once. at: when they were read."""

    workspace: Workspace
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    frames: dict[Link, DataFrame | None] = field(default_factory=dict)
    known: dict[tuple[Link, str], dict[str, list[LinkRow]]] = field(default_factory=dict, repr=False)
    written: dict[str, dict[str, set[str]]] = field(default_factory=dict, repr=False)

    @cached_property
    def erased(self) -> suppression_list.Times:
        """The identifiers on the suppression list that were erased, with the times when they were the person's."""
        return suppression_list.read_suppression_times(self.workspace.suppression)

    @cached_property
    def listed(self) -> frozenset[str]:
        """The requests whose subjects are already on the list."""
        return suppression_list.list_suppressed_requests(self.workspace)

    def of_people(self, link: Link, people: set[str]) -> list[LinkRow]:
        """The link's rows for these people."""
        return self._found(link, "person", people)

    def of_identifiers(self, link: Link, identifiers: set[str]) -> list[LinkRow]:
        """The link's rows for these identifiers, whoever owns them."""
        return self._found(link, "identifier", identifiers)

    def spellings(self, domain: str, values: set[str]) -> list[tuple[str, str]]:
        """The spellings of these identifiers in bronze and in links: pairs of the canonical form and the spelling."""
        known = self.written.setdefault(domain, {})
        new = values - known.keys()
        every = _read_domain_identifiers(self.workspace, self, domain) if new else None
        if every is not None:
            form = canonical_column(F.col("value"), self.workspace.graph.canonical(domain))
            told = every.select("value", form.alias("form")).join(
                _inline_wanted_values(self.workspace, new, "form"), "form", "left_semi"
            )
            for row in told.collect():
                known.setdefault(row.form, set()).add(row.value)
        for value in new:
            known.setdefault(value, set())
        return [(value, written) for value in sorted(values) for written in sorted(known[value])]

    def frame(self, link: Link) -> DataFrame | None:
        """Person and identifier in canonical form and as written (`_as_is`), and since. None if there are no rows yet."""
        if link not in self.frames:
            made = _build_link_frame(self.workspace, link)
            self.frames[link] = made.persist() if made is not None else None
        return self.frames[link]

    def release(self) -> None:
        """Frees what was cached."""
        for frame in self.frames.values():
            if frame is not None:
                frame.unpersist()

    def _found(self, link: Link, by: str, values: set[str]) -> list[LinkRow]:
        known = self.known.setdefault((link, by), {})
        new = values - known.keys()
        frame = self.frame(link) if new else None
        if frame is not None:
            known.update((value, []) for value in new)
            for row in frame.join(_inline_wanted_values(self.workspace, new, by), by, "left_semi").collect():
                since = row.since.astimezone(UTC) if row.since else None
                known[row[by]].append(LinkRow(row.person, row.identifier, since))
        return [row for value in sorted(values) for row in known.get(value, ())]


@contextlib.contextmanager
def open_link_rows(workspace: Workspace) -> Iterator[LinkRows]:
    """Opens the rows of the links and frees them afterwards."""
    rows = LinkRows(workspace)
    try:
        yield rows
    finally:
        rows.release()


def find_pseudonym_originals(workspace: Workspace, rows: LinkRows, pseudonyms: Sequence[str]) -> list[Identifier]:
    """The identifiers that pseudonyms were made from, found by hashing every identifier and comparing."""
    graph, found = workspace.graph, set()
    for name, how in graph.pseudonyms():
        key = secrets.read_secret_key(workspace.settings, how.secret)
        for domain in sorted(subjects.find_subject_domains(graph, graph[name])):
            known = _read_domain_identifiers(workspace, rows, domain)
            if known is None:
                continue
            hashed = add_pseudonym_column(known, key, how.domain, canonical_column(F.col("value"), how.canonical), _WANTED)
            same = hashed.join(_inline_wanted_values(workspace, set(pseudonyms), _WANTED), _WANTED, "left_semi").select("value")
            found |= {Identifier(domain, row.value) for row in same.collect()}
    return sorted(found)


def _read_domain_identifiers(workspace: Workspace, rows: LinkRows, domain: str) -> DataFrame | None:
    """All identifiers of a domain, as `value`, from bronze and from the links."""
    graph, found = workspace.graph, []
    for source in graph.sources.values():
        path = workspace.path(source.name)
        if source.domain == domain and not source.into and delta_log.is_delta_table(path):
            bronze = table_frames.read_table(workspace.session, path)
            told = subjects.build_subject_expression(graph, source, bronze.columns)
            found += [bronze.select(_identifier_text_column(F.expr(told)).alias("value"))] if told else []
        for column, of_cell in source.also_subjects:
            bronze_path = workspace.path(source.table)
            there = log.read_column_names(bronze_path) if of_cell == domain and delta_log.is_delta_table(bronze_path) else []
            if find_column_spelling(column, there):
                found.append(
                    table_frames.read_table(workspace.session, bronze_path).select(
                        _identifier_text_column(quote_column(column)).alias("value")
                    )
                )
    for link in graph.links:
        for of, column in ((link.person, "person"), (link.identifier, "identifier")):
            frame = rows.frame(link) if of[1] == domain else None
            found += [frame.select(F.col(f"{column}{_AS_IS}").alias("value"))] if frame is not None else []
    return functools.reduce(lambda a, b: a.unionByName(b), found).where("value IS NOT NULL").distinct() if found else None


def _build_link_frame(workspace: Workspace, link: Link) -> DataFrame | None:
    declared: Any = workspace.graph[link.table]
    tables = workspace.graph.tables
    made_of = [tables[name] for name in (*workspace.graph.kept_for(link.table), link.table) if name in tables]
    told = functools.partial(_select_link_columns, workspace, link)
    found = [told(table(bronze)) for table in made_of if (bronze := _read_link_bronze(workspace, table)) is not None]
    treated = {link.person[0], link.identifier[0]} & set(declared.treatments)
    stored = (
        []
        if treated
        else [name for name in (link.table, *(t.name for t in made_of)) if delta_log.is_delta_table(workspace.path(name))]
    )
    found += [told(table_frames.read_table(workspace.session, workspace.path(name))) for name in dict.fromkeys(stored)]
    if not found:
        return None
    every = functools.reduce(lambda a, b: a.unionByName(b), found)
    return every.where("person IS NOT NULL AND identifier IS NOT NULL").distinct()


def _read_link_bronze(workspace: Workspace, table: Table[Any]) -> DataFrame | None:
    path = workspace.path(table.reads[0])
    if not delta_log.is_delta_table(path):
        return None
    bronze = table_frames.read_table(workspace.session, path)
    return bronze if delivered_columns(bronze.columns) else None


def _select_link_columns(workspace: Workspace, link: Link, frame: DataFrame) -> DataFrame:
    wanted = (link.person[0], link.identifier[0], *((link.since,) if link.since else ()))
    for name in wanted:
        if find_column_spelling(name, frame.columns) is None:
            raise DeclarationError(f"{link.owner}: it has no column '{name}'.{nearest_name_hint(name, frame.columns)}")
    since = quote_column(link.since).try_cast("timestamp") if link.since else F.lit(None).cast("timestamp")
    both = {"person": link.person, "identifier": link.identifier}
    return frame.select(
        *(
            _identifier_text_column(quote_column(column), workspace.graph.canonical(domain)).alias(name)
            for name, (column, domain) in both.items()
        ),
        *(_identifier_text_column(quote_column(column)).alias(f"{name}{_AS_IS}") for name, (column, _) in both.items()),
        since.alias("since"),
    )


def _identifier_text_column(column: Column, form: Canonical = AS_TEXT) -> Column:
    """An identifier in the form in which it is asked for: as text without blanks around it; NULL if nothing is left."""
    return F.nullif(canonical_column(column, form), F.lit(""))


def _inline_wanted_values(workspace: Workspace, values: set[str], name: str) -> DataFrame:
    """Puts values into a frame, because literals would appear in plans and event logs."""
    return F.broadcast(
        table_creation.make_inline_frame(workspace.session, [(value,) for value in sorted(values)], f"{name} STRING")
    )
