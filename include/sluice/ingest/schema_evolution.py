"""Decides into which columns a source's records are read, and how the columns grow with the deliveries.

A field is held back if its name begins with an underscore and no declaration names it, or if its table has no room left. Fields that the
declaration itself sends to _rescued_data are not reported. The outcomes of a source's deliveries say which fields were newly held back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from sluice.declare.assembly.kept_fields import suggest_kept_fields
from sluice.declare.ingest.field_names import becomes_column, is_reserved_column
from sluice.declare.ingest.source import Source
from sluice.errors import SluiceError
from sluice.ingest import schema_log
from sluice.ingest.values import types
from sluice.lake import table_creation
from sluice.lake.nested_types import has_other_type, union_columns, union_nested_fields
from sluice.printable import escape_to_one_line
from sluice.record_states import INGESTED

if TYPE_CHECKING:
    from sluice.ingest.reading.examination import ExaminedDelivery

SAMPLE_FILES = 100
SAMPLE_BYTES = 16_000_000
"""How much, at most, is read to infer the types of a source's first columns: files, and bytes of text."""
_AS_IT_WAS = "as the table was before there was a schema log: all text"
"""The reason of the first version if a table has columns but no log, such as one whose schema is no longer declared."""
MOST = 100
"""How many fields a delivery's outcome names at most; a later one names the next."""


class NewColumns(SluiceError):
    """Fields came that are not columns, and the source says that the run then fails."""


@dataclass(frozen=True)
class SourceColumns:
    """The source as it is read, and its columns as Arrow types, without Sluice's own. settled: whether types were inferred before.

    beside: the columns of rows that stay while the others are read from scratch. They become columns once types are inferred.
    """

    source: Source
    schema: pa.Schema
    settled: bool
    beside: StructType | None = None

    def spark(self) -> StructType:
        """The columns as Spark types."""
        return from_arrow_schema(self.schema)


def read_source_columns(source: Source, folder: str, bronze: StructType, run: str) -> SourceColumns:
    """Returns the columns as they are now. folder: the schema log's. bronze: the table's columns.

    A column that the table has and the log lacks keeps the table's type: another one would make the table's values misfits.
    """
    grows = source.schema_evolution == "add_new_columns"
    logged = None if source.ddl and not grows else schema_log.read_latest_schema_version(folder)
    there = _without_own_columns(bronze)
    if source.ddl:
        declared = table_creation.parse_ddl_schema(source.ddl)
        schema = _apply_logged_growth(declared, _without_own_columns(logged.columns()), source) if logged else declared
        return SourceColumns(source, _arrow_schema(schema), settled=True)
    if logged is None and there.fields:
        # Their types were not inferred: values were kept as text, and still are.
        schema_log.write_schema_version(folder, there, run, _AS_IT_WAS)
        logged = schema_log.read_latest_schema_version(folder)
    if logged is None:
        return SourceColumns(source, _arrow_schema(_hinted_columns(source)), settled=False)
    if schema_log.read_schema_versions(folder)[0].why == _AS_IT_WAS:
        source = replace(source, infer_types=False, widen_types=False)
    known = union_columns(there, _without_own_columns(logged.columns()))
    return SourceColumns(source, _arrow_schema(_union_columns(known, _hinted_columns(source))), settled=True)


def start_source_columns(source: Source, beside: StructType) -> SourceColumns:
    """Returns the columns as if nothing had been ingested yet. beside: the columns of rows that stay all the same."""
    beside = _without_own_columns(beside)
    if not source.ddl:
        return SourceColumns(source, _arrow_schema(_hinted_columns(source)), settled=False, beside=beside)
    declared = table_creation.parse_ddl_schema(source.ddl)
    if source.schema_evolution == "add_new_columns":
        declared = union_columns(beside, declared)
    return SourceColumns(source, _arrow_schema(declared), settled=True)


def find_ignored_hints(source: Source, bronze: StructType) -> list[str]:
    """Returns what schema_hints say about columns that bronze has with another type, in words. bronze: the table's columns."""
    there = {column.name.lower(): column.dataType for column in bronze}
    found = [(hint, there.get(hint.name.lower())) for hint in _hinted_columns(source)]
    return [
        f"{hint.name} {hint.dataType.simpleString()} (bronze has {present.simpleString()})"
        for hint, present in found
        if present is not None and has_other_type(present, hint.dataType) and not _was_widened(source, hint.dataType, present)
    ]


def _was_widened(source: Source, hinted: DataType, present: DataType) -> bool:
    """Whether a column may have got its type by growing wider than its hint."""
    before, now = (_arrow_schema(StructType([StructField("_", kind)])).field(0).type for kind in (hinted, present))
    return source.widen_types and not pa.types.is_string(now) and types.merge_types(before, now) == now


def grow_source_columns(columns: SourceColumns, news: pa.StructType, folder: str, run: str, why: str = "") -> SourceColumns:
    """Adds new fields to the columns, as the source declares, and records a change in the schema log.

    Raises NewColumns if the source says that a run with new fields fails.
    """
    source = columns.source
    unknown = [name for name, _ in find_unknown_fields(columns.schema, news) if is_column_added_automatically(source, name)]
    if unknown and source.schema_evolution == "fail_on_new_columns":
        raise NewColumns(
            f"Source '{source.name}': no column yet: {_list_field_names(unknown)}, and schema_evolution is 'fail_on_new_columns'. "
            "Nothing of the batch was written. Add them to the schema, or let them be added or rescued."
        )
    if source.schema_evolution != "add_new_columns":
        news = _select_known_fields(columns.schema, news)
    schema = types.grow_schema(columns.schema, news, source, _arrow_schema(_hinted_columns(source)))
    if columns.beside is not None:
        schema = _arrow_schema(union_columns(columns.beside, from_arrow_schema(schema)))
    if schema.equals(columns.schema) and (columns.settled or not schema.names):
        return columns
    schema_log.write_schema_version(
        folder, from_arrow_schema(schema), run, why or _describe_schema_change(columns.schema, schema)
    )
    return SourceColumns(source, schema, settled=True)


