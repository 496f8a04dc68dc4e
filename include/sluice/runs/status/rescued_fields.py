"""Fields of a source's records that could be columns and are not: what the ledger names, without what is kept by now. Read without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sluice.declare.assembly.kept_fields import line_that_keeps, named_columns
from sluice.lake import log
from sluice.runs.status.books import Books


def rescued_fields(books: Books) -> Iterator[dict[str, Any]]:
    """Of each source that has some: its name, the fields with their types, and what of the declaration keeps them."""
    for source in books.graph.sources.values():
        path = books.path(source.name)
        kept = {name.lower() for name in (*named_columns(source), *(log.columns(path) if log.exists(path) else ()))}
        told = [row["held_back"].items() for row in books.deliveries if row["source"] == source.name and row["held_back"]]
        fields = {name: kind for items in told for name, kind in items if name.lower() not in kept}
        if fields:
            yield {"source": source.name, "fields": fields, "keep": "; ".join(line_that_keeps(source, fields))}
