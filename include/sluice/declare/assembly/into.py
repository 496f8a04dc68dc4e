"""Several sources into one bronze table (`into`): what must be the same of them, for their records to be of one kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sluice.declare.ingest.source import Source
from sluice.declare.sql.ddl import column_types
from sluice.errors import nearest


def mistakes(sources: Mapping[str, Source], others: frozenset[str]) -> Iterator[str]:
    """What is wrong with the sources that go into the table of another, one a line. others: names that are declared and no sources."""
    for source in sources.values():
        if source.into is None:
            continue
        main = sources.get(source.into)
        if main is None and source.into in others:
            yield f"source '{source.name}' goes into '{source.into}', which is no source."
        elif main is None:
            yield f"source '{source.name}' goes into '{source.into}', which is not declared.{nearest(source.into, sources)}"
        elif main.into is not None:
            yield f"source '{source.name}' goes into '{main.name}', which goes into '{main.into}' itself: write into='{main.into}'."
        else:
            yield from _differing(source, main)


def _differing(source: Source, main: Source) -> Iterator[str]:
    pair = f"source '{source.name}' goes into '{main.name}', so"
    if source.subject != main.subject:
        yield f"{pair} both have the same subject; it says {_said(source.subject)}, '{main.name}' {_said(main.subject)}."
    elif source.domain != main.domain:
        yield f"{pair} both have the same domain; it says {_said(source.domain)}, '{main.name}' {_said(main.domain)}."
    if source.subject_in != main.subject_in:
        yield f"{pair} both have the same subject_in; it says {_said(source.subject_in)}, '{main.name}' {_said(main.subject_in)}."
    if source.subject_at != main.subject_at:
        yield f"{pair} both have the same subject_at; it says {_said(source.subject_at)}, '{main.name}' {_said(main.subject_at)}."
    if source.private != main.private:
        column = min(source.private ^ main.private)
        yield f"{pair} the same columns are personal of both; '{column}' is of one of them only."
    if source.dated_by != main.dated_by:
        yield f"{pair} both are dated_by the same columns; it says {_said(source.dated_by)}, '{main.name}' {_said(main.dated_by)}."
    if (source.ddl is None) != (main.ddl is None):
        yield f"{pair} both have a schema, or of both it is inferred; only '{(source if source.ddl else main).name}' has one."
    elif source.ddl and main.ddl and _columns(source.ddl) != _columns(main.ddl):
        names = {name for name, _ in set(_columns(source.ddl).items()) ^ set(_columns(main.ddl).items())}
        yield f"{pair} both have the same schema; column '{min(names)}' is not the same in both."
    elif source.infer_types != main.infer_types:
        yield f"{pair} infer_types is the same of both."


def _said(value: str | None) -> str:
    return f"'{value}'" if value else "none"


def _columns(ddl: str) -> dict[str, str]:
    """The columns of DDL text with their types: Delta's names ignore case."""
    return {name.lower(): kind for name, kind in column_types(ddl).items()}
