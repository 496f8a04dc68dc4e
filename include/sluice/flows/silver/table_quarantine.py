"""Quarantines rows of a table's flow: as delivered, as the transform made them, and with the rules that they failed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import AnyTable
from sluice.declare.ingest.field_names import is_reserved_column
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column, quote_columns, quote_identifier
from sluice.flows.bronze.table_shape import WHOLE_INSTANTS
from sluice.flows.silver.delivery_scope import DeliveryScope
from sluice.flows.writing.difference import persist_frame
from sluice.lake import log, table_frames
from sluice.lake.batch_sizes import RowsSize, measure_rows
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
    if not number and not quarantine.has_rows_of_deliveries(workspace.session, path, sorted(touched)):
        return  # the usual case: planning the rows of a quarantine takes longer than finding that there are none
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

    keys: the keys of all these rows, and of what the quarantine has of `origin`; its columns are those by which the rows were chosen.
    """
    path = workspace.quarantine(table.name)
    before = log.read_table_state(path)
    if number or (before and before.files):
        bad = _select_quarantined_rows(table, rows)
        deliveries = sorted(row._delivery for row in bad.select("_delivery").distinct().collect()) if number else []
        made = build_table_quarantine_rows(workspace, table, source, bad, deliveries)
        present = _flag_rows_judged_again(table_frames.read_table(workspace.session, path), rows, origin, keys)
        quarantine.replace_rejudged_quarantine_rows(made, path, present)


def requarantine_rows_of_other_deliveries(
    workspace: Workspace, table: AnyTable, source: Source, rows: DataFrame, scope: DeliveryScope, keys: DataFrame
) -> None:
    """Makes the quarantine hold what it should of these keys from deliveries outside the scope: their verdicts differ if the rules were changed.

    rows: all rows of the keys, with verdicts.
    """
    if table.key_in_one_file:
        return  # no other delivery has a row of them
    elsewhere = rows.where(~F.col("_delivery").isin(list(scope.fresh)))
    number = (
        _select_quarantined_rows(table, elsewhere).count() if any(one.action.sets_row_aside for one in table.expectations) else 0
    )
    requarantine_rows(workspace, table, source, elsewhere, elsewhere.where(F.lit(False)), keys, number)


def _flag_rows_judged_again(present: DataFrame, rows: DataFrame, origin: DataFrame, keys: DataFrame) -> DataFrame:
    """Adds `quarantine.JUDGED_AGAIN`. Of a record that is not in `origin`, only rows with one of the keys were judged again."""
    whole = origin.select(*PROVENANCE).distinct().withColumn("_whole", F.lit(True))
    some = rows.select(*PROVENANCE).distinct().withColumn("_some", F.lit(True))
    known = _list_key_texts(keys).withColumn("_known", F.lit(True))
    cut = _has_cut_instants(keys.schema)
    kept = quarantined_key_column(keys.schema)
    keyed = present.withColumns({"_key": F.when(cut, F.to_json(kept)).otherwise(F.to_json(kept, WHOLE_INSTANTS)), "_cut": cut})
    joined = (
        keyed.join(whole, list(PROVENANCE), "left").join(some, list(PROVENANCE), "left").join(known, ["_key", "_cut"], "left")
    )
    again = F.col("_whole").isNotNull() | (F.col("_some").isNotNull() & F.col("_known").isNotNull())
    return joined.select(*present.columns, again.alias(quarantine.JUDGED_AGAIN))


def _list_key_texts(keys: DataFrame) -> DataFrame:
    """Returns the keys as texts, with whole instants and once more with instants that are cut off at the millisecond."""
    key = F.struct(*quote_columns(keys.columns))
    whole = keys.select(F.to_json(key, WHOLE_INSTANTS).alias("_key"), F.lit(False).alias("_cut"))
    return whole.unionByName(keys.select(F.to_json(key).alias("_key"), F.lit(True).alias("_cut"))).distinct()


def _has_cut_instants(key: StructType) -> Column:
    """Whether the key of a row in quarantine has instants to the millisecond only, as earlier versions of Sluice wrote it."""
    names = [column.name for column in key if column.dataType.typeName() in ("timestamp", "timestamp_ntz")]
    if not names:
        return F.lit(False)
    texts = F.from_json("made", ", ".join(f"{quote_identifier(name)} STRING" for name in names))
    found = [F.coalesce(texts.getField(name).rlike(r"\.\d{3}(Z|[+-]\d\d:\d\d)?$"), F.lit(False)) for name in names]
    return functools.reduce(lambda one, other: one | other, found)


def quarantined_key_column(key: StructType) -> Column:
    """The key of a row in a table's quarantine, as a struct. key: its columns."""
    kinds = ", ".join(f"{quote_identifier(column.name)} {column.dataType.simpleString()}" for column in key)
    return F.from_json("made", kinds)


def build_table_quarantine_rows(
    workspace: Workspace, table: AnyTable, source: Source, bad: DataFrame, deliveries: Sequence[int]
) -> DataFrame:
    """Returns rows with a verdict as rows of the table's quarantine. deliveries: those that the rows belong to."""
    made = F.to_json(F.struct(*(quote_column(name) for name in bad.columns if name not in verdicts.VERDICT)), WHOLE_INSTANTS)
    subject = quote_column(table.subject).cast("string") if table.subject else F.lit(None).cast("string")
    judged = bad.select(*PROVENANCE, F.col(verdicts.FAILED_RULES).alias("reasons"), made.alias("made"), subject.alias("own"))
    came = _read_rows_as_delivered(workspace, source, deliveries)
    joined = judged.join(came, list(PROVENANCE), "left")
    more = {"made": F.col("made"), "rules_version": F.lit(verdicts.expectations_version(table.expectations))}
    # Bronze says whom the record is about. If that person is erased, this row goes too, whatever the transform did to the subject.
    return quarantine.make_quarantine_rows(
        joined, F.col("reasons"), F.to_json("came", WHOLE_INSTANTS), F.coalesce("of", "own"), **more
    )


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
