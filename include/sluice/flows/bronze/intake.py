"""Takes deliveries into bronze: writes their records once, sets aside what does not fit, and records the result of each.

Quarantine is written first, then bronze, then the outcomes. Each step can be repeated safely. Once bronze has a delivery, no attempt
writes it again, and the reported counts come from the committed tables. A delivery that lost some of its rows with a damaged log is
read again whole, in place of the rows that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.ingest.source import Source
from sluice.flows.bronze import accounting, table_shape
from sluice.flows.bronze.accounting import WrittenDeliveries
from sluice.flows.bronze.left_out_records import LeftOutRecords
from sluice.ingest import schema_evolution
from sluice.ingest.deliveries.landed_file import resolve_landed_path
from sluice.ingest.reading import contents, records
from sluice.ingest.reading.examination import Delivery, ExaminedDelivery, examine_deliveries
from sluice.ingest.reading.records import DeliveredRecords
from sluice.ingest.schema_evolution import SourceColumns, find_held_back_fields
from sluice.lake import commits, file_statistics, table_creation, table_frames
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.commits import Transaction
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.locations import Location
from sluice.printable import count_noun
from sluice.quality import quarantine
from sluice.record_states import MISSED, QUARANTINED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Store = Callable[["DataFrame", RowsSize, list[int]], None]
"""Stores the records that fit. It also gets the numbers of all deliveries that were read."""


def ingest_deliveries(
    workspace: Workspace,
    source: Source,
    examined: list[ExaminedDelivery],
    report: FlowReport,
    transaction: Transaction | None = None,
) -> None:
    """Writes the records of examined deliveries, then their outcomes.

    If bronze already has rows of a delivery, an earlier attempt wrote them and then died. They are not written again, whichever flow runs,
    unless others of the delivery were lost.
    """
    there = _find_written_deliveries(workspace, source, examined)
    lacking = accounting.find_incomplete_deliveries(
        workspace, source, [item for item in examined if item.delivery.number in there]
    )
    there -= lacking.keys()
    before = [item for item in examined if item.delivery.number in there]
    suppressed = _recount_suppressed_records(workspace, source, before) if before else {}
    rest = [item for item in examined if item.delivery.number not in there]
    # If an attempt of this batch has written already, the transaction's number is used up.
    once = None if before or lacking else transaction
    bronze = workspace.path(source.name)

    def store(rows: DataFrame, size: RowsSize, numbers: list[int]) -> None:
        table_shape.widen_bronze_columns(workspace, source, rows.schema)
        if lacking:
            commits.replace_rows_of_deliveries(rows, bronze, numbers, size)
        else:
            commits.append_rows(rows, bronze, once, size)

    written = (
        quarantine_and_store_records(workspace, source, rest, store, store_nothing=bool(lacking))
        if rest
        else WrittenDeliveries([])
    )
    done = replace(written, examined=[*before, *written.examined], suppressed=suppressed | written.suppressed)
    accounting.record_outcomes(workspace, source, done, report, transaction.batch if transaction else None, lacking)


def source_landing_folder(workspace: Workspace, source: Source) -> Location:
    """Returns the folder that the names of the source's deliveries are relative to."""
    return source.kind.find_folder(source, workspace.settings, workspace.landing)


def delivery_from_row(row: Any, folder: Location) -> Delivery:
    """Makes a delivery from a row of the deliveries table, read by Spark or without it."""
    # PySpark returns instants without a zone, in the zone of the process, which is UTC.
    at = row["modified_at"].astimezone(UTC) if row["modified_at"] else None
    return Delivery(
        row["delivery"],
        row["source"],
        row["file"],
        row["event"],
        resolve_landed_path(folder, row["file"]),
        row["size"],
        at,
        row["sha256"],
        row["etag"] if "etag" in row else None,  # noqa: SIM401  # Spark's rows have no get
    )


def _find_written_deliveries(workspace: Workspace, source: Source, examined: list[ExaminedDelivery]) -> set[int]:
    """Returns the deliveries that bronze has rows of. New ones have higher numbers than any file's statistics, so no file is read for them."""
    path = workspace.path(source.name)
    possible = sorted(file_statistics.find_values_in_file_ranges(path, "_delivery", [item.delivery.number for item in examined]))
    if not possible:
        return set()
    present = (
        table_frames.read_table(workspace.session, path).where(F.col("_delivery").isin(possible)).select("_delivery").distinct()
    )
    return {row._delivery for row in present.collect()}


def current_source_columns(workspace: Workspace, source: Source) -> SourceColumns:
    """Returns the source's current columns."""
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name)).schema
    return schema_evolution.read_source_columns(source, workspace.schemas(source.table), bronze, workspace.run)


