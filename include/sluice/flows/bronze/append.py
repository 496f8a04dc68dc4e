"""The bronze flow streams deliveries, reads their files as they are now, and appends every record once.

A refresh of bronze, if the source allows it, reads again what the landing folder still has, in one commit. A replay takes the deliveries
of an interval that were missed, refused whole or never taken, as far as they can be taken now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice import delta_log
from sluice.declare.ingest.field_names import is_reserved_column
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.delivery_rows import FILE_STATE
from sluice.errors import UsageError
from sluice.flows.bronze import accounting, intake
from sluice.flows.bronze.one_by_one import ingest_together_or_singly
from sluice.flows.bronze.table_shape import bronze_table_shape, cast_or_rescue_columns, retype_bronze_columns
from sluice.flows.progress import stream_starts, streams
from sluice.flows.progress.checkpoints import Checkpoint, open_checkpoint
from sluice.flows.progress.streams import stop_if_requested
from sluice.ingest import delivery_tables, schema_evolution
from sluice.ingest.deliveries import discovery
from sluice.ingest.deliveries.known_files import read_current_deliveries, select_deliveries_in_interval
from sluice.ingest.reading.examination import ExaminedDelivery, examine_deliveries, examine_unread_deliveries
from sluice.ingest.reading.records import is_read_in_process
from sluice.lake import batch_sizes, log, table_creation, table_frames
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.commits import Transaction
from sluice.lake.flow_report import FlowReport
from sluice.lake.nested_types import union_columns
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.printable import count_noun
from sluice.privacy import suppression_list
from sluice.quality import quarantine
from sluice.record_states import DELIVERED, LACKED_BY_REPLAY, MISSED, REREAD_BY_REFRESH, TAKEN, show_delivery_state
from sluice.record_tables import create_record_table
from sluice.step_times import PREPARING, measure_step
from sluice.work_progress import CountedWork, count_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@measure_step(PREPARING)
def create_bronze_tables(workspace: Workspace, source: Source) -> TableShape:
    """Creates a source's bronze table, its quarantine and the outcomes table if they do not exist. Returns the bronze table's shape."""
    shape = bronze_table_shape(workspace, source)
    table_creation.create_table(workspace.session, workspace.path(source.name), shape)
    quarantine.create_quarantine(
        workspace.session, workspace.quarantine(source.name), source.name, workspace.graph.pipeline.retain
    )
    create_record_table(workspace.outcomes, delivery_tables.OUTCOMES)
    return shape


def run_bronze_flow(workspace: Workspace, source: Source, report: FlowReport, anew: str | None = None) -> None:
    """Ingests every delivery of the source that has no outcome yet. anew: first reads again what the landing folder still has."""
    if not anew:
        _refuse_missing_bronze(workspace, source)
    shape = create_bronze_tables(workspace, source)
    if anew:
        reread_landing_files(workspace, source, shape, report)
    streams.run_with_rebase(lambda why: _stream_deliveries(workspace, source, report, why), None)


def _stream_deliveries(workspace: Workspace, source: Source, report: FlowReport, anew: str | None) -> None:
    flow = workspace.graph.flow_name(source)
    ((name, path),) = workspace.streamed_tables(source).items()
    identity = log.read_table_id(path)
    checkpoint = open_checkpoint(
        workspace.checkpoints(flow),
        flow,
        {name: identity},
        anew=anew,
        find_starts=lambda: stream_starts.find_starts_with_all_rows({name: path}),
    )
    if checkpoint.rebased and log.latest_table_version(workspace.path(source.name)):
        report.notes.append(f"rebased: {checkpoint.rebased}")
    report.notes += source.kind.find_warnings(source, workspace.deliveries, workspace.outcomes)
    if checkpoint.rebased is None and not stream_starts.has_unread_rows_of_sources(
        checkpoint.path, name, identity, path, (source.name,)
    ):
        return
    report.notes += _note_ignored_hints(workspace, source)
    # A file of the deliveries table is one rate-limited group of deliveries. If the stream starts anew, most of them have an outcome.
    at_once = streams.ALL_FILES if checkpoint.rebased and _has_outcomes(workspace) else 1
    rows = streams.stream_table(workspace.session, path, at_once, checkpoint.starts.get(name))
    ours = (F.col("source") == source.name) & F.col("event").isin(*TAKEN)

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        ingest_delivery_batch(inside, source, checkpoint, rows, number, report, work)

    with count_work("deliveries", partial(_count_waiting_deliveries, workspace, source, report)) as work:
        streams.run_stream(workspace, rows.where(ours), checkpoint, on_batch)


def _note_ignored_hints(workspace: Workspace, source: Source) -> list[str]:
    """Returns a note if schema_hints name columns that bronze has with another type."""
    if not source.schema_hints:
        return []
    ignored = schema_evolution.find_ignored_hints(
        source, table_frames.read_table(workspace.session, workspace.path(source.name)).schema
    )
    remedy = f"sluice run {workspace.pipeline} --mode refresh --table {source.name}, which needs may_refresh=True"
    return (
        [f"schema_hints change no column that is there: {', '.join(ignored)}. To read all files anew: {remedy}"]
        if ignored
        else []
    )


def _count_waiting_deliveries(workspace: Workspace, source: Source, report: FlowReport) -> int:
    """Returns how many deliveries the run takes: those it has taken, and those without an outcome."""
    return report.deliveries + delivery_tables.count_waiting_deliveries(workspace.deliveries, workspace.outcomes, source.name)


def ingest_delivery_batch(
    workspace: Workspace,
    source: Source,
    checkpoint: Checkpoint,
    rows: DataFrame,
    number: int,
    report: FlowReport,
    work: CountedWork,
) -> None:
    """Takes one batch of deliveries to their outcomes. A fresh checkpoint's first batch holds all of them and is cut by the source's limits."""
    if checkpoint.rebased and _has_outcomes(workspace):
        rows = _leave_out_settled_deliveries(workspace, rows)
    # Sorted here, because Spark would start a job only to decide how to split so few rows.
    came = sorted((row.asDict() for row in rows.collect()), key=lambda row: int(row["delivery"]))
    known = delivery_tables.read_settled_deliveries(workspace.outcomes, [row["delivery"] for row in came])
    fresh = _refresh_states_and_hashes(workspace, [row for row in came if row["delivery"] not in known])
    parts = discovery.group_into_micro_batches(source, fresh)
    # A transaction has one number for a batch. Without one, the rows that bronze has of a delivery prevent a second write.
    transaction = Transaction(checkpoint.flow, checkpoint.identity, source.name, number) if len(parts) == 1 else None
    folder = intake.source_landing_folder(workspace, source)
    for part in parts:
        workspace.mark_next_commits(checkpoint.flow, [row["delivery"] for row in part])
        # By the files' sizes, because settings are chosen before anything is examined: only then is known how much text they hold.
        few = is_read_in_process(sum(row["size"] or 0 for row in part))
        batch_sizes.choose_evaluation_settings(workspace.session, (), rows=0 if few else None)
        deliveries = [intake.delivery_from_row(row, folder) for row in part]
        ingest_together_or_singly(workspace, source, examine_unread_deliveries(source, deliveries), report, transaction)
        work.advance(len(part))


def _leave_out_settled_deliveries(workspace: Workspace, rows: DataFrame) -> DataFrame:
    """Returns the deliveries without an outcome: a stream that starts anew brings all deliveries again."""
    unsettled = sorted(delivery_tables.find_unsettled_deliveries(workspace.outcomes))
    settled = table_frames.read_table(workspace.session, workspace.outcomes).where(~F.col("delivery").isin(unsettled))
    return rows.join(settled.select("delivery"), "delivery", "left_anti")


def _refresh_states_and_hashes(workspace: Workspace, fresh: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of the stream with their files as they are today: an erasure may have rewritten files that were waiting."""
    if not fresh or suppression_list.is_suppression_list_empty(workspace):
        return fresh
    current = read_current_deliveries(workspace.deliveries)
    now = {row["delivery"]: {name: row[name] for name in FILE_STATE if name in row} for row in current}
    return [row | now.get(row["delivery"], {}) for row in fresh]


