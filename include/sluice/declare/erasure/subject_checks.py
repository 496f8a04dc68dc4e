"""Checks that an erasure would find its people: each personal column leads to its subject, and links name existing tables.

Also checks what would break if a cell with another person became NULL, and whether the declarations can keep what they promise about
how long rows stay (`keep_for`) and what stays of an erased person.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from sluice.declare.cdc.change_log import OWN
from sluice.declare.datasets.computed import TemporaryView
from sluice.declare.datasets.dataset import Dataset, OnErasure
from sluice.declare.datasets.tables import Table
from sluice.declare.erasure.identifiers import DeclarationsByName, ErasureRequests, Link
from sluice.declare.expansion import DeclarationsByKind, resolve_temporary_views
from sluice.declare.field_values import find_column_spelling
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.file_formats import FILE_FORMATS
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import is_interval
from sluice.declare.sql import schema
from sluice.errors import nearest_name_hint


def find_lifetime_mistakes(declared: DeclarationsByName) -> list[str]:
    """All mistakes, as sentences."""
    found: list[str] = []
    for item in declared.values():
        if isinstance(item, Source):
            found += _find_keep_for_mistakes(item)
        elif isinstance(item, Table) and item.on_erasure != "delete":
            source = declared[item.reads[0]]
            found += _find_anonymisation_mistakes(item, source) if isinstance(source, Source) else []
    return found


def _find_keep_for_mistakes(source: Source) -> Iterator[str]:
    if source.keep_for is None:
        return
    if not is_interval(source.keep_for):
        yield f"source '{source.name}': keep_for is an interval such as '400 days', not '{source.keep_for}'."
    if source.into:
        yield f"source '{source.name}': its records go into '{source.into}'; say there how long they are kept."
    elif not (source.subject_at or source.dated_by):
        yield (
            f"source '{source.name}': keep_for needs a record's age: declare subject_at (SQL that gives a TIMESTAMP) or dated_by."
        )


def _find_anonymisation_mistakes(table: Table[Any], source: Source) -> Iterator[str]:
    """Checks that a table without the people its rows are about is still the fold of its source."""
    owner = f"Table '{table.name}'"
    if table.on_erasure not in get_args(OnErasure):
        yield f"{owner}: on_erasure is 'delete' or 'anonymise', not '{table.on_erasure}'.{nearest_name_hint(table.on_erasure, get_args(OnErasure))}"
        return
    hidden = {name.lower() for name in (*table.private, *source.private)}
    if not (table.subject and source.subject):
        yield f"{owner}: on_erasure='anonymise' needs a subject, of the table and of source '{source.name}': it unlinks rows from subjects."
    for of, columns in (("keys", table.keys), ("sequence_by", (table.sequence_by,) if table.sequence_by else ())):
        for name in (name for name in columns if name.lower() in hidden):
            yield (
                f"{owner}: on_erasure='anonymise' fails: '{name}' is personal and among its {of}, and would become NULL, so that rows of several "
                "people became one. Give the facts a key of their own (an order's number), or let the rows be deleted."
            )
    if table.apply_as_deletes:
        yield f"{owner}: on_erasure='anonymise' and apply_as_deletes exclude each other: an anonymised row could not say which key is deleted."
    if source.may_refresh:
        yield (
            f"{owner}: on_erasure='anonymise' keeps the rows in bronze, without the person. Source '{source.name}' may be made anew from the "
            "landing folder (may_refresh), where the person's records are taken out: the facts would be lost. Leave out one of the two."
        )
    given = {name.lower() for name in source.private}
    for name in table.own_personal or ():
        if name != table.subject and name.lower() not in given:
            yield (
                f"{owner}: on_erasure='anonymise' makes '{name}' NULL in bronze, and source '{source.name}' names no such personal column. Name "
                f"there, too, what it is made of, and call both alike: personal='{name}'."
            )
    yield from _find_not_null_mistakes(table, source, hidden)


def _find_not_null_mistakes(table: Table[Any], source: Source, hidden: set[str]) -> Iterator[str]:
    """Columns that an anonymisation makes NULL although a schema forbids it. hidden: the personal columns, in lower case."""
    owner = f"Table '{table.name}'"
    for text, named in ((table.schema, table.name), (source.ddl, source.name)):
        strict = schema.split_schema_declaration(text, owner).not_null if text else ()
        for name in (name for name in strict if name.lower() in hidden):
            yield f"{owner}: on_erasure='anonymise' makes '{name}' NULL, and the schema of '{named}' says NOT NULL."


def find_other_subject_mistakes(declared: DeclarationsByName) -> Iterator[str]:
    """Yields the mistakes about columns with other people, as sentences."""
    by_kind = DeclarationsByKind(declared.values())
    for source in by_kind.sources:
        said = [("also_subjects", column) for column, _ in source.also_subjects] + [
            ("free_text", one) for one in source.free_text
        ]
        for field, column in said:
            owner = f"source '{source.name}': {field} names '{column}'"
            yield from (f"{owner}, {why}." for why in _find_source_obstacles(source, column))
            for table in (one for one in by_kind.tables if one.folded_source == source.table):
                yield from (
                    f"{owner}, {why} of table '{table.name}': the cell of an erased person is NULL."
                    for why in _find_table_obstacles(table, column)
                )


def _find_source_obstacles(source: Source, column: str) -> Iterator[str]:
    if source.subject is None:
        yield "and no column says whose the record is (subject=)"
    elif column.lower() == source.subject.lower():
        yield "which is its subject: erasing that person removes the whole record"
    if not FILE_FORMATS[source.format].has_fields:
        known_formats = [one.name for one in FILE_FORMATS.values() if one.has_fields]
        yield f"and its records have no fields; only those of these formats do: {', '.join(known_formats)}"
    if "." in column:
        yield "a field within a column. Have it delivered as a column of its own"
    known = schema.split_schema_declaration(source.ddl, f"Source '{source.name}'") if source.ddl else None
    if known is not None and column.lower() not in {name.lower() for name in known.columns}:
        yield "no column of its schema"
    if known is not None and find_column_spelling(column, known.not_null):
        yield "which is NOT NULL: the cell of an erased person is NULL"


def _find_table_obstacles(table: Table[Any], column: str) -> Iterator[str]:
    if find_column_spelling(column, table.keys):
        yield "a key"
    if find_column_spelling(table.sequence_by, (column,)):
        yield "the sequence_by"
    if find_column_spelling(table.subject, (column,)):
        yield "the subject"
    if table.schema and find_column_spelling(
        column, schema.split_schema_declaration(table.schema, f"Table '{table.name}'").not_null
    ):
        yield "a NOT NULL column"


@dataclass(frozen=True)
class SubjectDeclarations:
    """A pipeline's declarations and what it says of people. own: the personal columns that each table declares itself."""

    links: tuple[Link, ...]
    asking: tuple[ErasureRequests, ...]
    declared: DeclarationsByName
    unstored: Mapping[str, TemporaryView]
    own: Mapping[str, tuple[str, ...]]


