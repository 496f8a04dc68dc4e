"""Creates tables before their first write, with every property from version 0 on, and finds what an existing table lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from delta.tables import DeltaTable, DeltaTableBuilder
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sluice import delta_log
from sluice.declare.quoting import quote_column, quote_columns, quote_identifier
from sluice.declare.sql.schema import not_null_rule_name, sql_literal
from sluice.delta_log import LOG, list_log_versions
from sluice.lake import log, log_files, rowless_commits, table_frames
from sluice.lake.layout_properties import choose_layout_properties, find_property_changes
from sluice.lake.nested_types import arrange_nested_fields
from sluice.lake.rowless_commits import create_empty_table, is_created_by_delta_rs
from sluice.lake.table_frames import compute_aggregates
from sluice.locations import locate, remove_folder
from sluice.open_tables import open_checked_table
from sluice.table_properties import CHECKS, CONSTRAINT, INSTANTS, MICROSECONDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FILES_BY_SIZE = "optimizeWrite"
"""Delta's option of a write: it shuffles the rows first, so that they make as many files as they fill and not one for each task."""


def parse_ddl_schema(ddl: str) -> StructType:
    """Returns a schema from DDL text such as "device_id BIGINT, time DOUBLE"."""
    return cast("StructType", StructType.fromDDL(ddl))


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """What a table is made with. statistics: columns with minima and maxima per file, none of them personal.

    statistics_declared: a table that is there gets exactly these, too. keep_log: how long commits stay in the log, at least; None: 30 days.
    file_bytes: how large OPTIMIZE makes files; None: as for every table. checks: conditions by name that every row must meet for Delta to
    take it. Columns that are not nullable, and comments, are in the schema.
    """

    schema: StructType
    comment: str
    statistics: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    retain: str = "7 days"
    keep_log: str | None = None
    statistics_declared: bool = False
    change_feed: bool = True
    deletion_vectors: bool = False
    file_bytes: int | None = None
    checks: Mapping[str, str] = field(default_factory=dict, hash=False)


def create_table(session: SparkSession, path: str, shape: TableShape) -> bool:
    """Creates the table if it does not exist. Returns whether it was created now.

    Deletion vectors stay off unless they are declared, so that deleted rows leave the files themselves. An existing table gets the
    properties and cluster columns of the shape, and loses statistics of columns that have become personal.
    """
    if delta_log.is_delta_table(path):
        _align_table_layout(session, path, shape)
        return False
    remove_unfinished_table(path)
    properties = _shape_properties(shape)
    if not shape.cluster_by and is_created_by_delta_rs(session, path, shape.schema, properties, shape.partition_by):
        create_empty_table(session, path, shape.schema, shape.comment, properties, shape.partition_by)
    else:
        _build_table(session, DeltaTable.createIfNotExists(session).location(path), shape)
    return True


def remove_unfinished_table(path: str) -> None:
    """Removes what a kill left of a table that was being created. Call it under the lease, if there is no table.

    Delta sees no table in a log without a first commit, but does not create a new one in its place either.
    """
    folder = locate(path) / LOG
    commits, checkpoints = list_log_versions(folder)
    if folder.is_dir() and not commits and not checkpoints:
        remove_folder(folder, strict=True)


def _align_table_layout(session: SparkSession, path: str, shape: TableShape) -> None:
    """Applies to the table what the declaration now says about its layout, as far as no file must be rewritten.

    Settings that name a column which the table does not have yet wait until it is there.
    """
    schema = table_frames.read_spark_schema(open_checked_table(path))
    clustered = log_files.read_cluster_columns(path)
    partitions = log.read_partition_columns(path)  # until a refresh, the table has these and not those that are declared
    there = replaced(
        shape,
        schema=schema,
        cluster_by=shape.cluster_by if set(shape.cluster_by) <= set(schema.names) else clustered,
        partition_by=(*shape.partition_by, *partitions),
    )
    properties = log.read_table_properties(path)
    changes = find_property_changes(properties, there)
    if changes:
        rowless_commits.change_table_properties(session, path, changes)
    # Delta clusters no table with partitions: only a refresh takes these away. Files with INT96 are rewritten before, by ZORDER.
    if clustered != there.cluster_by and not partitions and properties.get(INSTANTS) == MICROSECONDS:
        cluster_from_now_on(session, path, there.cluster_by)


