"""Gives columns of bronze another type. A value that does not fit the new type goes to _rescued_data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column
from sluice.flows.bronze.shape import bronze_table_shape
from sluice.lake import table_frames, tables
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def widen_bronze_columns(workspace: Workspace, source: Source, wanted: StructType) -> None:
    """Gives the bronze table's columns the wider types of the next rows. One commit rewrites all of its rows.

    Delta's own type widening is a feature that few other readers know, and it does not turn a BIGINT into a DOUBLE.
    """
    path = workspace.path(source.name)
    there = table_frames.read_table(workspace.session, path)
    widened = [name for name in there.columns if name in wanted.names and _has_other_type(there.schema, wanted, name)]
    if widened:
        schema = StructType([wanted[field.name] if field.name in widened else field for field in there.schema])
        shape = replace(bronze_table_shape(workspace, source), schema=schema)
        tables.replace_table(cast_or_rescue_columns(there, schema), path, shape)


def cast_or_rescue_columns(rows: DataFrame, schema: StructType) -> DataFrame:
    """Returns the rows with their columns in these types. A value that does not fit goes to _rescued_data."""
    names = [name for name in rows.columns if name in schema.names and _has_other_type(rows.schema, schema, name)]
    if not names:
        return rows
    fitting = {name: _cast_without_loss(rows, schema, name) for name in names}
    unfit = (F.when(value.isNull(), quote_column(name)).alias(name) for name, value in fitting.items())
    text = F.to_json(F.struct(*unfit), {"ignoreNullFields": "true"})
    joined = F.concat(F.expr("left(_rescued_data, length(_rescued_data) - 1)"), F.lit(","), F.substring(text, 2, 2**31 - 1))
    rescued = F.when(text == "{}", F.col("_rescued_data")).when(F.col("_rescued_data").isNull(), text).otherwise(joined)
    return rows.withColumns({"_rescued_data": rescued, **fitting})


def _cast_without_loss(rows: DataFrame, schema: StructType, name: str) -> Column:
    """Returns the column in its new type: NULL if casting it back gives another value."""
    old, new = rows.schema[name].dataType, schema[name].dataType
    value = quote_column(name).try_cast(new)
    return F.when(value.try_cast(old) == quote_column(name), value)


def _has_other_type(there: StructType, wanted: StructType, name: str) -> bool:
    """Whether two types differ. A struct that only has more fields does not."""
    return there[name].dataType != wanted[name].dataType and not isinstance(there[name].dataType, StructType)
