"""How far a flow has come: what its checkpoint remembers, read without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sluice.flows.progress import batches, checkpoints


@dataclass(frozen=True)
class StreamPosition:
    """Where a stream stands in a Delta table: it reads on at `version`, of which it has taken `taken` files.

    snapshot: it is still reading the table as it was at that version, as every stream does first.
    """

    version: int
    taken: int = 0
    snapshot: bool = False


@dataclass(frozen=True)
class FlowProgress:
    """A flow's checkpoint. reason: why it was made. batch: the last one that was finished; None: none was.

    unfinished: batches that were begun and not finished; they come again. positions: by input; an input that was never read has none.
    tables: by input, the id of the Delta table that is streamed.
    """

    flow: str
    identity: str
    reason: str | None
    made_at: datetime | None
    batch: int | None
    finished_at: datetime | None
    unfinished: tuple[int, ...]
    positions: Mapping[str, StreamPosition]
    tables: Mapping[str, str]


def read_flow_progress(folder: str, flow: str) -> FlowProgress | None:
    """A flow's progress, from the folder of its checkpoints; None where it has none. Raises UsageError for another flow's."""
    memory = checkpoints.read_flow_memory(folder, flow)
    if memory is None:
        return None
    identity, inputs = str(memory["identity"]), memory.get("inputs")
    place = Path(folder) / identity
    tables = {str(name): str(table) for name, table in inputs.items()} if isinstance(inputs, dict) else {}
    begun, done = _list_batch_numbers(place / "offsets"), _list_batch_numbers(place / "commits")
    last = max(done, default=None)
    return FlowProgress(
        flow=flow,
        identity=identity,
        reason=str(memory["reason"]) if memory.get("reason") else None,
        made_at=_modification_time(place / "metadata") or _modification_time(Path(folder) / "flow.json"),
        batch=last,
        finished_at=_modification_time(place / "commits" / str(last)) if last is not None else None,
        unfinished=tuple(sorted(begun - done)) if last is None else tuple(sorted(batch for batch in begun if batch > last)),
        positions=_read_stream_positions(str(place), last, tables) if last is not None and last in begun else {},
        tables=tables,
    )


def _list_batch_numbers(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("*") if path.name.isdigit()}


def _modification_time(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _read_stream_positions(checkpoint: str, batch: int, tables: Mapping[str, str]) -> dict[str, StreamPosition]:
    ends = batches.read_batch_offsets(checkpoint, batch, tables)
    return {name: StreamPosition(version, max(index + 1, 0), snapshot) for name, version, index, snapshot in ends}
