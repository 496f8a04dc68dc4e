"""The bronze flow: streams deliveries, reads their files as they are now, appends every record once.

A batch writes its quarantine first, then bronze, then the outcomes. Each step is safe to repeat; once bronze has a batch, a retry
takes it from there, and what it reports is counted from the committed tables.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.source import Source
from sluice.flows import accounting, streams
from sluice.flows.checkpoints import Checkpoint, current
from sluice.ingest import ledger, records
from sluice.ingest.examination import Delivery, Examined, examine
from sluice.lake import commits, log, tables
from sluice.lake.commits import Transaction
from sluice.lake.report import FlowReport
from sluice.lake.tables import Shape
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression
from sluice.quality import quarantine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TECHNICAL = "_delivery BIGINT, _file STRING, _row BIGINT, _ingested_at TIMESTAMP, _rescued_data STRING"
_ALL_FILES = 2**31 - 1


def create(workspace: Workspace, source: Source) -> None:
    """Make a source's bronze table, its quarantine and the outcomes table unless they are there."""
    retain = workspace.graph.pipeline.retain
    declared = tables.columns(source.schema) if source.schema else StructType()
    schema = StructType([*declared.fields, *tables.columns(TECHNICAL).fields])
    # Columns come and go with deliveries, and any may be personal: bronze is pruned by delivery alone.
    shape = Shape(schema=schema, comment=source.comment, statistics=("_delivery", "_ingested_at"), retain=retain)
    tables.create(workspace.session, workspace.path(source.name), shape)
    quarantine.create(workspace.session, workspace.quarantine(source.name), source.name, retain)
    ledger.create(workspace.outcomes, ledger.OUTCOMES)


def run(workspace: Workspace, source: Source, report: FlowReport) -> None:
    """Ingest every delivery of the source that has no outcome yet."""
    create(workspace, source)
    flow = f"bronze_{source.name}"
    checkpoint = current(workspace.checkpoints(flow), flow, {"deliveries": log.table_id(workspace.deliveries)})
    if checkpoint.rebased and log.version(workspace.path(source.name)):
        report.notes.append(f"rebased: {checkpoint.rebased}")
    # One file of the deliveries table is one rate-limited group of deliveries; starting anew, most have an outcome already.
    at_once = _ALL_FILES if checkpoint.rebased and _known(workspace) else 1
    reader = workspace.session.readStream.format("delta").option("maxFilesPerTrigger", at_once)
    frame = reader.load(workspace.deliveries).where(F.col("source") == source.name)

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        ingest(inside, source, checkpoint, rows, number, report)

    streams.run(workspace, frame, checkpoint, on_batch)


def ingest(
    workspace: Workspace,
    source: Source,
    checkpoint: Checkpoint,
    rows: DataFrame,
    number: int,
    report: FlowReport,
) -> None:
    """Take one batch of deliveries to their outcomes."""
    deliveries = _without_outcome(workspace, source, rows)
    if not deliveries:
        return
    workspace.note(checkpoint.flow, [delivery.number for delivery in deliveries])
    examined = examine(source, deliveries)
    transaction = Transaction(checkpoint.flow, checkpoint.identity, source.name, number)
    if log.transaction(workspace.path(source.name), transaction.application) < number:
        suppressed = _write(workspace, source, examined, transaction)
    else:
        suppressed = _suppressed(workspace, source, examined)
    outcomes = accounting.outcomes(workspace, source, examined, suppressed, number)
    ledger.append(workspace.outcomes, outcomes, ledger.OUTCOMES, workspace.run)
    accounting.count(report, outcomes)


def _known(workspace: Workspace) -> bool:
    state = log.state(workspace.outcomes)
    return state is not None and state.rows != 0


