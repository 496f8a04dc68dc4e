"""How long rows stay, and what stays of a person who is erased: whether the declarations can keep what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from sluice.declare.datasets.tables import Dataset, OnErasure, Table
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import is_interval
from sluice.declare.sql import schema
from sluice.errors import nearest_name_hint

Declared = Mapping[str, Source | Dataset[Any]]


def find_lifetime_mistakes(declared: Declared) -> list[str]:
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
            f"source '{source.name}': keep_for needs to know how old a record is: say it by subject_at (SQL that gives a TIMESTAMP) or dated_by."
        )


def _find_anonymisation_mistakes(table: Table[Any], source: Source) -> Iterator[str]:
    """Without whom the rows are about, a table must still be the fold of its source."""
    owner = f"Table '{table.name}'"
    if table.on_erasure not in get_args(OnErasure):
        yield f"{owner}: on_erasure is 'delete' or 'anonymise', not '{table.on_erasure}'.{nearest_name_hint(table.on_erasure, get_args(OnErasure))}"
        return
    hidden = {name.lower() for name in (*table.private, *source.private)}
    if not (table.subject and source.subject):
        yield f"{owner}: on_erasure='anonymise' needs a subject, of the table and of source '{source.name}': whose link to the rows is cut?"
    for of, columns in (("keys", table.keys), ("sequence_by", (table.sequence_by,) if table.sequence_by else ())):
        for name in (name for name in columns if name.lower() in hidden):
            yield (
                f"{owner}: on_erasure='anonymise' cannot be: '{name}' is personal and among its {of}, and would become NULL, so that rows of several "
                "people became one. Give the facts a key of their own (an order's number), or let the rows be deleted."
            )
    if table.apply_as_deletes:
        yield f"{owner}: on_erasure='anonymise' and apply_as_deletes exclude each other: what says that a key is gone would say nothing of anybody."
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
    """Columns that an anonymisation makes NULL, and that a schema does not let be. hidden: the personal ones, in lower case."""
    owner = f"Table '{table.name}'"
    for text, named in ((table.schema, table.name), (source.ddl, source.name)):
        strict = schema.split_schema_declaration(text, owner).not_null if text else ()
        for name in (name for name in strict if name.lower() in hidden):
            yield f"{owner}: on_erasure='anonymise' makes '{name}' NULL, and the schema of '{named}' says NOT NULL."
