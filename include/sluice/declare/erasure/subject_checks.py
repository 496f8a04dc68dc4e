"""Whether an erasure would find its people: every personal column has a way to its subject, and links lead from tables that are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.declare.cdc.change_log import OWN
from sluice.declare.datasets.tables import Dataset, Table, TemporaryView
from sluice.declare.erasure.links import ErasureRequests, Link
from sluice.declare.expansion.stored import through
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.source import Source
from sluice.declare.sql import schema
from sluice.errors import nearest

Declared = Mapping[str, Source | Dataset[Any]]


@dataclass(frozen=True)
class Whose:
    """What a pipeline says of people, and its declarations. own: the personal columns that each table declares itself."""

    links: tuple[Link, ...]
    asking: tuple[ErasureRequests, ...]
    declared: Declared
    unstored: Mapping[str, TemporaryView]
    own: Mapping[str, tuple[str, ...]]


def mistakes(whose: Whose) -> list[str]:
    """All mistakes, one a text."""
    return [*_personal(whose), *_links(whose), *_times(whose), *_asking(whose)]


def _personal(whose: Whose) -> Iterator[str]:
    """A personal column that leads to nobody could not be erased."""
    for name, declared in whose.own.items():
        item = whose.declared[name]
        # The others are the engine's, which hides them by itself: of every table, and of a log of changes.
        kept_for_itself = OWN if isinstance(item, Dataset) and item.serves else ()
        columns = [column for column in delivered_columns(declared) if column not in kept_for_itself]
        if isinstance(item, Source):
            if columns and not item.subject:
                yield (
                    f"source '{name}' has the personal column '{columns[0]}' and no subject: an erasure would not find whose it is. Say "
                    "which column tells (subject=)."
                )
        elif columns and not _subjects_above(whose.declared, item):
            yield (
                f"table '{name}' has the personal column '{columns[0]}', and none of its sources has a subject: an erasure would not "
                "find whose it is. Say which column of the source tells (subject=)."
            )


def _subjects_above(declared: Declared, item: Source | Dataset[Any]) -> set[str]:
    """The domains of the people whose rows a table may have."""
    if isinstance(item, Source):
        return {item.domain} if item.domain else set()
    return {domain for name in item.reads for domain in _subjects_above(declared, declared[name])}


def _links(whose: Whose) -> Iterator[str]:
    known = [name for name, item in whose.declared.items() if isinstance(item, Dataset) and not item.serves]
    for link in whose.links:
        table = whose.declared.get(link.table)
        if not isinstance(table, Dataset):
            yield f"{link.owner}: there is no such table.{nearest(link.table, known)}"
            continue
        yield from _columns(link, table)
        domains = _subjects_above(whose.declared, table)
        if link.person[1] not in domains:
            # Were the identifier its subject, the row that gives it to somebody new would pass for one of whoever was erased.
            yield (
                f"{link.owner}: its rows are of people by {_named(domains)}, the link's person is of domain '{link.person[1]}'. Make the person the "
                f"subject: subject='{link.person[0]}' of the table, and of its source with domain='{link.person[1]}'."
            )


def _columns(link: Link, table: Dataset[Any]) -> Iterator[str]:
    """What is known of a table's columns before its transform is run: those of a declared schema are all."""
    if not table.schema:
        return
    names = schema.parsed(table.schema, f"Table '{table.name}'").columns
    for column in (link.person[0], link.identifier[0], *((link.since,) if link.since else ())):
        if column not in names:
            yield f"{link.owner}: it has no column '{column}'.{nearest(column, names)}"


def _times(whose: Whose) -> Iterator[str]:
    """Of identifiers that change hands, a row must tell of what time it is: else the next one's rows would be erased, too."""
    changing = {link.identifier[1]: link for link in whose.links if link.since}
    for name, item in whose.declared.items():
        domains = _subjects_above(whose.declared, item) & set(changing)
        if isinstance(item, Source | Table) and domains and item.subject and not item.subject_at:
            domain = min(domains)
            kind = "source" if isinstance(item, Source) else "table"
            yield (
                f"{kind} '{name}': identifiers of kind '{domain}' change hands ({changing[domain].owner.lower()}): say of what time a row tells, "
                "as SQL that gives a TIMESTAMP, as in subject_at='time'."
            )


def _asking(whose: Whose) -> Iterator[str]:
    domains = {item.domain for item in whose.declared.values() if isinstance(item, Source) and item.domain}
    domains |= {domain for link in whose.links for _, domain in (link.person, link.identifier)}
    for asking in whose.asking:
        read = through(whose.unstored, asking.reads)[0]
        if not isinstance(whose.declared.get(read), Source):
            known = [name for name, item in whose.declared.items() if isinstance(item, Source)]
            yield f"{asking.owner}: it reads a source, or a temporary view of one.{nearest(asking.reads, [*known, *whose.unstored])}"
        if asking.identifier[1] not in domains:
            yield f"{asking.owner}: there is no kind of identifier '{asking.identifier[1]}'.{nearest(asking.identifier[1], domains)}"


def _named(domains: Iterable[str]) -> str:
    return ", ".join(f"'{domain}'" for domain in sorted(domains)) or "nothing"