def find_subject_mistakes(whose: SubjectDeclarations) -> list[str]:
    """Returns all mistakes, one per text."""
    return [
        *_find_unowned_personal_columns(whose),
        *_find_link_mistakes(whose),
        *_find_subject_time_mistakes(whose),
        *_find_erasure_request_mistakes(whose),
    ]


def _find_unowned_personal_columns(whose: SubjectDeclarations) -> Iterator[str]:
    """Yields personal columns that lead to no subject, and so could not be erased."""
    for name, declared in whose.own.items():
        item = whose.declared[name]
        # The engine hides its own columns by itself: those of every table, and those of a log of changes.
        kept_for_itself = OWN if item.serves else ()
        columns = [column for column in delivered_columns(declared) if column not in kept_for_itself]
        if columns and not item.reads and not item.subject:
            yield (
                f"source '{name}' has the personal column '{columns[0]}' and no subject: an erasure would not find whose it is. Say "
                "which column says so (subject=)."
            )
        elif columns and item.reads and not _find_subject_domains(whose.declared, item):
            yield (
                f"table '{name}' has the personal column '{columns[0]}', and none of its sources has a subject: an erasure would not "
                "find whose it is. Say which column of the source says so (subject=)."
            )


def _find_subject_domains(declared: DeclarationsByName, item: Source | Dataset[Any]) -> set[str]:
    """The domains of the people whose rows a table may have."""
    own = {item.domain} - {""}
    return own.union(*(_find_subject_domains(declared, declared[name]) for name in item.reads))


