"""Quarantines rows of a table's flow: as delivered, as the transform made them, and with the rules that they failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import Graph
from sluice.declare.ingest.field_names import is_reserved_column
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column, quote_columns, quote_identifier
from sluice.flows.silver.made import AnyTable
from sluice.flows.silver.scope import DeliveryScope
from sluice.flows.writing.difference import persist_frame
from sluice.lake import log, table_frames
from sluice.lake.row_sizes import RowsSize, measure_rows
from sluice.lake.small_writes import MOST_APPENDED_ROWS
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.quality import quarantine, verdicts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def quarantine_scope_rows(
    workspace: Workspace, table: AnyTable, source: Source, rows: DataFrame, scope: DeliveryScope, number: int
) -> None:
    """Makes the table's quarantine hold exactly the rows of the scope's deliveries that are to be quarantined.

    rows: the rows with verdicts. number: how many of them are to be quarantined. If no rule quarantines any more, rows that such rules set
    aside earlier are removed.
    """
    path = workspace.quarantine(table.name)
    bad = _select_quarantined_rows(table, rows)
    touched = {*scope.fresh, *scope.dead}
    if scope.everything:
        both = table_frames.read_table(workspace.session, path).select("_delivery").unionByName(bad.select("_delivery"))
        touched = {row._delivery for row in both.distinct().collect()}
    found = build_table_quarantine_rows(workspace, table, source, bad, sorted(touched))
    if not 0 < number <= MOST_APPENDED_ROWS:
        quarantine.replace_quarantine_of_deliveries(found, path, sorted(touched), RowsSize(number))
        return
    with persist_frame(found) as measured:
        quarantine.replace_quarantine_of_deliveries(measured, path, sorted(touched), measure_rows(measured))


def requarantine_rows(
    workspace: Workspace,
    table: AnyTable,
    source: Source,
    rows: DataFrame,
    origin: DataFrame,
    keys: DataFrame,
    number: int,
) -> None:
    """Makes the quarantine hold those of these rows that are to be quarantined, and nothing else of them or of the bronze rows `origin`.

    keys: the keys (`replayed_by`) of all these rows, and of what the quarantine has of `origin`.
    """
    path = workspace.quarantine(table.name)
    before = log.read_table_state(path)
    if number or (before and before.files):
        bad = _select_quarantined_rows(table, rows)
        deliveries = sorted(row._delivery for row in bad.select("_delivery").distinct().collect()) if number else []
        made = build_table_quarantine_rows(workspace, table, source, bad, deliveries)
        present = _flag_rows_judged_again(table_frames.read_table(workspace.session, path), table, rows, origin, keys)
        quarantine.replace_rejudged_quarantine_rows(made, path, present)


def _flag_rows_judged_again(
    present: DataFrame, table: AnyTable, rows: DataFrame, origin: DataFrame, keys: DataFrame
) -> DataFrame:
    """Adds `quarantine.JUDGED_AGAIN`. Of a record that is not in `origin`, only rows with one of the keys were judged again."""
    whole = origin.select(*PROVENANCE).distinct().withColumn("_whole", F.lit(True))
    some = rows.select(*PROVENANCE).distinct().withColumn("_some", F.lit(True))
    known = (
        keys
        .select(F.to_json(F.struct(*quote_columns(table.replayed_by))).alias("_key"))
        .distinct()
        .withColumn("_known", F.lit(True))
    )
    keyed = present.withColumn("_key", F.to_json(quarantined_key_column(table, keys.schema)))
    joined = keyed.join(whole, list(PROVENANCE), "left").join(some, list(PROVENANCE), "left").join(known, "_key", "left")
    again = F.col("_whole").isNotNull() | (F.col("_some").isNotNull() & F.col("_known").isNotNull())
    return joined.select(*present.columns, again.alias(quarantine.JUDGED_AGAIN))


def quarantined_key_column(table: AnyTable, schema: StructType) -> Column:
    """The key (`replayed_by`) of a row in the table's quarantine, as a struct. schema: has these columns."""
    kinds = ", ".join(f"{quote_identifier(key)} {schema[key].dataType.simpleString()}" for key in table.replayed_by)
    return F.from_json("made", kinds)


def build_table_quarantine_rows(
    workspace: Workspace, table: AnyTable, source: Source, bad: DataFrame, deliveries: Sequence[int]
) -> DataFrame:
    """Returns rows with a verdict as rows of the table's quarantine. deliveries: those that the rows belong to."""
    made = F.to_json(F.struct(*(quote_column(name) for name in bad.columns if name not in verdicts.VERDICT)))
    subject = quote_column(table.subject).cast("string") if table.subject else F.lit(None).cast("string")
    judged = bad.select(*PROVENANCE, F.col(verdicts.FAILED_RULES).alias("reasons"), made.alias("made"), subject.alias("own"))
    came = _read_rows_as_delivered(workspace, source, deliveries)
    joined = judged.join(came, list(PROVENANCE), "left")
    more = {"made": F.col("made"), "rules_version": F.lit(verdicts.expectations_version(table.expectations))}
    # Bronze says whom the record is about. If that person is erased, this row goes too, whatever the transform did to the subject.
    return quarantine.make_quarantine_rows(joined, F.col("reasons"), F.to_json("came"), F.coalesce("of", "own"), **more)


def _select_quarantined_rows(table: AnyTable, rows: DataFrame) -> DataFrame:
    return rows.where(verdicts.is_row_set_aside(table.expectations))


def _read_rows_as_delivered(workspace: Workspace, source: Source, deliveries: Sequence[int]) -> DataFrame:
    """Returns bronze's rows of these deliveries: the provenance, `_file`, their columns as the struct `came`, and their subject as `of`."""
    low, high = (min(deliveries), max(deliveries)) if deliveries else (0, 0)
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name)).where(F.col("_delivery").between(low, high))
    # Values that did not fit into a column were delivered, too.
    own = [name for name in bronze.columns if not is_reserved_column(name) or name == "_rescued_data"]
    came = F.struct(*quote_columns(own)).alias("came")
    return bronze.select(*PROVENANCE, "_file", came, _subject_column(workspace.graph, source, bronze.columns).alias("of"))


def _subject_column(graph: Graph, source: Source, columns: Sequence[str]) -> Column:
    told = subjects.build_subject_expression(graph, source, columns)
    return F.expr(told) if told else F.lit(None).cast("string")
