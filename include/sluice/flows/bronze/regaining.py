"""Restores what the delivery ledger lost with its last commits, as after a power failure, from the outcomes, before discovery begins.

Otherwise the lost numbers would be given out again, and a new delivery with one of them would count as read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sluice import delta_log
from sluice.declare.ingest.source import Source
from sluice.entries import ENTRY
from sluice.errors import SluiceError
from sluice.flows.progress import checkpoints
from sluice.ingest import ledger
from sluice.ingest.deliveries.known import KnownFiles, read_known_files
from sluice.ingest.deliveries.landed_file import read_file_state, resolve_landed_path
from sluice.lake import file_statistics
from sluice.lake.workspace import Workspace
from sluice.locations import Location
from sluice.record_states import DELIVERED, GONE, VANISHED
from sluice.record_tables import create_record_table

WHY = "the ledger of deliveries had lost its last commits"
_OF_OUTCOME = ("delivery", "source", "file", "state", "modified_at", "sha256", ledger.RECORDED, ENTRY)


def regain_deliveries(workspace: Workspace, sources: Sequence[Source], own_bronze: bool = True) -> None:
    """Restores the deliveries that have an outcome but are lost. own_bronze: the bronze tables hold no deliveries of another ledger.

    The streams then start anew, because the versions that they have taken now hold other rows. Raises SluiceError if bronze has rows of a
    delivery that nothing else knows.
    """
    known = read_known_files(workspace.deliveries, workspace.outcomes)
    if restore_lost_deliveries(sources, workspace.landing, known, workspace.run):
        known = read_known_files(workspace.deliveries, workspace.outcomes)
        for source in workspace.graph.sources.values():
            flow = workspace.graph.flow_name(source)
            checkpoints.reset_checkpoint(workspace.checkpoints(flow), flow, WHY)
    if own_bronze:
        refuse_unknown_bronze_rows(known, {one.table: workspace.path(one.name) for one in workspace.graph.sources.values()})


def restore_lost_deliveries(sources: Iterable[Source], landing: Location, known: KnownFiles, run: str) -> int:
    """Appends to the deliveries table those deliveries that have an outcome and a higher number than it knows. Returns how many."""
    if ledger.highest_delivery(known.outcomes) <= known.last:
        return 0
    found: list[dict[str, Any]] = ledger.read_delivery_ledger_rows(known.outcomes, _OF_OUTCOME)
    last = {row["delivery"]: row for row in ledger.sort_outcomes_by_recording(found) if row["delivery"] > known.last}
    folders = {one.name: landing / one.path for one in sources if one.kind.in_files}
    rows = [_delivery_row_from_outcome(row, folders, run) for _, row in sorted(last.items())]
    create_record_table(known.deliveries, ledger.DELIVERIES)
    ledger.append_delivery_ledger_rows(known.deliveries, rows, ledger.DELIVERIES, run)
    return len(rows)


def refuse_unknown_bronze_rows(known: KnownFiles, bronze: Mapping[str, str]) -> None:
    """Raises SluiceError if a bronze table has rows of a delivery whose number is higher than the ledger knows. bronze: paths by table name."""
    for name, path in bronze.items():
        highest = file_statistics.read_highest_value(path, "_delivery")[1] if delta_log.is_delta_table(path) else None
        if highest is not None and highest > known.last:
            raise SluiceError(
                f"Bronze table '{name}' has rows of delivery {highest}, and the ledger knows none after {known.last}: commits of "
                f"{known.deliveries} and {known.outcomes} are lost. Put both folders back from a copy. Without one, delete the rows with "
                f"_delivery > {known.last} from {path} by Delta's own means: no table above has taken them, and the next run reads their "
                "files again."
            )


def _delivery_row_from_outcome(outcome: Mapping[str, Any], folders: Mapping[str, Location], run: str) -> dict[str, Any]:
    """Returns the row of a delivery as far as its outcome tells it. The size is the file's, if the file is unchanged."""
    row = {name: outcome[name] for name in ("delivery", "source", "file", "modified_at", "sha256")}
    event = GONE if outcome["state"] == VANISHED else DELIVERED
    folder = folders.get(outcome["source"])
    size = (
        _size_if_unmodified(resolve_landed_path(folder, outcome["file"]), outcome["modified_at"])
        if folder and event == DELIVERED
        else None
    )
    return {**row, "event": event, "size": size, "discovered_at": outcome[ledger.RECORDED], "run": run}


def _size_if_unmodified(path: Location, at: object) -> int | None:
    try:
        found = read_file_state(path)
    except OSError:
        return None
    return found.size if found.modified_at == at else None