def _find_link_mistakes(whose: SubjectDeclarations) -> Iterator[str]:
    tables = {one.name: one for one in DeclarationsByKind(whose.declared.values()).datasets}
    known = [name for name, item in tables.items() if not item.serves]
    for link in whose.links:
        table = tables.get(link.table)
        if table is None:
            yield f"{link.owner}: there is no such table.{nearest_name_hint(link.table, known)}"
            continue
        yield from _find_link_column_mistakes(link, table)
        domains = _find_subject_domains(whose.declared, table)
        if link.person[1] not in domains:
            # If the identifier were the subject, an erased person's next owner of it would look like that person.
            yield (
                f"{link.owner}: its rows have subjects of domain {_quote_domains(domains)}, but the link's person is of domain "
                f"'{link.person[1]}'. Make the person the subject: "
                f"subject='{link.person[0]}' of the table, and of its source with domain='{link.person[1]}'."
            )


def _find_link_column_mistakes(link: Link, table: Dataset[Any]) -> Iterator[str]:
    """Checks the columns before the transform is run: a declared schema lists all of them."""
    if not table.schema:
        return
    names = schema.split_schema_declaration(table.schema, f"Table '{table.name}'").columns
    for column in (link.person[0], link.identifier[0], *((link.since,) if link.since else ())):
        if find_column_spelling(column, names) is None:
            yield f"{link.owner}: it has no column '{column}'.{nearest_name_hint(column, names)}"


def _find_subject_time_mistakes(whose: SubjectDeclarations) -> Iterator[str]:
    """Yields tables that need `subject_at`: where identifiers change hands, an erasure would otherwise take the next owner's rows too."""
    changing = {link.identifier[1]: link for link in whose.links if link.since}
    for name, item in whose.declared.items():
        domains = _find_subject_domains(whose.declared, item) & set(changing)
        if item.folded_source and domains and item.subject and not item.subject_at:
            domain = min(domains)
            yield (
                f"{item.kind.noun} '{name}': identifiers of kind '{domain}' change hands ({changing[domain].owner.lower()}): declare the time that "
                "a row is about, as SQL that gives a TIMESTAMP, as in subject_at='time'."
            )


def _find_erasure_request_mistakes(whose: SubjectDeclarations) -> Iterator[str]:
    sources = {one.name: one for one in DeclarationsByKind(whose.declared.values()).sources}
    domains = {source.domain for source in sources.values() if source.domain}
    domains |= {domain for link in whose.links for _, domain in (link.person, link.identifier)}
    for asking in whose.asking:
        read = resolve_temporary_views(whose.unstored, asking.reads)[0]
        if read not in sources:
            yield f"{asking.owner}: it reads a source, or a temporary view of one.{nearest_name_hint(asking.reads, [*sources, *whose.unstored])}"
        if asking.identifier[1] not in domains:
            yield f"{asking.owner}: there is no kind of identifier '{asking.identifier[1]}'.{nearest_name_hint(asking.identifier[1], domains)}"
        link = next((one for one in whose.links if one.since and one.identifier[1] == asking.identifier[1]), None)
        if link is not None:
            # A request by such an identifier stands for all its owners, and a second one would never be made.
            yield (
                f"{asking.owner}: identifiers of kind '{asking.identifier[1]}' change hands ({link.owner.lower()}), so that a row does not say "
                f"who asks. Let rows ask by an identifier that stays a person's, such as one of kind '{link.person[1]}'."
            )


def _quote_domains(domains: Iterable[str]) -> str:
    return ", ".join(f"'{domain}'" for domain in sorted(domains)) or "nothing"