def _refuse_missing_bronze(workspace: Workspace, source: Source) -> None:
    """Raises UsageError if rows were ingested and the table is gone. A new, empty table would silently lose all of them."""
    if delta_log.is_delta_table(workspace.path(source.name)) or not _has_outcomes(workspace):
        return
    had = sum(one.had_rows for one in delivery_tables.read_source_outcomes(workspace.outcomes, source.name))
    if had:
        raise UsageError(
            f"The bronze table of '{source.name}' is gone, with the rows of {count_noun(had, 'delivery')}. Put it back at "
            f"{workspace.path(source.name)}; or read again what the landing folder still has: "
            f"sluice run {workspace.pipeline} --mode refresh --table {source.name}"
        )


def _has_outcomes(workspace: Workspace) -> bool:
    state = log.read_table_state(workspace.outcomes)
    return state is not None and state.rows != 0


def reread_landing_files(workspace: Workspace, source: Source, shape: TableShape, report: FlowReport) -> None:
    """Reads again every delivery whose file is unchanged; the rows of the others stay. shape: the bronze table's, before any rows."""
    workspace.mark_next_commits(workspace.graph.flow_name(source))
    known = _examine_known_deliveries(workspace, source)
    # A file that has changed is a new delivery. Bronze holds all that is left of the earlier one.
    examined = [item for item in known if item.state != MISSED]
    report.notes.append(
        f"{count_noun(len(examined), 'delivery')} read again, {len(known) - len(examined)} kept whose files are gone or changed"
    )
    if not examined:
        _retype_kept_rows(workspace, source, report)
        return
    stored: list[bool] = []

    def store(rows: DataFrame, _: RowsSize, numbers: list[int]) -> None:
        stored.append(True)
        _replace_bronze_rows(workspace, source, shape, rows, examined)

    others = _read_rows_of_other_deliveries(workspace, source, examined)
    beside = StructType() if others.isEmpty() else others.schema
    written = intake.quarantine_and_store_records(workspace, source, examined, store, beside)
    if not stored:  # none of their records fits any more
        store(table_frames.read_table(workspace.session, workspace.path(source.name)).limit(0), RowsSize(0, 0), [])
        _retype_kept_rows(workspace, source, report)
    accounting.record_outcomes(workspace, source, written, report, None, {})


