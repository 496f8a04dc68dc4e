"""Refresh of bronze, where its source allows it: what the landing folder still has is read again, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.ingest.field_names import is_own
from sluice.declare.ingest.source import Source
from sluice.flows.bronze import accounting, intake
from sluice.flows.bronze.widening import typed_as
from sluice.ingest import ledger
from sluice.ingest.deliveries.discovery import DELIVERED
from sluice.ingest.deliveries.known import deliveries_now
from sluice.ingest.reading.delivery import Examined
from sluice.ingest.reading.examination import examine
from sluice.lake import tables
from sluice.lake.report import FlowReport
from sluice.lake.tables import Shape
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TAKEN = (ledger.INGESTED, ledger.QUARANTINED, ledger.MISSED)


def run(workspace: Workspace, source: Source, shape: Shape, report: FlowReport) -> None:
    """Read every delivery again whose file is as it was; the rows of the others stay. shape: of the bronze table, without rows."""
    workspace.note(f"bronze_{source.name}")
    known = _known(workspace, source)
    # A file that has changed is a delivery of its own; of the earlier one bronze holds all there is.
    examined = [item for item in known if item.state != ledger.MISSED]
    report.notes.append(
        f"{len(examined)} deliveries read again, {len(known) - len(examined)} kept whose files are gone or changed"
    )
    if not examined:
        return
    stored: list[bool] = []

    def store(rows: DataFrame) -> None:
        stored.append(True)
        _replace(workspace, source, shape, rows, examined)

    written = intake.write(workspace, source, examined, store, anew=True)
    if not stored:  # nothing of them fits any more
        store(tables.read(workspace.session, workspace.path(source.name)).limit(0))
    outcomes = accounting.outcomes(workspace, source, written.examined, written.suppressed, None, written.read, written.held_back)
    ledger.append(workspace.outcomes, outcomes, ledger.OUTCOMES, workspace.run)
    accounting.count(report, source, outcomes)


def _known(workspace: Workspace, source: Source) -> list[Examined]:
    folder = intake.folder_of(workspace, source)
    states = ledger.last_states(workspace.outcomes)
    ours = [row for row in deliveries_now(workspace.deliveries) if row["source"] == source.name and row["event"] == DELIVERED]
    return examine(source, [intake.delivery_of(row, folder) for row in ours if states.get(row["delivery"], ("",))[0] in _TAKEN])


def _replace(workspace: Workspace, source: Source, shape: Shape, rows: DataFrame, examined: list[Examined]) -> None:
    path = workspace.path(source.name)
    again = tables.inline(workspace.session, [(item.delivery.number,) for item in examined], "_delivery BIGINT")
    others = tables.read(workspace.session, path).join(F.broadcast(again), "_delivery", "left_anti")
    final = rows if others.isEmpty() else rows.unionByName(typed_as(others, rows.schema), allowMissingColumns=True)
    technical = [name for name in shape.schema.names if is_own(name)]
    names = [*(name for name in final.columns if name not in technical), *technical]
    schema = StructType([type(field)(field.name, field.dataType, True) for field in (final.schema[name] for name in names)])
    tables.replace(final, path, Shape(schema=schema, comment=shape.comment, statistics=shape.statistics, retain=shape.retain))
