"""What an existing table lacks of its declaration: NOT NULL, CHECK and comments, and the bad rows that prevent adding them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.sql.schema import not_null_rule_name, quote_identifier
from sluice.lake import log, table_frames
from sluice.lake.tables import CHECKS, CONSTRAINT, TableShape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class PendingChanges:
    """What is to be done to a table. added: by name, conditions that it does not enforce yet. changes: all alterations."""

    added: Mapping[str, str]
    changes: tuple[str, ...]


def find_pending_changes(session: SparkSession, path: str, shape: TableShape) -> PendingChanges:
    """What the table lacks of the shape. Constraints that somebody added by hand stay."""
    properties, present = log.read_table_properties(path), table_frames.read_table(session, path).schema
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
    """By name of a condition, how many rows of the table do not meet it; conditions that every row meets are left out.

    Columns that the table is still to get are NULL in all of its rows.
    """
    if not conditions:
        return {}
    rows = table_frames.read_table(session, path)
    added = {field.name: F.lit(None).cast(field.dataType) for field in shape.schema if field.name not in rows.columns}
    return count_failing_rows(rows.withColumns(added), conditions)


def count_failing_rows(rows: DataFrame, conditions: Mapping[str, str]) -> dict[str, int]:
    """By name of a condition, how many of the rows do not meet it; conditions that every row meets are left out."""
    if not conditions:
        return {}
    row = rows.agg(*(F.count_if(~_is_condition_met(conditions[name])).alias(name) for name in conditions)).first()
    return {name: number for name, number in row.asDict().items() if number} if row else {}


def apply_pending_changes(session: SparkSession, path: str, shape: TableShape, needed: PendingChanges) -> None:
    """Apply what is pending, one commit for each change, and set the table's comment to the shape's. No row may violate what is added."""
    for change in needed.changes:
        session.sql(f"ALTER TABLE delta.`{path}` {change}")
    if (log.read_table_comment(path) or "") != shape.comment:
        session.sql(f"COMMENT ON TABLE delta.`{path}` IS {sql_literal(shape.comment)}")


def sql_literal(text: str) -> str:
    """A text as a SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _required_checks(present: StructType, shape: TableShape) -> dict[str, str]:
    """The shape's checks. A column cannot become NOT NULL later, so a condition that it is not NULL takes the place of that."""
    strict = [field.name for field in shape.schema if not field.nullable]
    loose = [name for name in strict if name not in present.names or present[name].nullable]
    return {**shape.checks, **{not_null_rule_name(name): f"{quote_identifier(name)} IS NOT NULL" for name in loose}}


def _column_changes(present: StructType, wanted: StructType) -> list[str]:
    """Comments of columns, and NULL allowed where the declaration no longer forbids it."""
    changes = []
    for field in present:
        if field.name not in wanted.names:
            continue
        comment = wanted[field.name].metadata.get("comment", "")
        if field.metadata.get("comment", "") != comment:
            changes.append(f"ALTER COLUMN {quote_identifier(field.name)} COMMENT {sql_literal(comment)}")
        if wanted[field.name].nullable and not field.nullable:
            changes.append(f"ALTER COLUMN {quote_identifier(field.name)} DROP NOT NULL")
    return changes


def _is_condition_met(condition: str) -> Column:
    return F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))
