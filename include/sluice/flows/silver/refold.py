"""Replay in silver: folds again, from bronze with today's code, the keys that an interval's rows had or have now.

It leaves the flow's checkpoint alone: what the stream brings later equals what is there and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.datasets.tables import AnyTable
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.declare.quoting import quote_columns
from sluice.flows.bronze import append
from sluice.flows.progress.missing_inputs import SOURCE_IS_EMPTY
from sluice.flows.silver import fold
from sluice.flows.silver.delivery_scope import feeding_sources, live_deliveries, outdated_deliveries
from sluice.flows.silver.fold_operations import make_rows_of_keys_again, plan_keys_again
from sluice.flows.silver.judged_rows import (
    check_key_in_one_file,
    make_judged_rows,
    select_accepted_rows,
    select_deliveries,
    silver_table_schema,
)
from sluice.flows.silver.table_quarantine import quarantined_key_column, requarantine_rows
from sluice.flows.writing import targets
from sluice.flows.writing.difference import persist_frame
from sluice.flows.writing.enforced import count_verdicts
from sluice.lake import batch_sizes, table_frames
from sluice.lake.flow_report import FlowReport
from sluice.lake.table_frames import compute_aggregates
from sluice.lake.workspace import PROVENANCE, Workspace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Completes = Callable[[Interval | None], bool]
"""Given the interval that all records lie in, if it is known, tells whether the replay leaves no row that earlier code made."""


def refold_interval(workspace: Workspace, table: AnyTable, interval: Interval, report: FlowReport, completes: Completes) -> None:
    """Folds the interval's keys again. completes: tells whether afterwards no row of the table was made by earlier code."""
    source = workspace.graph.sources[table.reads[0]]
    wanted = silver_table_schema(workspace, table, source)
    if wanted is None:
        report.notes.append(SOURCE_IS_EMPTY)
        return
    targets.prepare_target_table(workspace, table, wanted, PROVENANCE)
    workspace.mark_next_commits(workspace.graph.flow_name(table))
    origin = _read_interval_rows(workspace, source, interval)
    with (
        persist_frame(origin) as origin,
        persist_frame(_find_replayed_keys(workspace, table, source, origin, _interval_condition(source, interval))) as keys,
    ):
        if not origin.isEmpty():
            _refold_keys(workspace, table, source, origin, keys, report)
    report.batches += 1
    if targets.has_transform_changed(workspace, table) and completes(_read_record_extent(workspace, source)):
        targets.record_transform_fingerprint(workspace, table)


def refold_rows(workspace: Workspace, table: AnyTable, origin: DataFrame, report: FlowReport, gone: bool = False) -> None:
    """Folds again the keys that rows of bronze had or have now. origin: _delivery and _row of these rows. gone: whether bronze lost them."""
    source = workspace.graph.sources[table.reads[0]]
    wanted = silver_table_schema(workspace, table, source)
    if wanted is None:
        return
    targets.prepare_target_table(workspace, table, wanted, PROVENANCE)
    workspace.mark_next_commits(workspace.graph.flow_name(table))
    with persist_frame(origin) as origin, persist_frame(_find_replayed_keys(workspace, table, source, origin, some=True)) as keys:
        if not origin.isEmpty():
            _refold_keys(workspace, table, source, origin, keys, report, gone)
    report.batches += 1


def _refold_keys(
    workspace: Workspace,
    table: AnyTable,
    source: Source,
    origin: DataFrame,
    keys: DataFrame,
    report: FlowReport,
    gone: bool = False,
) -> None:
    path, deliveries = workspace.path(table.name), _list_deliveries(origin)
    workspace.mark_next_commits(workspace.graph.flow_name(table), deliveries)
    batch_sizes.choose_evaluation_settings(workspace.session, [path, workspace.path(source.name)])
    target = table_frames.read_table(workspace.session, path)
    with make_rows_of_keys_again(workspace, table, source, keys, deliveries) as rows:
        quarantined = count_verdicts(table, rows, report)
        check_key_in_one_file(table, select_accepted_rows(table, rows))
        requarantine_rows(workspace, table, source, rows, origin, keys, quarantined)
        operations = plan_keys_again(workspace, table, source, keys, rows, target, moving=gone)
        bounding = targets.choose_bounding_columns(table, target.schema)
        changes = fold.merge_fold_operations(workspace, table, operations, bounding)
    report.count_merge(changes)