def quarantine_and_store_records(
    workspace: Workspace,
    source: Source,
    examined: list[ExaminedDelivery],
    store: Store,
    beside: StructType | None = None,
    store_nothing: bool = False,
) -> WrittenDeliveries:
    """Sets aside records that do not fit and gives the rest, if any, to `store`.

    beside: the columns of rows that stay, if those of the records are found out from scratch; None if they are known. store_nothing:
    whether `store` is also called if none fit.
    """
    examined, found, held_back = read_delivery_records(workspace, source, examined, beside)
    # If the file has changed since an earlier attempt, only what that attempt set aside is left of it, so it stays.
    numbers = [item.delivery.number for item in examined if item.state != MISSED]
    whole = _refused_files_for_quarantine(workspace, examined)
    refused = [item.delivery.size for item in examined if item.state == QUARANTINED]
    size_of_whole = RowsSize(len(refused), None if None in refused else sum(size or 0 for size in refused))
    try:
        if found.frame is None:
            _replace_quarantined_rows(workspace, source, whole, numbers, size_of_whole)
            if store_nothing and numbers:
                store(table_frames.read_table(workspace.session, workspace.path(source.name)).limit(0), RowsSize(0, 0), numbers)
            return WrittenDeliveries(examined, found.read, held_back=held_back)
        kept, suppressed = LeftOutRecords.of_source(workspace, source).take_out(found.frame)
        good, bad = _count_good_and_bad(kept, found, some_left_out=bool(suppressed))
        aside = _unfit_rows_for_quarantine(source, kept) if bad else None
        both = aside.unionByName(whole) if aside is not None and whole is not None else aside or whole
        _replace_quarantined_rows(workspace, source, both, numbers, size_of_whole + RowsSize(bad, found.bytes if bad else 0))
        if good or (store_nothing and numbers):
            store(kept.where(F.col("_problem").isNull()).drop("_problem", "_record"), RowsSize(good, found.bytes), numbers)
        return WrittenDeliveries(examined, found.read, suppressed, held_back)
    finally:
        found.release()


def read_delivery_records(
    workspace: Workspace, source: Source, examined: list[ExaminedDelivery], beside: StructType | None = None
) -> tuple[list[ExaminedDelivery], DeliveredRecords, dict[int, dict[str, str]]]:
    """Returns the deliveries' records in the columns that all of them together have, and by delivery the fields that did not become columns.

    beside: as in `quarantine_and_store_records`.
    """
    columns = (
        current_source_columns(workspace, source) if beside is None else schema_evolution.start_source_columns(source, beside)
    )
    log_ = workspace.schemas(source.table)
    if not columns.settled:
        some = schema_evolution.select_sampled_deliveries(examined)
        news = records.sample_new_fields(columns.source, some, columns.schema, schema_evolution.SAMPLE_BYTES)
        why = f"inferred from {count_noun(len(some), 'delivery')}"
        columns = schema_evolution.grow_source_columns(columns, news, log_, workspace.run, why)
    while True:
        examined, found = read_until_unchanged(workspace, source, columns, examined)
        try:
            grown = schema_evolution.grow_source_columns(columns, found.news, log_, workspace.run)
        except BaseException:
            found.release()
            raise
        if grown.schema.equals(columns.schema):
            return examined, found, {number: find_held_back_fields(grown, news) for number, news in found.found.items()}
        found.release()
        columns = grown


def read_until_unchanged(
    workspace: Workspace, source: Source, columns: SourceColumns, examined: list[ExaminedDelivery]
) -> tuple[list[ExaminedDelivery], DeliveredRecords]:
    """Reads the deliveries' records in these columns. Returns all deliveries too: some prove unreadable, or changed in the meantime.

    The caller must release the records.
    """
    while True:
        try:
            return examined, records.read_delivered_records(
                workspace.session, columns.source, examined, columns.schema, workspace.staging
            )
        except records.ChangedWhileRead:
            examined = examine_deliveries(source, [item.delivery for item in examined])
        except records.RefusedDeliveries as refused:
            examined = [refused.judged(item) for item in examined]


def _count_good_and_bad(kept: DataFrame, found: DeliveredRecords, some_left_out: bool) -> tuple[int, int]:
    """Returns how many records fit into bronze and how many do not."""
    if not some_left_out:
        return sum(found.read.values()) - found.problems, found.problems
    sizes = {row.good: row["count"] for row in kept.groupBy(F.col("_problem").isNull().alias("good")).count().collect()}
    return sizes.get(True, 0), sizes.get(False, 0)


def _unfit_rows_for_quarantine(source: Source, kept: DataFrame) -> DataFrame:
    bad = kept.where(F.col("_problem").isNotNull())
    return quarantine.make_quarantine_rows(
        bad, F.array("_problem"), F.col("_record"), records.subject_key_column(source, kept.columns)
    )


def _refused_files_for_quarantine(workspace: Workspace, examined: list[ExaminedDelivery]) -> DataFrame | None:
    refused = [item for item in examined if item.state == QUARANTINED]
    if not refused:
        return None
    files = contents.read_refused_files(workspace.session, refused)
    nothing = F.lit(None).cast("string")
    return quarantine.make_quarantine_rows(files, F.array("_reason"), nothing, nothing, content=F.col("content"))


def _replace_quarantined_rows(
    workspace: Workspace, source: Source, rows: DataFrame | None, numbers: list[int], size: RowsSize
) -> None:
    path = workspace.quarantine(source.name)
    empty = table_creation.make_inline_frame(workspace.session, [], quarantine.SCHEMA)
    quarantine.replace_quarantine_of_deliveries(rows if rows is not None else empty, path, numbers, size)


def _recount_suppressed_records(workspace: Workspace, source: Source, examined: list[ExaminedDelivery]) -> dict[int, int]:
    """Counts again, from the files, the records that an earlier attempt must have left out: one that wrote bronze but no outcomes.

    Nobody can count any more what was left out of a file that has changed since.
    """
    left_out = LeftOutRecords.of_source(workspace, source)
    if not left_out.may_occur:
        return {}
    _, found = read_until_unchanged(workspace, source, current_source_columns(workspace, source), examined)
    try:
        return {} if found.frame is None else left_out.take_out(found.frame)[1]
    finally:
        found.release()
