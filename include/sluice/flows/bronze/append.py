"""The bronze flow: streams deliveries, reads their files as they are now, appends every record once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.errors import UsageError
from sluice.flows.bronze import intake, reread
from sluice.flows.bronze.apart import take_together_or_apart
from sluice.flows.progress import streams
from sluice.flows.progress.checkpoints import Checkpoint, current
from sluice.ingest import ledger
from sluice.ingest.deliveries import groups
from sluice.ingest.deliveries.discovery import TAKEN
from sluice.ingest.deliveries.known import deliveries_now
from sluice.ingest.reading import records
from sluice.ingest.reading.delivery import Delivery, Examined
from sluice.ingest.reading.examination import examine
from sluice.lake import evaluation, log, tables
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


def shape_of(workspace: Workspace, source: Source) -> Shape:
    """What a source's bronze table is made with."""
    retain = workspace.graph.pipeline.retain
    declared = tables.columns(source.ddl) if source.ddl else StructType()
    schema = StructType([*declared.fields, *tables.columns(TECHNICAL).fields])
    # Columns come and go with deliveries, and any may be personal: bronze is pruned by delivery alone.
    comment = workspace.graph.sources[source.table].comment
    return Shape(schema=schema, comment=comment, statistics=("_delivery", "_ingested_at"), retain=retain)


def create(workspace: Workspace, source: Source) -> Shape:
    """Make a source's bronze table, its quarantine and the outcomes table unless they are there. Returns the table's shape."""
    shape = shape_of(workspace, source)
    tables.create(workspace.session, workspace.path(source.name), shape)
    quarantine.create(workspace.session, workspace.quarantine(source.name), source.name, shape.retain)
    ledger.create(workspace.outcomes, ledger.OUTCOMES)
    return shape


def run(workspace: Workspace, source: Source, report: FlowReport, anew: str | None = None) -> None:
    """Ingest every delivery of the source that has no outcome yet. anew: read again what the landing folder still has, before that."""
    if not anew:
        _refuse_gone(workspace, source)
    shape = create(workspace, source)
    if anew:
        reread.run(workspace, source, shape, report)
    streams.rebasing(lambda why: _stream_deliveries(workspace, source, report, why), None)


def _stream_deliveries(workspace: Workspace, source: Source, report: FlowReport, anew: str | None) -> None:
    flow = f"bronze_{source.name}"
    checkpoint = current(workspace.checkpoints(flow), flow, {"deliveries": log.table_id(workspace.deliveries)}, anew=anew)
    if checkpoint.rebased and log.version(workspace.path(source.name)):
        report.notes.append(f"rebased: {checkpoint.rebased}")
    if isinstance(source, KafkaSource):
        from sluice.ingest.topics import offsets  # its client is loaded only where topics are read

        report.notes += offsets.warnings(source, workspace.deliveries, workspace.outcomes)
    # One file of the deliveries table is one rate-limited group of deliveries; starting anew, most have an outcome already.
    at_once = _ALL_FILES if checkpoint.rebased and _known(workspace) else 1
    reader = workspace.session.readStream.format("delta").option("maxFilesPerTrigger", at_once)
    ours = (F.col("source") == source.name) & F.col("event").isin(*TAKEN)
    frame = reader.load(workspace.deliveries).where(ours)

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
    """Take one batch of deliveries to their outcomes; the first of a fresh checkpoint, which has all of them, within the source's limits."""
    known = ledger.settled(workspace.outcomes)
    fresh = _as_they_are(workspace, [row.asDict() for row in rows.orderBy("delivery").collect() if row.delivery not in known])
    parts = groups.of_source(source, fresh, lambda row: row["size"])
    # A transaction has one number a batch. Without one, what bronze has of a delivery keeps it from being written twice.
    transaction = Transaction(checkpoint.flow, checkpoint.identity, source.name, number) if len(parts) == 1 else None
    folder = intake.folder_of(workspace, source)
    for part in parts:
        workspace.note(checkpoint.flow, [row["delivery"] for row in part])
        few = sum(row["size"] or 0 for row in part) <= records.HERE
        evaluation.suit(workspace.session, (), rows=0 if few else None)
        deliveries = [intake.delivery_of(row, folder) for row in part]
        take_together_or_apart(workspace, source, _looked_at(source, deliveries), report, transaction)


def _as_they_are(workspace: Workspace, fresh: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the stream with the sizes and hashes of now: an erasure may have rewritten files that were waiting."""
    if not fresh or suppression.is_empty(workspace):
        return fresh
    now = {row["delivery"]: {"size": row["size"], "sha256": row["sha256"]} for row in deliveries_now(workspace.deliveries)}
    return [row | now.get(row["delivery"], {}) for row in fresh]


def _looked_at(source: Source, fresh: list[Delivery]) -> list[Examined]:
    """What bronze has nothing of yet. Raises LostOffsets where a topic has lost some of it, unless the source goes on without that."""
    examined = examine(source, fresh)
    if isinstance(source, KafkaSource):
        from sluice.ingest.reading import kafka  # its client is loaded only where topics are read

        return kafka.settled(source, examined)
    return examined


def _refuse_gone(workspace: Workspace, source: Source) -> None:
    """Raise UsageError where rows were ingested and the table is away: made empty and gone on with, all of them would be lost in silence."""
    if log.exists(workspace.path(source.name)) or not _known(workspace):
        return
    had = sum(one.had_rows for one in ledger.of_source(workspace.outcomes, source.name))
    if had:
        raise UsageError(
            f"The bronze table of '{source.name}' is gone, with the rows of {had} {'delivery' if had == 1 else 'deliveries'}. Put it back at "
            f"{workspace.path(source.name)}; or read again what the landing folder still has: "
            f"sluice run {workspace.pipeline} --mode refresh --table {source.name}"
        )


def _known(workspace: Workspace) -> bool:
    state = log.state(workspace.outcomes)
    return state is not None and state.rows != 0
