"""The shape of a source's bronze table: with which it is created, and how its columns get another type.

A value that does not fit the new type goes to _rescued_data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column
from sluice.declare.table_layout import Layout
from sluice.errors import SluiceError
from sluice.lake import table_creation, table_frames
from sluice.lake.nested_types import cast_by_field_names, has_other_type, union_columns
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SECOND = "yyyy-MM-dd'T'HH:mm:ss"
WHOLE_INSTANTS = {"timestampFormat": f"{_SECOND}.SSSSSSXXX", "timestampNTZFormat": f"{_SECOND}.SSSSSS"}
"""Options of `to_json` with which a text has instants to the microsecond. Without them Spark cuts them off at the millisecond."""


TECHNICAL = "_delivery BIGINT, _file STRING, _row BIGINT, _ingested_at TIMESTAMP, _rescued_data STRING"
_ALWAYS = ("_delivery", "_ingested_at")
"""Columns come and go with deliveries, and any of them may be personal, so bronze has statistics only for the delivery, and as declared."""


def bronze_table_shape(workspace: Workspace, source: Source) -> TableShape:
    """Returns the shape with which a source's bronze table is created. Sources that share a table have the one of the source it is named after."""
    of = workspace.graph.sources[source.table]
    layout = of.layout or Layout()
    declared = table_creation.parse_ddl_schema(source.ddl) if source.ddl else StructType()
    return TableShape(
        schema=StructType([*declared.fields, *table_creation.parse_ddl_schema(TECHNICAL).fields]),
        comment=of.comment,
        statistics=(*_ALWAYS, *layout.statistics_columns),
        statistics_declared=bool(layout.statistics_columns),
        retain=layout.retain or workspace.graph.pipeline.retain,
        keep_log=layout.keep_log,
        change_feed=layout.change_feed,
        deletion_vectors=layout.deletion_vectors,
        file_bytes=layout.file_bytes,
    )


def widen_bronze_columns(workspace: Workspace, source: Source, wanted: StructType) -> None:
    """Gives the bronze table's columns the wider types of the next rows. One commit rewrites all of its rows.

    Fields that are new in structs, or in arrays of them, need no rewrite: Delta adds them. Delta's own type widening is a feature that few other
    readers know, and it does not turn a BIGINT into a DOUBLE. Raises SluiceError if no value can become the wanted type.
    """
    there = table_frames.read_table(workspace.session, workspace.path(source.name))
    widened = _find_columns_of_other_type(there.schema, wanted)
    if widened:
        _refuse_impossible_types(workspace, source, there, wanted, widened)
        _rewrite_columns(workspace, source, there, wanted, widened)


def retype_bronze_columns(workspace: Workspace, source: Source, wanted: StructType) -> list[str]:
    """Gives the bronze table's columns the types of the next rows, even those that no value of theirs can become. Returns their names."""
    there = table_frames.read_table(workspace.session, workspace.path(source.name))
    names = _find_columns_of_other_type(there.schema, wanted)
    if names:
        _rewrite_columns(workspace, source, there, wanted, names)
    return names


def _rewrite_columns(workspace: Workspace, source: Source, there: DataFrame, wanted: StructType, names: list[str]) -> None:
    schema = union_columns(there.schema, StructType([wanted[name] for name in names]))
    shape = replace(bronze_table_shape(workspace, source), schema=schema)
    table_creation.replace_table(cast_or_rescue_columns(there, schema), workspace.path(source.name), shape)


def cast_or_rescue_columns(rows: DataFrame, schema: StructType) -> DataFrame:
    """Returns the rows with their columns in these types. A value that does not fit, or a part of it, sends it to _rescued_data as a whole.

    schema: its types have all nested fields of the rows. Those that the rows lack are NULL.
    """
    names = _find_columns_of_other_type(rows.schema, schema)
    grown = [field for field in rows.schema if field.name in schema.names and field.name not in names]
    filled = {
        field.name: cast_by_field_names(quote_column(field.name), field.dataType, schema[field.name].dataType)
        for field in grown
        if field.dataType != schema[field.name].dataType
    }
    if not names:
        return rows.withColumns(filled) if filled else rows
    fitting = {name: _cast_without_loss(rows, schema, name) for name in names}
    unfit = (F.when(value.isNull(), quote_column(name)).alias(name) for name, value in fitting.items())
    text = F.to_json(F.struct(*unfit), {"ignoreNullFields": "true", **WHOLE_INSTANTS})
    joined = F.concat(F.expr("left(_rescued_data, length(_rescued_data) - 1)"), F.lit(","), F.substring(text, 2, 2**31 - 1))
    rescued = F.when(text == "{}", F.col("_rescued_data")).when(F.col("_rescued_data").isNull(), text).otherwise(joined)
    return rows.withColumns({"_rescued_data": rescued, **fitting, **filled})


def _cast_without_loss(rows: DataFrame, schema: StructType, name: str) -> Column:
    """Returns the column in its new type: NULL if casting it back gives another value, or if Spark has no such cast."""
    value, new = _cast_there_and_back(rows, schema, name), schema[name].dataType
    return value if _knows_cast(rows, value) else F.lit(None).cast(new)


def _cast_there_and_back(rows: DataFrame, schema: StructType, name: str) -> Column:
    old, new = rows.schema[name].dataType, schema[name].dataType
    value = cast_by_field_names(quote_column(name), old, new)
    return F.when(_are_equal_values(cast_by_field_names(value, new, old), quote_column(name), old), value)


def _are_equal_values(one: Column, other: Column, kind: DataType) -> Column:
    """Whether two values of a type are equal. Spark compares no maps, so their texts are compared where there is one."""
    if "map<" not in kind.simpleString():
        return one == other
    texts = (F.to_json(F.struct(value.alias("value")), WHOLE_INSTANTS) for value in (one, other))
    return next(texts) == next(texts)


def _knows_cast(rows: DataFrame, value: Column) -> bool:
    """Whether Spark has the casts in a column. Only Spark knows which types become which others."""
    try:
        rows.select(value)
    except AnalysisException:
        return False
    return True


def _refuse_impossible_types(
    workspace: Workspace, source: Source, there: DataFrame, wanted: StructType, names: list[str]
) -> None:
    for name in names:
        if not _knows_cast(there, _cast_there_and_back(there, wanted, name)):
            was, now = there.schema[name].dataType.simpleString(), wanted[name].dataType.simpleString()
            raise SluiceError(
                f"Source '{source.name}': its column '{name}' is {was} in bronze and is now declared as {now}, which no value of it can become. "
                "No row was written. Declare the type that bronze has; or read all files again, which needs may_refresh=True, "
                "and sends the values whose files are gone to _rescued_data: "
                f"sluice run {workspace.pipeline} --mode refresh --table {source.name}"
            )


def _find_columns_of_other_type(there: StructType, wanted: StructType) -> list[str]:
    """Returns the columns of both whose types differ in more than nested fields."""
    return [
        field.name
        for field in there
        if field.name in wanted.names and has_other_type(field.dataType, wanted[field.name].dataType)
    ]
