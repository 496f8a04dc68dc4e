"""What a run would do, before anything moves: told by the landing folders, the ledgers, the checkpoints and the declarations, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Dataset, Table
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.errors import SluiceError
from sluice.flows.progress import restored
from sluice.flows.progress.restored import Restored
from sluice.ingest.deliveries import discovery
from sluice.ingest.ledger import MISSED, QUARANTINED
from sluice.runs import modes
from sluice.runs.planning import steps
from sluice.runs.planning.steps import FAIL, FOLD_AGAIN, FOLD_ANEW, INGEST, NOTHING, READ_AGAIN, RECOMPUTE, START_OVER, Step
from sluice.runs.status import lag, stale
from sluice.runs.status.books import Books
from sluice.runs.status.lag import Flow
from sluice.settings import Settings


@dataclass(frozen=True)
class Staleness:
    """The dates of which a silver table has rows by earlier code: now, and after the run."""

    table: str
    now: list[Interval]
    afterwards: list[Interval]


@dataclass(frozen=True)
class Plan:
    """The steps of a run, inputs before readers; what is stale; and what else is to be known."""

    mode: str
    interval: Interval | None
    steps: list[Step]
    stale: list[Staleness]
    notes: list[str]

    @property
    def recomputed(self) -> list[Step]:
        """The tables of which every row would be made again."""
        return [step for step in self.steps if step.does in (READ_AGAIN, FOLD_ANEW, RECOMPUTE, START_OVER)]


def of(
    settings: Settings, graph: Graph, mode: str = "increment", interval: Interval | None = None, tables: Sequence[str] = ()
) -> Plan:
    """What a run in this mode would do now. Raises UsageError for what the run itself would refuse."""
    modes.check(graph, modes.names(graph)[0], mode, tables, interval)
    books = Books(settings, graph)
    chosen = modes.concerned(graph, mode, tables)
    found: list[Step] = []
    for flow in lag.of(books):
        declared = graph[flow.table]
        if interval is None or not isinstance(declared, Source | Table):
            found.append(steps.of(books, flow, found, refreshed=mode == "refresh" and flow.table in chosen))
        elif flow.table in chosen:
            found.append(_replayed(books, declared, flow, interval, found))
    notes = [*_notes(graph, interval, chosen), *(restored_note(books, *one) for one in restored_tables(books).items())]
    return Plan(mode, interval, found, _stale(books, found, interval, chosen), notes)


def restored_tables(books: Books) -> dict[str, Restored]:
    """The tables that were restored, and not made anew since."""
    declared = [one for one in books.graph if isinstance(one, Dataset)]
    return {one.name: mark for one in declared if (mark := restored.of(books.path(one.name))) is not None}


def restored_note(books: Books, name: str, mark: Restored) -> str:
    """To which version a table was restored, what is not in it, and what brings it."""
    at = f" at {mark.at:%Y-%m-%d %H:%M:%S}" if mark.at else ""
    days = ", or a backfill for some days" if name in books.graph.tables else ""
    return (
        f"'{name}' was restored to version {mark.version}{at}; what it took since that version is not in it until a refresh: "
        f"sluice run {books.pipeline} --mode refresh --table {name}{days}."
    )


def _replayed(books: Books, declared: Source | Table[Any], flow: Flow, interval: Interval, before: Sequence[Step]) -> Step:
    if isinstance(declared, Table):
        return _silver_again(books, declared, flow, interval, before)
    try:
        return _bronze_again(books, declared, flow, interval)
    except SluiceError as error:
        return Step(flow.table, flow.layer, FAIL, str(error))


def _bronze_again(books: Books, source: Source, flow: Flow, interval: Interval) -> Step:
    """Files of the interval that nobody has discovered, and its deliveries that bronze lacks."""
    fresh = discovery.news(source, books.landing, books.known, interval).came
    lacking = [row for row in books.of_interval(source, interval) if row["state"] in ("waiting", MISSED, QUARANTINED)]
    readable = [row for row in lacking if books.as_it_was(source, row)]
    files = [
        *({"file": file.file, "state": "new", "delivery": None} for file in fresh),
        *({"file": row["file"], "state": row["state"], "delivery": row["delivery"]} for row in readable),
    ]
    lost = len(lacking) - len(readable)
    why = f"of what it lacks, {lost} cannot be read: the file is gone or changed" if lost else ""
    size = sum(file.size or 0 for file in fresh) + sum(row["size"] or 0 for row in readable)
    return Step(flow.table, flow.layer, INGEST if files else NOTHING, why, len(files), size, None if files else 0, files=files)


def _silver_again(books: Books, table: Table[Any], flow: Flow, interval: Interval, before: Sequence[Step]) -> Step:
    """The keys that the interval's rows touch, before or after."""
    source = books.graph.sources[table.reads[0]]
    feeding = {one.name: one for one in books.graph.feeding(source.name)}
    mine = [row for one in feeding.values() for row in books.of_interval(one, interval) if row["rows"]]
    coming = [step for step in before if step.table in feeding and step.does == INGEST]
    deliveries = len(mine) + sum(step.deliveries for step in coming)
    size = sum(row["size"] or 0 for row in mine) + sum(step.bytes for step in coming)
    rows = None if coming or source.dated_by else sum(row["rows"] for row in mine)
    if not deliveries and not source.dated_by:
        return Step(flow.table, flow.layer, NOTHING)
    return Step(flow.table, flow.layer, FOLD_AGAIN, f"the keys of {interval}", deliveries, size, rows)


def _stale(books: Books, found: Sequence[Step], interval: Interval | None, chosen: set[str]) -> list[Staleness]:
    anew = {step.table for step in found if step.does == FOLD_ANEW}
    result = []
    for table in books.graph.tables.values():
        now = stale.intervals(books.settings, books.graph, table)
        if interval is not None and table.name in chosen:
            afterwards = stale.after(books.settings, books.graph, table, interval)
        else:
            afterwards = [] if table.name in anew else now
        if now:
            result.append(Staleness(table.name, now, afterwards))
    return result


def _notes(graph: Graph, interval: Interval | None, chosen: set[str]) -> list[str]:
    if interval is None:
        return []
    return [
        f"Records of '{source.name}' have dates of their own ({source.dated_by}), which Spark reads when it runs; "
        "the deliveries above are those that came in the interval."
        for source in graph.sources.values()
        if source.dated_by and source.name in chosen
    ]
