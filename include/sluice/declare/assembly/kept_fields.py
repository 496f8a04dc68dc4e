"""Which delivered fields a source's declaration keeps as columns by naming them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sluice.declare.ingest.field_names import is_reserved_column
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_identifier
from sluice.declare.sql.schema import parse_column_types


def columns_named_in_schema(source: Source) -> list[str]:
    """The columns that schema= or schema_hints= names."""
    return list(parse_column_types(source.ddl or source.schema_hints or ""))


def find_reserved_column_mistakes(sources: Iterable[Source]) -> Iterator[str]:
    """Yields what is wrong with the names of columns, one mistake per line."""
    for source in sources:
        taken = [name for name in columns_named_in_schema(source) if is_reserved_column(name)]
        if taken:
            option = "schema" if source.ddl else "schema_hints"
            yield (
                f"source '{source.name}': {option} names the column '{taken[0]}', which Sluice, Delta or Spark uses itself. Leave it out: a "
                f"delivered field of that name is kept in _rescued_data."
            )


def suggest_kept_fields(source: Source, fields: Mapping[str, str], most: int = 10) -> Iterator[str]:
    """For fields that became no columns: yields, per reason, a sentence with the fields and the option that would keep them."""
    taken = {name for name in fields if is_reserved_column(name)}
    unnamed = {name for name in fields if name.startswith("_")} - taken
    crowded = [name for name in fields if name not in taken | unnamed]
    if unnamed:
        option = "schema" if source.ddl else "schema_hints"
        columns = ", ".join(f"{_quote_if_needed(name)} {fields[name]}" for name in sorted(unnamed)[:most])
        yield f"{_join_with_limit(sorted(unnamed), most)} (to keep: {option}=\"{columns}\" of source '{source.name}')"
    if taken:
        yield f"{_join_with_limit(sorted(taken), most)} (Sluice, Delta or Spark uses the name itself; they stay in _rescued_data)"
    if crowded:
        yield f"{_join_with_limit(crowded, most)} (to keep: a higher most_columns of source '{source.name}', which is {source.most_columns})"


def _quote_if_needed(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else quote_identifier(name)


def _join_with_limit(names: list[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
