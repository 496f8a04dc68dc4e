"""What a ledger of deliveries lost with its last commits, put back before anything is discovered; and the streams that were past them."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.declare.ingest.source import Source
from sluice.flows.progress import checkpoints
from sluice.ingest.deliveries import lost
from sluice.ingest.deliveries.known import read_known_files
from sluice.lake.workspace import Workspace

WHY = "the ledger of deliveries had lost its last commits"


def regain_deliveries(workspace: Workspace, sources: Sequence[Source], own_bronze: bool = True) -> None:
    """Put back the deliveries that have an outcome and are lost. own_bronze: no other ledger's deliveries are in the bronze tables.

    The streams start anew: they do not read the versions again that they had taken, and these hold others now. Raises SluiceError where
    bronze has rows of a delivery that nothing else knows.
    """
    known = read_known_files(workspace.deliveries, workspace.outcomes)
    if lost.restore_lost_deliveries(sources, workspace.landing, known, workspace.run):
        known = read_known_files(workspace.deliveries, workspace.outcomes)
        for source in workspace.graph.sources.values():
            flow = f"bronze_{source.name}"
            checkpoints.reset_checkpoint(workspace.checkpoints(flow), flow, WHY)
    if own_bronze:
        lost.refuse_unknown_bronze_rows(known, {one.table: workspace.path(one.name) for one in workspace.graph.sources.values()})
