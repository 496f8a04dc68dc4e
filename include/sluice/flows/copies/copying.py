"""Copies one table into a clone without personal columns, with stand-ins for those that tables are joined by; or makes a shallow clone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice import delta_log
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.quoting import quote_column, quote_columns
from sluice.declare.sql.schema import sql_literal
from sluice.errors import SluiceError
from sluice.flows.copies import restoration
from sluice.flows.writing.difference import persist_frame
from sluice.lake import batch_sizes, log, rowless_commits, table_creation, versions
from sluice.lake.flow_report import FlowReport
from sluice.lake.table_frames import compute_aggregates
from sluice.lake.workspace import Workspace
from sluice.privacy import pseudonyms
from sluice.table_properties import (
    CHECKS,
    CONSTRAINT,
    PSEUDONYM_KEYS,
    STATISTICS,
    format_statistics_columns,
    parse_statistics_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class CloneRequest:
    """A version of a table, and where its clone goes. joining: personal columns of these names get stand-ins; others are left out."""

    source: str
    version: int
    target: str
    dataset: Dataset[Any] | None
    private: frozenset[str]
    joining: frozenset[str]


@dataclass(frozen=True)
class ClonedColumns:
    """Which of a table's columns differ in the clone."""

    left_out: list[str]
    stand_ins: list[str]


def find_column_without_stand_in(path: str, names: Sequence[str]) -> str:
    """Returns the name and type of one of these columns whose type has no stand-ins, or "" if all have."""
    kinds = versions.read_version_columns(path)
    return next(
        (f"'{name}' ({kinds[name]})" for name in names if _logged_type_name(kinds.get(name, "")) not in pseudonyms.TYPES), ""
    )


def copy_table_into_clone(workspace: Workspace, asked: CloneRequest, key: bytes, report: FlowReport) -> ClonedColumns:
    """Copies a table's rows without those of erased people. key: makes the stand-ins; the same for all tables of a clone."""
    session = workspace.session
    batch_sizes.choose_evaluation_settings(session, [asked.source])
    rows = session.read.format("delta").option("versionAsOf", asked.version).load(asked.source)
    if asked.dataset is not None:
        rows = restoration.drop_rows_of_erased(
            workspace, asked.dataset, rows, versions.read_version_commit_time(asked.source, asked.version)
        )
    made = _plan_cloned_columns(rows.schema, asked)
    stays = [name for name in rows.columns if name not in made.left_out]
    frame = pseudonyms.replace_with_stand_ins(rows.select(*quote_columns(stays)), key, made.stand_ins)
    _create_clone_table(workspace, asked, StructType([rows.schema[name] for name in stays]), made)
    with persist_frame(frame) as final:
        _check_distinct_stand_ins(rows, final, made.stand_ins)
        final.write.format("delta").mode("append").save(asked.target)
        report.count_changes(final.count(), 0, 0)
    if made.left_out or made.stand_ins:
        report.notes.append(_describe_cloned_columns(made))
    return made


def create_shallow_clone(workspace: Workspace, asked: CloneRequest, report: FlowReport) -> ClonedColumns:
    """Makes a new table that references another table's files, with everything in them."""
    workspace.session.sql(
        f"CREATE TABLE delta.`{asked.target}` SHALLOW CLONE delta.`{asked.source}` VERSION AS OF {asked.version}"
    )
    comment = log.read_table_comment(asked.source)
    if comment:
        workspace.session.sql(f"COMMENT ON TABLE delta.`{asked.target}` IS {sql_literal(comment)}")
    report.notes.append(f"references the files of version {asked.version}")
    return ClonedColumns([], [])


def _plan_cloned_columns(schema: StructType, asked: CloneRequest) -> ClonedColumns:
    """Decides which personal columns get stand-ins and which are left out."""
    # Spark does not distinguish upper and lower case.
    private, joining = ({name.lower() for name in of} for of in (asked.private, asked.joining))
    personal = [field for field in schema if field.name.lower() in private]
    kept_ones = [f.name for f in personal if f.name.lower() in joining and f.dataType.typeName() in pseudonyms.TYPES]
    return ClonedColumns([field.name for field in personal if field.name not in kept_ones], kept_ones)


def _create_clone_table(workspace: Workspace, asked: CloneRequest, schema: StructType, made: ClonedColumns) -> None:
    """Creates a table with the source's properties, comments, constraints and partitions, except those of columns that differ."""
    properties = log.read_table_properties(asked.source)
    lost = {*made.left_out, *made.stand_ins}
    checks = {name for name, text in properties.items() if name.startswith(CONSTRAINT) and _is_column_mentioned(text, lost)}
    ours = [name for name in filter(None, properties.get(CHECKS, "").split(",")) if f"{CONSTRAINT}{name}" not in checks]
    changed = {
        STATISTICS: format_statistics_columns(
            name for name in parse_statistics_columns(properties.get(STATISTICS, "")) if name not in lost
        ),
        CHECKS: ",".join(ours),
    }
    if not delta_log.is_delta_table(asked.target):
        table_creation.remove_unfinished_table(asked.target)
    builder = DeltaTable.createIfNotExists(workspace.session).location(asked.target).addColumns(schema)
    builder = builder.comment(log.read_table_comment(asked.source) or "")
    if log.read_partition_columns(asked.source):
        builder = builder.partitionedBy(*log.read_partition_columns(asked.source))
    for name, value in properties.items():
        if name not in checks and name != PSEUDONYM_KEYS:
            builder = builder.property(name, changed.get(name, value))
    with rowless_commits.allow_layout_properties(workspace.session, properties):
        builder.execute()


def _is_column_mentioned(condition: str, columns: set[str]) -> bool:
    words = {word.lower() for word in re.findall(r"\w+", condition)}
    return any(column.lower() in words for column in columns)


def _check_distinct_stand_ins(rows: DataFrame, final: DataFrame, names: Sequence[str]) -> None:
    """Raises SluiceError if two values of an INT got one stand-in. Wider types have room for all."""
    small = [name for name in names if rows.schema[name].dataType.typeName() == "integer"]
    if not small:
        return
    before, after = (_count_distinct_values(frame, small) for frame in (rows, final))
    fewer = [name for name in small if before[name] != after[name]]
    if fewer:
        raise SluiceError(
            f"Column '{fewer[0]}' is INT and has {before[fewer[0]]} values; two of them got one stand-in. Clone again, which makes others; "
            "or make it a BIGINT in the transform."
        )


def _count_distinct_values(frame: DataFrame, names: Sequence[str]) -> dict[str, int]:
    return compute_aggregates(frame, *(F.count_distinct(quote_column(name)).alias(name) for name in names))


def _describe_cloned_columns(made: ClonedColumns) -> str:
    parts = [f"without {', '.join(made.left_out)}"] if made.left_out else []
    return "; ".join([*parts, *([f"stand-ins in {', '.join(made.stand_ins)}"] if made.stand_ins else [])])


def _logged_type_name(text: str) -> str:
    """Returns a type's name as in the log: PrimitiveType("long") is long."""
    found = re.fullmatch(r'PrimitiveType\("(\w+)"\)', text)
    return found.group(1) if found else text