def cluster_from_now_on(session: SparkSession, path: str, columns: Sequence[str]) -> None:
    """Says in the log by which columns rows are to be clustered. Files that are there stay as they are."""
    by = f"({', '.join(quote_identifier(name) for name in columns)})" if columns else "NONE"
    session.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY {by}")


def create_catalog_table(session: SparkSession, name: str, shape: TableShape) -> None:
    """Creates the table in the session's catalog, which decides where it lies, if it does not exist."""
    _build_table(session, DeltaTable.createIfNotExists(session).tableName(name), shape)


def _build_table(session: SparkSession, builder: DeltaTableBuilder, shape: TableShape) -> None:
    builder = builder.comment(shape.comment).addColumns(shape.schema)
    if shape.partition_by:
        builder = builder.partitionedBy(*shape.partition_by)
    if shape.cluster_by:
        builder = builder.clusterBy(*shape.cluster_by)
    properties = _shape_properties(shape)
    for name, value in properties.items():
        builder = builder.property(name, value)
    with rowless_commits.allow_layout_properties(session, properties):
        builder.execute()


def replace_table(frame: DataFrame, path: str, shape: TableShape) -> None:
    """Makes the table hold these rows, with this shape, in one commit: a reader sees the old table or the new one.

    For a clustered table, a second commit sets the cluster columns; the next OPTIMIZE then orders the rows.
    """
    columns = [quote_column(one.name).alias(one.name, metadata=one.metadata) for one in shape.schema]
    writer = frame.select(*columns).writeTo(f"delta.`{path}`").using("delta")
    # If a table is made from rows, its columns are nullable, whatever the rows' schema says.
    strict = {
        not_null_rule_name(one.name): f"{quote_identifier(one.name)} IS NOT NULL" for one in shape.schema if not one.nullable
    }
    checked = replaced(shape, checks={**shape.checks, **strict})
    properties = {**_shape_properties(checked), "comment": shape.comment}
    for name, value in properties.items():
        writer = writer.tableProperty(name, value)
    if shape.partition_by:
        writer = writer.partitionedBy(*quote_columns(shape.partition_by)).option(FILES_BY_SIZE, "true")
    with rowless_commits.allow_layout_properties(frame.sparkSession, properties):
        writer.replace()
    if shape.cluster_by:  # Delta's writer takes no cluster columns here. A run that was killed before this does it at the next.
        cluster_from_now_on(frame.sparkSession, path, shape.cluster_by)


def make_inline_frame(session: SparkSession, rows: Sequence[tuple[object, ...]], ddl: str) -> DataFrame:
    """Returns a frame of a few rows. Arrow puts them into the plan; a list of rows would start Python workers, which takes seconds."""
    schema = to_arrow_schema(parse_ddl_schema(ddl), timezone="UTC")
    values = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(list(column), type=field.type) for column, field in zip(values, schema, strict=True)]
    return session.createDataFrame(pa.Table.from_arrays(arrays, schema=schema), parse_ddl_schema(ddl))


def _shape_properties(shape: TableShape) -> dict[str, str]:
    return {
        **choose_layout_properties(shape),
        INSTANTS: MICROSECONDS,
        **{f"{CONSTRAINT}{name}": condition for name, condition in shape.checks.items()},
        **({CHECKS: ",".join(sorted(shape.checks))} if shape.checks else {}),
    }


def read_table_property(path: str, name: str) -> str | None:
    """Returns a table property, or None."""
    return log.read_table_properties(path).get(name)


