"""Deliveries whose records cannot be written together are taken one by one, so that one of them does not stop its source for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.flows.bronze import intake
from sluice.flows.bronze.write_faults import fault_name, is_of_delivery
from sluice.flows.progress.streams import stop_if_requested
from sluice.ingest import ledger
from sluice.ingest.reading.delivery import Examined
from sluice.ingest.schema import evolution
from sluice.lake import commits, tables
from sluice.lake.commits import Transaction
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace


def take_together_or_apart(
    workspace: Workspace, source: Source, examined: list[Examined], report: FlowReport, transaction: Transaction | None = None
) -> None:
    """As `intake.take`. Where that fails by what the records are, each delivery is taken by itself.

    One that fails then as well goes to quarantine whole, if others pass. Raises what the first attempt raised where none does, and at once
    whatever is not the fault of a delivery.
    """
    try:
        intake.take(workspace, source, examined, report, transaction)
    except Exception as error:
        # What was read of a topic has the columns that every topic has: nothing in it can be refused.
        if isinstance(source, KafkaSource) or not is_of_delivery(error):
            raise
        refused = _taken_one_by_one(workspace, source, examined, report)
        if refused and not _others_pass(workspace, source, examined, refused):
            raise
        _set_aside_whole(workspace, source, refused, report)


def _taken_one_by_one(
    workspace: Workspace, source: Source, examined: Sequence[Examined], report: FlowReport
) -> list[tuple[Examined, Exception]]:
    """Those that could not be written by themselves either, with the reason."""
    refused = []
    for item in examined:
        stop_if_requested(workspace)
        _forget_columns(workspace, source)
        try:
            intake.take(workspace, source, [item], report)
        except Exception as error:
            if not is_of_delivery(error):
                raise
            refused.append((item, error))
    _forget_columns(workspace, source)
    return refused


def _forget_columns(workspace: Workspace, source: Source) -> None:
    """Columns that an attempt has written down before its rows could not be written must not be in the way of the next one."""
    bronze = tables.read(workspace.session, workspace.path(source.name)).schema
    evolution.withdraw_unwritten(workspace.schemas(source.table), bronze)


def _others_pass(
    workspace: Workspace, source: Source, examined: Sequence[Examined], refused: Sequence[tuple[Examined, Exception]]
) -> bool:
    """Whether the table takes rows of other deliveries. For a delivery that came alone no rows stand in, in the table's own columns."""
    if len(examined) > 1:
        return len(refused) < len(examined)
    path = workspace.path(source.name)
    try:
        commits.append(tables.read(workspace.session, path).limit(0), path, None)
    except Exception:
        return False
    return True


def _set_aside_whole(
    workspace: Workspace, source: Source, refused: Sequence[tuple[Examined, Exception]], report: FlowReport
) -> None:
    for item, error in refused:
        reason = f"its records cannot be written, and those of other deliveries can: {fault_name(error)}"
        intake.take(workspace, source, [replace(item, state=ledger.QUARANTINED, reason=reason)], report)
