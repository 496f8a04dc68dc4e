"""What an increment or a refresh would do to one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.source import Source
from sluice.ingest.deliveries import discovery
from sluice.ingest.ledger import MISSED, QUARANTINED
from sluice.lake import log
from sluice.runs.status import lag
from sluice.runs.status.books import Books
from sluice.runs.status.lag import Flow

NOTHING, FAIL = "nothing", "fail"
INGEST, READ_AGAIN = "ingest", "read again"
FOLD, FOLD_AGAIN, FOLD_ANEW = "fold", "fold again", "fold anew"
FOLLOW, RECOMPUTE, START_OVER = "follow", "recompute in full", "start over"
"""What a run would do to a table. fold again: the keys of an interval; follow: recompute what changes of the inputs touch, or, of a
stream, take what was added; start over: a stream, with its state."""


@dataclass(frozen=True)
class Step:
    """What a run would do to one table, and why. deliveries, bytes, rows, versions: what it would read, as far as that is known now.

    files: of bronze, the deliveries that it would take: file, state and, where it has one, number.
    """

    table: str
    layer: str
    does: str
    why: str = ""
    deliveries: int = 0
    bytes: int = 0
    rows: int | None = 0
    versions: int = 0
    files: list[dict[str, Any]] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        """Whether the table, or what is recorded of it, may change."""
        return self.does not in (NOTHING, FAIL)


def of(books: Books, flow: Flow, before: Sequence[Step], refreshed: bool) -> Step:
    """The step of a flow. before: those of its inputs, at least. refreshed: it is to be made anew."""
    declared = books.graph[flow.table]
    if isinstance(declared, Source):
        return _reread(books, declared, flow) if refreshed else _bronze(books, declared, flow)
    if refreshed:
        # What keeps a stream from going on, a refresh brings to an end; what it waits for to begin, not.
        refused = isinstance(declared, Windowed) and flow.anew is None
        flow = replace(lag.whole(books, flow), anew="refresh", stuck=None if refused else flow.stuck)
    coming = [step for step in before if books.graph.table_of(step.table) in declared.reads and step.moves]
    if isinstance(declared, Table):
        return _silver(books, declared, flow, coming)
    changed = {books.graph.table_of(step.table) for step in coming}
    return _stateful(declared, flow, changed) if isinstance(declared, Windowed) else _gold(declared.reads, flow, changed)


def _bronze(books: Books, source: Source, flow: Flow) -> Step:
    if flow.stuck:
        return Step(flow.table, flow.layer, FAIL, flow.stuck)
    again = flow.anew and log.version(books.path(flow.table))
    why = f"from the first delivery on, without those that it has: {flow.anew}" if again else ""
    does = INGEST if flow.waits else NOTHING
    return Step(flow.table, flow.layer, does, why, flow.deliveries, flow.bytes, flow.rows, files=_waiting(books, source))


def _waiting(books: Books, source: Source) -> list[dict[str, Any]]:
    found = discovery.news(source, books.landing, books.known)
    return [
        *(
            {"file": row["file"], "state": "waiting", "delivery": row["delivery"]}
            for row in books.of_source(source.name, "waiting")
        ),
        *({"file": file.file, "state": "new", "delivery": None} for file in found.came),
        *({"file": name, "state": "gone", "delivery": None} for name in found.gone),
    ]


def _reread(books: Books, source: Source, flow: Flow) -> Step:
    """Every delivery whose file is as it was, then what waits."""
    if flow.stuck:
        return Step(flow.table, flow.layer, FAIL, flow.stuck)
    known = books.of_source(source.name, "ingested", "superseded", QUARANTINED, MISSED)
    readable = [row for row in known if row["event"] == discovery.DELIVERED and books.as_it_was(source, row)]
    size = flow.bytes + sum(row["size"] or 0 for row in readable)
    return Step(flow.table, flow.layer, READ_AGAIN, "refresh", flow.deliveries + len(readable), size, None)


def _silver(books: Books, table: Table[Any], flow: Flow, coming: Sequence[Step]) -> Step:
    if flow.stuck:
        return Step(flow.table, flow.layer, FAIL, flow.stuck)
    if not coming and not log.exists(books.path(table.reads[0])):
        return Step(flow.table, flow.layer, NOTHING, "its source has no record yet")
    if any(step.does == READ_AGAIN for step in coming):
        flow = replace(flow, deliveries=0, bytes=0)  # they are among those that are read again
    return Step(
        flow.table,
        flow.layer,
        FOLD_ANEW if flow.anew else FOLD if coming or flow.waits else NOTHING,
        flow.anew or "",
        flow.deliveries + sum(step.deliveries for step in coming),
        flow.bytes + sum(step.bytes for step in coming),
        None if coming else flow.rows,
    )


def _stateful(stream: Windowed[Any], flow: Flow, coming: set[str]) -> Step:
    """coming: the inputs that the run changes before. A stream that cannot go on fails, whatever comes."""
    if flow.stuck and not coming:
        return Step(flow.table, flow.layer, NOTHING if flow.anew else FAIL, flow.stuck)
    if flow.stuck and not flow.anew:
        return Step(flow.table, flow.layer, FAIL, flow.stuck)
    moved = [name for name in stream.reads if name in flow.moved or name in coming]
    does, why = (
        (START_OVER, flow.anew) if flow.anew else (FOLLOW, f"rows added to {', '.join(moved)}") if moved else (NOTHING, "")
    )
    return Step(flow.table, flow.layer, does, why, 0, flow.bytes, None if coming else flow.rows, flow.versions)


def _gold(reads: Sequence[str], flow: Flow, coming: set[str]) -> Step:
    """coming: the inputs that the run changes before."""
    if flow.stuck and not coming:
        return Step(flow.table, flow.layer, NOTHING, flow.stuck)
    moved = [name for name in reads if name in flow.moved or name in coming]
    open_ones = [name for name in flow.unbounded if name in moved]
    if flow.anew:
        does, why = RECOMPUTE, flow.anew
    elif open_ones:
        does, why = RECOMPUTE, f"a change of '{open_ones[0]}' can touch any row"
    elif moved:
        does, why = FOLLOW, f"what changes of {', '.join(moved)} touch"
    else:
        does, why = NOTHING, ""
    return Step(flow.table, flow.layer, does, why, 0, flow.bytes, None if coming else flow.rows, flow.versions)
