"""Checks the types of columns with identifiers of people: only a type whose text is the identifier's own text finds anybody.

Erasures compare a column cast to a text with the identifier that was asked for, and the scan that proves them reads texts and whole
numbers. So a type is refused unless it is known to fit both: rows with 12140.0, [12140] or a date would be passed over by one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.erasure.identifiers import DeclarationsByName, Link
from sluice.declare.expansion import DeclarationsByKind
from sluice.declare.field_values import find_column_spelling
from sluice.declare.sql import schema

_IDENTIFYING = re.compile(
    r"string|string collate .*|(varchar|char(acter)?) \( \d+ \)|tinyint|smallint|int|bigint|decimal( \( \d+( , 0)? \))?"
)
"""The types by whose columns people are found, as `schema.parse_column_types` writes them."""
_NUMBER = "BIGINT, DECIMAL(n, 0) or STRING"
_REMEDIES = (
    ("float", f"it keeps seven digits of a number, so that several people's become one: {_NUMBER}"),
    ("double", f"its text has a fraction or an exponent, 12140.0, which no identifier has: {_NUMBER}"),
    ("decimal", f"its text has a fraction, 12140.00, which no identifier has: {_NUMBER}"),
    ("binary", "its bytes have no text to compare: STRING"),
    ("timestamp_ntz", "the scan that proves an erasure reads no times: STRING"),
    ("timestamp", "its text depends on the time zone: STRING"),
    ("date", "the scan that proves an erasure reads no dates: STRING"),
    *((kind, "it holds several values, none of which is compared") for kind in ("array", "map", "struct", "variant")),
)
"""By the beginning of a type, why nobody is found by a column of it, and which types to use."""
_OTHERS = "identifiers are compared as text: STRING, or BIGINT for whole numbers"
_INSIDE = "{why}: a column of its own with the identifier (STRING, BIGINT), or what gives it (subject_in, an SQL expression)"


def find_subject_type_mistakes(declared: DeclarationsByName, links: Iterable[Link] = ()) -> Iterator[str]:
    """Yields declared columns with identifiers of people whose type finds nobody, as sentences.

    Bytes that nobody declared, as a topic's keys are, count as the text that Spark makes of them. An inferred type is not known here.
    """
    by_kind = DeclarationsByKind(declared.values())
    for source in by_kind.sources:
        own = [("subject", source.subject)] if source.subject and not source.subject_in else []
        others = [("also_subjects", column) for column, _ in source.also_subjects]
        for field, name in (*own, *others):
            yield from _find_column_mistake(
                f"source '{source.name}': {field}", name, source.ddl, bytes_fit=source.has_fixed_schema
            )
    for item in by_kind.datasets:
        # A treated value is a text of its own, and what it is made from has been checked where it comes from.
        if item.subject and not item.subject_in and find_column_spelling(item.subject, item.treatments) is None:
            yield from _find_column_mistake(f"{item.kind.noun} '{item.name}': subject", item.subject, item.schema)
    for link in links:
        table = declared.get(link.table)
        for field, (name, _) in (("person", link.person), ("identifier", link.identifier)):
            yield from _find_column_mistake(f"{link.owner}: {field}", name, table.schema if isinstance(table, Dataset) else None)


def _find_column_mistake(owner: str, name: str, ddl: str | None, bytes_fit: bool = False) -> Iterator[str]:
    kinds = schema.parse_column_types(ddl) if ddl else {}
    column = find_column_spelling(name, kinds)
    kind = kinds[column] if column else ""
    why = None if not column or (bytes_fit and kind == "binary") else explain_unfit_subject_type(kind)
    if why:
        yield f"{owner} names '{name}', which is {_write_type(kind)}; {why}."


def explain_unfit_subject_type(kind: str) -> str | None:
    """Why nobody is found by a column of this type, and what to use instead. None for a type that identifies people."""
    if _IDENTIFYING.fullmatch(kind):
        return None
    why = next((why for beginning, why in _REMEDIES if kind.startswith(beginning)), _OTHERS)
    return why if ": " in why else _INSIDE.format(why=why)


def _write_type(kind: str) -> str:
    return re.sub(r" ?([<>(),]) ?", r"\1", kind).replace(",", ", ").upper()