def _read_interval_rows(workspace: Workspace, source: Source, interval: Interval) -> DataFrame:
    """Returns _delivery and _row of the interval's rows in bronze, whether or not their deliveries count."""
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name))
    dated = _interval_condition(source, interval)
    if dated is None:
        named = [
            row
            for one in feeding_sources(workspace, source)
            for row in append.read_deliveries_in_interval(workspace, one, interval)
        ]
        numbers = [int(row["delivery"]) for row in named]
        dated = (
            F.col("_delivery").between(min(numbers), max(numbers)) & F.col("_delivery").isin(numbers) if numbers else F.lit(False)
        )
    return bronze.where(dated).select(*PROVENANCE)


def _read_record_extent(workspace: Workspace, source: Source) -> Interval | None:
    """Returns the interval that all records of the source lie in. None if records have no dates, or if one record has none."""
    if source.dated_by is None:
        return None
    at = F.expr(source.dated_by).cast("timestamp")
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name))
    ends = (F.unix_micros(F.min(at)).alias("earliest"), F.unix_micros(F.max(at)).alias("latest"))
    found = compute_aggregates(bronze, *ends, F.count_if(at.isNull()).alias("undated"))
    if found["undated"] or found["earliest"] is None:
        return None
    return Interval(_clip_to_python(found["earliest"]), _clip_to_python(found["latest"] + 1))


def _clip_to_python(microseconds: int) -> datetime:
    """Returns an instant by its microseconds since 1970; of one beyond the years that Python knows, the nearest that it knows."""
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    low, high = ((end - _EPOCH) // timedelta(microseconds=1) for end in (first, last))
    return _EPOCH + timedelta(microseconds=min(max(microseconds, low), high))


def _interval_condition(source: Source, interval: Interval) -> Column | None:
    """Returns the condition that a record belongs to the interval, or None if records have no dates of their own."""
    if source.dated_by is None:
        return None
    at = F.expr(source.dated_by).cast("timestamp")
    return (at >= F.lit(interval.start)) & (at < F.lit(interval.end))


def _find_replayed_keys(
    workspace: Workspace,
    table: AnyTable,
    source: Source,
    origin: DataFrame,
    dated: Column | None = None,
    some: bool = False,
) -> DataFrame:
    """Returns the keys (`replayed_by`) that the rows had until now, in the table or its quarantine, and those that today's code gives them.

    dated: the condition that selects the rows if records have dates of their own. some: whether the rows are not whole deliveries.
    """
    names = quote_columns(table.replayed_by)
    target = table_frames.read_table(workspace.session, workspace.path(table.name))
    live = sorted(set(_list_deliveries(origin)) & set(live_deliveries(workspace, source)))
    made = make_judged_rows(workspace, table, source, live, dated)
    today = (made.join(origin, list(PROVENANCE), "left_semi") if some else made).select(*names)
    present = target.join(origin, list(PROVENANCE), "left_semi").select(*names)
    if dated is None and not some:
        present = present.unionByName(_find_keys_of_unmoved_rows(workspace, table, source, live).select(*names))
    aside = table_frames.read_table(workspace.session, workspace.quarantine(table.name)).join(
        origin, list(PROVENANCE), "left_semi"
    )
    refused = aside.select(quarantined_key_column(target.select(*names).schema).alias("row")).select("row.*")
    return today.unionByName(present).unionByName(refused).distinct()


def _find_keys_of_unmoved_rows(workspace: Workspace, table: AnyTable, source: Source, live: Sequence[int]) -> DataFrame:
    """Returns the table's rows that earlier deliveries of these deliveries' files brought.

    A file that came again with an equal row did not move the table's row to its delivery, so the row is not found by that delivery.
    """
    outdated = outdated_deliveries(workspace, source, live)
    low, high = (outdated[0], outdated[-1]) if outdated else (0, 0)
    rows = table_frames.read_table(workspace.session, workspace.path(table.name)).where(F.col("_delivery").between(low, high))
    return select_deliveries(workspace, rows, outdated)


def _list_deliveries(origin: DataFrame) -> list[int]:
    return [row._delivery for row in origin.select("_delivery").distinct().collect()]