def select_sampled_deliveries(examined: list[ExaminedDelivery]) -> list[ExaminedDelivery]:
    """Selects the deliveries that a first schema is inferred from."""
    return [item for item in examined if item.state == INGESTED and not item.empty][:SAMPLE_FILES]


def find_unknown_fields(
    schema: pa.Schema | pa.StructType, news: pa.StructType, within: str = ""
) -> Iterator[tuple[str, pa.DataType]]:
    """Returns the new fields that the schema lacks, nested ones by their path."""
    known = {field.name: field.type for field in schema}
    for field in news:
        if field.name not in known:
            yield within + field.name, field.type
        elif pa.types.is_struct(field.type) and pa.types.is_struct(known[field.name]):
            yield from find_unknown_fields(known[field.name], field.type, f"{within}{field.name}.")


def is_column_added_automatically(source: Source, path: str) -> bool:
    """Whether a field becomes a column without being named, if there is room. path: from `find_unknown_fields`."""
    return "." in path or becomes_column(source, path)


def withdraw_unwritten_versions(folder: str, bronze: StructType) -> None:
    """Withdraws versions of the schema log with columns that the bronze table lacks: an attempt recorded them and could not write its rows."""
    types_there = {field.name: field.dataType for field in bronze}
    found = schema_log.read_schema_versions(folder)
    while found and any(types_there.get(field.name) != field.dataType for field in found[-1].columns()):
        schema_log.withdraw_schema_version(folder, found.pop())


def _without_own_columns(schema: StructType) -> StructType:
    """Returns the schema without columns that belong to Sluice, Delta or Spark, even if an older log has some."""
    return StructType([field for field in schema if not is_reserved_column(field.name)])


def _hinted_columns(source: Source) -> StructType:
    return table_creation.parse_ddl_schema(source.schema_hints) if source.schema_hints else StructType()


def _union_columns(schema: StructType, more: StructType) -> StructType:
    """Returns the schema with those columns of the other that it lacks."""
    names = {name.lower() for name in schema.names}
    return StructType([*schema, *(field for field in more if field.name.lower() not in names)])


def _apply_logged_growth(declared: StructType, logged: StructType, source: Source) -> StructType:
    """Returns the declared columns and those that came since. What grew below a declared column, or was widened, is as in the log."""
    since = {field.name: field.dataType for field in logged}

    def grow_field(field: StructField) -> StructField:
        before = since.get(field.name, field.dataType)
        grown = before if source.widen_types else union_nested_fields(before, field.dataType)
        return StructField(field.name, grown, field.nullable, field.metadata)

    return _union_columns(StructType([grow_field(field) for field in declared]), logged)


def _arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _select_known_fields(schema: pa.Schema | pa.StructType, news: pa.StructType) -> pa.StructType:
    known = {field.name: field.type for field in schema}
    kept = []
    for field in news:
        if field.name not in known:
            continue
        nested = pa.types.is_struct(field.type) and pa.types.is_struct(known[field.name])
        kept.append(field.with_type(_select_known_fields(known[field.name], field.type)) if nested else field)
    return pa.struct(kept)


def _describe_schema_change(before: pa.Schema, after: pa.Schema) -> str:
    added = [name for name, _ in find_unknown_fields(before, pa.struct(list(after)))]
    widened = [
        field.name
        for field in before
        if not pa.types.is_struct(field.type) and not after.field(field.name).type.equals(field.type)
    ]
    said = [f"{what}: {_list_field_names(names)}" for what, names in (("new", added), ("widened", widened)) if names]
    return "; ".join(said) or "inferred"


def _list_field_names(names: list[str], most: int = 10) -> str:
    names = [escape_to_one_line(name) for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"fields {', '.join(names[:most])}{more}" if len(names) > 1 else f"the field {names[0]}"


def find_held_back_fields(columns: SourceColumns, news: pa.StructType) -> dict[str, str]:
    """Returns, by name or path, the type that a held-back field's column would have. news: the fields that the grown columns still lack."""
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
    """Returns, by delivery, the fields that no earlier outcome has named, in an outcome's form. before: what the earlier outcomes say."""
    known = set(parse_held_back_fields(before))
    said = {}
    for number, fields in sorted(found.items()):
        fresh = {name: fields[name] for name in [name for name in fields if name not in known][:MOST]}
        if fresh:
            said[number] = json.dumps(fresh)
            known |= set(fresh)
    return said


def held_back_note(source: Source, outcomes: Iterable[str | None]) -> str | None:
    """Returns a run's note about held-back fields in its outcomes, or None if no field is newly held back."""
    fields = parse_held_back_fields(outcomes)
    return f"rescued from now on: {'; '.join(suggest_kept_fields(source, fields))}" if fields else None


def parse_held_back_fields(told: Iterable[str | None]) -> dict[str, str]:
    """Returns the fields that outcomes of deliveries name, with their types."""
    fields: dict[str, str] = {}
    for said in told:
        fields |= json.loads(said) if said else {}
    return fields
