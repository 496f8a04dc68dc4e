"""Fields that were delivered and became no column although their records have a place for columns: which, and what keeps them.

A field is held back whose name begins with an underscore and which nobody has named, and one for which its table has no room left. What the
declaration itself sends to _rescued_data is not told again. The outcomes of a source's deliveries say which were newly held back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from sluice.declare.assembly.kept_fields import suggest_kept_fields
from sluice.declare.ingest.source import Source
from sluice.ingest.schema.evolution import SourceColumns, find_unknown_fields, is_column_added_automatically
from sluice.ingest.values import types

MOST = 100
"""So many fields a delivery's outcome names at most; a later one names the next."""


def find_held_back_fields(columns: SourceColumns, news: pa.StructType) -> dict[str, str]:
    """By name, within others by its path, the type that a column would have. news: what the columns, as they have grown, still have not."""
    if columns.source.schema_evolution in ("rescue", "none"):
        return {}
    full = types.count_remaining_fields(columns.schema, columns.source) <= 0
    found = {}
    for path, kind in find_unknown_fields(columns.schema, news):
        held = full or not is_column_added_automatically(columns.source, path)
        column = types.new_column_type(kind, columns.source) if held and types.is_column_name(path.rpartition(".")[2]) else None
        if column is not None:
            found[path] = from_arrow_type(column).simpleString()
    return found


def newly_held_back_fields(found: Mapping[int, Mapping[str, str]], before: Iterable[str | None]) -> dict[int, str]:
    """By delivery, as its outcome says it, the fields that no earlier one has named. before: what the earlier outcomes say."""
    known = set(parse_held_back_fields(before))
    said = {}
    for number, fields in sorted(found.items()):
        fresh = {name: fields[name] for name in [name for name in fields if name not in known][:MOST]}
        if fresh:
            said[number] = json.dumps(fresh)
            known |= set(fresh)
    return said


def held_back_note(source: Source, outcomes: Iterable[str | None]) -> str | None:
    """What a run says of the outcomes that it has made; None: nothing is newly held back."""
    fields = parse_held_back_fields(outcomes)
    return f"rescued from now on: {'; '.join(suggest_kept_fields(source, fields))}" if fields else None


def parse_held_back_fields(told: Iterable[str | None]) -> dict[str, str]:
    """The fields that outcomes of deliveries name, with their types."""
    fields: dict[str, str] = {}
    for said in told:
        fields |= json.loads(said) if said else {}
    return fields