@dataclass(frozen=True)
class PendingChanges:
    """What must be changed in a table. added: by name, conditions that it does not enforce yet. changes: all alterations."""

    added: Mapping[str, str]
    changes: tuple[str, ...]


def find_pending_changes(session: SparkSession, path: str, shape: TableShape) -> PendingChanges:
    """Returns what the table lacks of the shape. Constraints that somebody added by hand stay."""
    properties, present = log.read_table_properties(path), table_frames.read_table_columns(session, path)
    has = {name.removeprefix(CONSTRAINT): value for name, value in properties.items() if name.startswith(CONSTRAINT)}
    ours = set(filter(None, properties.get(CHECKS, "").split(",")))
    wanted = _required_checks(present, shape)
    added = {name: condition for name, condition in wanted.items() if has.get(name) != condition}
    dropped = (set(added) & set(has)) | ((ours & set(has)) - set(wanted))
    changes = [f"DROP CONSTRAINT {quote_identifier(name)}" for name in sorted(dropped)]
    changes += [f"ADD CONSTRAINT {quote_identifier(name)} CHECK ({condition})" for name, condition in added.items()]
    if set(wanted) != ours:
        changes.append(f"SET TBLPROPERTIES ('{CHECKS}' = '{','.join(sorted(wanted))}')")
    return PendingChanges(added, (*changes, *_column_changes(present, shape.schema)))


def count_table_violations(session: SparkSession, path: str, shape: TableShape, conditions: Mapping[str, str]) -> dict[str, int]:
    """Returns, by name of a condition, how many rows of the table do not meet it. Conditions that every row meets are left out.

    Columns that the table has yet to get are NULL in all of its rows, and so are fields within its columns.
    """
    if not conditions:
        return {}
    rows = arrange_nested_fields(table_frames.read_table(session, path), shape.schema)
    added = {field.name: F.lit(None).cast(field.dataType) for field in shape.schema if field.name not in rows.columns}
    return count_failing_rows(rows.withColumns(added), conditions)


def count_failing_rows(rows: DataFrame, conditions: Mapping[str, str]) -> dict[str, int]:
    """Returns, by name of a condition, how many of the rows do not meet it. Conditions that every row meets are left out."""
    if not conditions:
        return {}
    counted = compute_aggregates(rows, *(F.count_if(~_is_condition_met(conditions[name])).alias(name) for name in conditions))
    return {name: number for name, number in counted.items() if number}


def apply_pending_changes(session: SparkSession, path: str, shape: TableShape, needed: PendingChanges) -> None:
    """Applies what is pending, one commit for each change, and sets the table's comment. No row may violate what is added."""
    for change in needed.changes:
        session.sql(f"ALTER TABLE delta.`{path}` {change}")
    if (log.read_table_comment(path) or "") != shape.comment:
        session.sql(f"COMMENT ON TABLE delta.`{path}` IS {sql_literal(shape.comment)}")


def _required_checks(present: StructType, shape: TableShape) -> dict[str, str]:
    """Returns the shape's checks. A column cannot become NOT NULL later, so a condition that it is not NULL replaces that."""
    strict = [field.name for field in shape.schema if not field.nullable]
    loose = [name for name in strict if name not in present.names or present[name].nullable]
    return {**shape.checks, **{not_null_rule_name(name): f"{quote_identifier(name)} IS NOT NULL" for name in loose}}


def _column_changes(present: StructType, wanted: StructType) -> list[str]:
    """Returns the changes of columns: comments, and NULL allowed if the declaration no longer forbids it."""
    changes = []
    for one in present:
        if one.name not in wanted.names:
            continue
        comment = wanted[one.name].metadata.get("comment", "")
        if one.metadata.get("comment", "") != comment:
            changes.append(f"ALTER COLUMN {quote_identifier(one.name)} COMMENT {sql_literal(comment)}")
        if wanted[one.name].nullable and not one.nullable:
            changes.append(f"ALTER COLUMN {quote_identifier(one.name)} DROP NOT NULL")
    return changes


def _is_condition_met(condition: str) -> Column:
    return F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))
