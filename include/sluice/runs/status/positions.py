"""How far a flow has come: what its checkpoint remembers, read without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sluice.flows.progress import batches, checkpoints


@dataclass(frozen=True)
class Position:
    """Where a stream stands in a Delta table: it reads on at `version`, of which it has taken `taken` files.

    snapshot: it is still reading the table as it was at that version, as every stream does first.
    """

    version: int
    taken: int = 0
    snapshot: bool = False


@dataclass(frozen=True)
class Progress:
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
    positions: Mapping[str, Position]
    tables: Mapping[str, str]


def read(folder: str, flow: str) -> Progress | None:
    """A flow's progress, from the folder of its checkpoints; None where it has none. Raises UsageError for another flow's."""
    memory = checkpoints.remembered(folder, flow)
    if memory is None:
        return None
    identity, inputs = str(memory["identity"]), memory.get("inputs")
    place = Path(folder) / identity
    tables = {str(name): str(table) for name, table in inputs.items()} if isinstance(inputs, dict) else {}
    begun, done = _batches(place / "offsets"), _batches(place / "commits")
    last = max(done, default=None)
    return Progress(
        flow=flow,
        identity=identity,
        reason=str(memory["reason"]) if memory.get("reason") else None,
        made_at=_changed(place / "metadata") or _changed(Path(folder) / "flow.json"),
        batch=last,
        finished_at=_changed(place / "commits" / str(last)) if last is not None else None,
        unfinished=tuple(sorted(begun - done)) if last is None else tuple(sorted(batch for batch in begun if batch > last)),
        positions=_positions(str(place), last, tables) if last is not None and last in begun else {},
        tables=tables,
    )


def _batches(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("*") if path.name.isdigit()}


def _changed(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _positions(checkpoint: str, batch: int, tables: Mapping[str, str]) -> dict[str, Position]:
    ends = batches.offsets(checkpoint, batch, tables)
    return {name: Position(version, max(index + 1, 0), snapshot) for name, version, index, snapshot in ends}