def _retype_kept_rows(workspace: Workspace, source: Source, report: FlowReport) -> None:
    """Gives rows of which nothing could be read again the types of the next records, which bronze would not take otherwise."""
    names = retype_bronze_columns(workspace, source, intake.current_source_columns(workspace, source).spark())
    if names:
        report.notes.append(f"of another type now: {', '.join(names)}; a value that does not fit is in _rescued_data")


def _examine_known_deliveries(workspace: Workspace, source: Source) -> list[ExaminedDelivery]:
    folder = intake.source_landing_folder(workspace, source)
    outcomes = delivery_tables.read_last_delivery_states(workspace.outcomes)
    ours = [
        row for row in read_current_deliveries(workspace.deliveries) if row["source"] == source.name and row["event"] == DELIVERED
    ]
    again = [row for row in ours if _show_state(outcomes, row["delivery"]) in REREAD_BY_REFRESH]
    return examine_deliveries(source, [intake.delivery_from_row(row, folder) for row in again])


def _replace_bronze_rows(
    workspace: Workspace, source: Source, shape: TableShape, rows: DataFrame, examined: list[ExaminedDelivery]
) -> None:
    others = _read_rows_of_other_deliveries(workspace, source, examined)
    final = rows if others.isEmpty() else _join_in_one_schema(rows, others)
    technical = [name for name in shape.schema.names if is_reserved_column(name)]
    names = [*(name for name in final.columns if name not in technical), *technical]
    schema = StructType([type(field)(field.name, field.dataType, True) for field in (final.schema[name] for name in names)])
    table_creation.replace_table(final, workspace.path(source.name), replace(shape, schema=schema))


def _read_rows_of_other_deliveries(workspace: Workspace, source: Source, examined: list[ExaminedDelivery]) -> DataFrame:
    again = table_creation.make_inline_frame(
        workspace.session, [(item.delivery.number,) for item in examined], "_delivery BIGINT"
    )
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name))
    return bronze.join(F.broadcast(again), "_delivery", "left_anti")


def _join_in_one_schema(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Returns the rows and the others, which take the types of the rows. A field that one of them lacks is NULL, also within an array."""
    schema = union_columns(others.schema, rows.schema)
    return cast_or_rescue_columns(rows, schema).unionByName(cast_or_rescue_columns(others, schema), allowMissingColumns=True)


def ingest_missed_deliveries(workspace: Workspace, source: Source, interval: Interval, report: FlowReport) -> None:
    """Takes the deliveries that the interval lacks. The flow's checkpoint is left alone: its stream skips deliveries that have an outcome."""
    create_bronze_tables(workspace, source)
    folder = intake.source_landing_folder(workspace, source)
    judged = delivery_tables.read_last_delivery_states(workspace.outcomes)
    lacking = [
        row
        for row in read_deliveries_in_interval(workspace, source, interval)
        if _show_state(judged, row["delivery"]) in LACKED_BY_REPLAY
    ]
    for part in discovery.group_into_micro_batches(source, lacking):
        stop_if_requested(workspace)
        some = [intake.delivery_from_row(row, folder) for row in part]
        examined = examine_unread_deliveries(source, some, judged)
        # A delivery that is refused again for the same reason stays as it is, so that a second replay changes nothing.
        changed = [item for item in examined if (item.state, item.reason) != judged.get(item.delivery.number)]
        if changed:
            workspace.mark_next_commits(workspace.graph.flow_name(source), [item.delivery.number for item in changed])
            ingest_together_or_singly(workspace, source, changed, report)


def read_deliveries_in_interval(workspace: Workspace, source: Source, interval: Interval) -> list[dict[str, Any]]:
    """Returns the source's deliveries of an interval, oldest first, as rows of the deliveries table."""
    return select_deliveries_in_interval(source, read_current_deliveries(workspace.deliveries), interval)


def _show_state(outcomes: Mapping[int, tuple[str, str | None]], delivery: int) -> str:
    return show_delivery_state(outcomes[delivery][0] if delivery in outcomes else None)