def _without_outcome(workspace: Workspace, source: Source, rows: DataFrame) -> list[Delivery]:
    known = {row["delivery"] for row in ledger.rows(workspace.outcomes, ["delivery"])}
    folder = Path(workspace.settings.landing) / workspace.pipeline / source.path
    found = [row for row in rows.orderBy("delivery").collect() if row.delivery not in known]
    return [
        Delivery(r.delivery, r.source, r.file, r.event, folder / r.file, r.size, _utc(r.modified_at), r.sha256) for r in found
    ]


def _utc(instant: datetime | None) -> datetime | None:
    """PySpark gives instants without a zone, in the zone of the process."""
    return instant.astimezone(UTC) if instant else None


def _write(workspace: Workspace, source: Source, examined: list[Examined], transaction: Transaction) -> dict[int, int]:
    bronze = workspace.path(source.name)
    known = tables.read(workspace.session, bronze).columns
    parsed = records.read(workspace.session, source, examined, known)
    # What an earlier attempt set aside of a file that has changed since is all there is of it: it stays.
    numbers = [item.delivery.number for item in examined if item.state != ledger.MISSED]
    whole = _whole_files(workspace, examined)
    if parsed is None:
        _set_aside(workspace, source, whole, numbers)
        return {}
    parsed = parsed.persist()
    try:
        kept, suppressed = _without_erased(workspace, source, parsed)
        sizes = kept.groupBy((F.col("_problem").isNull()).alias("good")).count().collect()
        good, bad = (sum(row["count"] for row in sizes if row.good is wanted) for wanted in (True, False))
        aside = _rows_aside(source, kept) if bad else None
        _set_aside(
            workspace,
            source,
            aside.unionByName(whole) if aside is not None and whole is not None else aside or whole,
            numbers,
        )
        if good:
            commits.append(kept.where(F.col("_problem").isNull()).drop("_problem", "_record"), bronze, transaction)
        return suppressed
    finally:
        parsed.unpersist()


def _rows_aside(source: Source, kept: DataFrame) -> DataFrame:
    bad = kept.where(F.col("_problem").isNotNull())
    return quarantine.entries(bad, F.array("_problem"), F.col("_record"), records.subject_of(source))


def _whole_files(workspace: Workspace, examined: list[Examined]) -> DataFrame | None:
    refused = [item for item in examined if item.state == ledger.QUARANTINED]
    if not refused:
        return None
    reasons = workspace.session.createDataFrame(
        [(item.delivery.number, item.reason) for item in refused], "_delivery BIGINT, _reason STRING"
    )
    files = records.contents(workspace.session, [item.delivery for item in refused]).join(F.broadcast(reasons), "_delivery")
    return quarantine.entries(files, F.array("_reason"), F.lit(None).cast("string"), F.lit(None))


def _set_aside(workspace: Workspace, source: Source, rows: DataFrame | None, numbers: list[int]) -> None:
    path = workspace.quarantine(source.name)
    empty = workspace.session.createDataFrame([], quarantine.SCHEMA)
    quarantine.replace(rows if rows is not None else empty, path, numbers, some=rows is not None)


def _suppressed(workspace: Workspace, source: Source, examined: list[Examined]) -> dict[int, int]:
    """What an earlier attempt, which wrote bronze and no outcomes, must have left out: counted again from the files."""
    if source.subject is None or suppression.is_empty(workspace):
        return {}
    parsed = records.read(
        workspace.session, source, examined, tables.read(workspace.session, workspace.path(source.name)).columns
    )
    return {} if parsed is None else _without_erased(workspace, source, parsed)[1]


def _without_erased(workspace: Workspace, source: Source, parsed: DataFrame) -> tuple[DataFrame, dict[int, int]]:
    if source.subject is None or suppression.is_empty(workspace):
        return parsed, {}
    subject = F.coalesce(F.col(source.subject).cast("string"), records.subject_of(source))
    gone = suppression.only_suppressed(workspace, parsed, subject, source.subject).groupBy("_delivery").count().collect()
    if not gone:
        return parsed, {}
    kept = suppression.without_suppressed(workspace, parsed, subject, source.subject)
    return kept, {row._delivery: row["count"] for row in gone}
