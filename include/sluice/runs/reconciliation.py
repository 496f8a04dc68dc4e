"""Does the delivery ledger add up? What it counted of each delivery against the rows that the tables have. Read without a JVM."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.declare.graph import Graph
from sluice.declare.source import Source
from sluice.ingest import ledger as tables
from sluice.lake import log
from sluice.runs.books import Books
from sluice.settings import Settings

_ERASING = "propagate_deletions"


@dataclass(frozen=True)
class Account:
    """One source's records, as counted per delivery when they were read, and as they are in its tables.

    rows, quarantined, suppressed: what was counted. erased, erased_aside: how many of the first two were taken out later.
    bronze, aside: the rows that bronze and its quarantine have, None where a file does not tell.
    off: by how much a table differs, by name. deliveries: those that differ, with what was counted and what is there.
    """

    source: str
    rows: int
    quarantined: int
    suppressed: int
    erased: int
    erased_aside: int
    bronze: int | None
    aside: int | None
    off: dict[str, int] = field(default_factory=dict)
    deliveries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def landed(self) -> int:
        """How many records came."""
        return self.rows + self.quarantined + self.suppressed

    @property
    def adds_up(self) -> bool:
        """Whether every table has the rows that it should have."""
        return not self.off


def of(settings: Settings, graph: Graph) -> list[Account]:
    """An account for each source that has been read."""
    books = Books(settings, graph)
    counted = _counted(settings.bookkeeping(graph.pipeline.name, "outcomes"))
    return [_account(books, source, counted) for source in graph.sources.values() if log.exists(books.path(source.name))]


def _account(books: Books, source: Source, counted: dict[int, dict[str, Any]]) -> Account:
    mine = {number: row for number, row in counted.items() if row["source"] == source.name}
    paths = {
        source.name: books.path(source.name),
        f"{source.name}_quarantine": books.settings.table_path(books.graph.pipeline.name, "quarantine", source.name),
    }
    columns = dict(zip(paths, ("rows", "quarantined"), strict=True))
    sums = {name: sum(row[column] or 0 for row in mine.values()) for name, column in columns.items()}
    erased = {name: _erased(books, name, path) for name, path in paths.items()}
    found = {name: state.rows if (state := log.state(path)) else 0 for name, path in paths.items()}
    off: dict[str, int] = {}
    differing: list[dict[str, Any]] = []
    for name, path in paths.items():
        if (difference := _difference(books, source, sums[name], erased[name], found[name])) != 0:
            off[name] = difference
            differing += _differing(name, path, {number: row[columns[name]] or 0 for number, row in mine.items()})
    bronze, aside = paths
    return Account(
        source=source.name,
        rows=sums[bronze],
        quarantined=sums[aside],
        suppressed=sum(row["suppressed"] or 0 for row in mine.values()),
        erased=erased[bronze],
        erased_aside=erased[aside],
        bronze=found[bronze],
        aside=found[aside],
        off=off,
        deliveries=differing,
    )


def _counted(path: str) -> dict[int, dict[str, Any]]:
    """By delivery, what was counted when it was read last. That it was discarded since takes no row out of bronze."""
    found: dict[int, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = tables.rows(path)
    for row in sorted(rows, key=lambda row: str(row["recorded_at"])):
        if row["state"] not in (tables.DISCARDED, "erased"):
            found[row["delivery"]] = row
    return found


def _difference(books: Books, source: Source, counted: int, erased: int, there: int | None) -> int:
    if there is None or there == counted - erased:
        return 0
    refreshed = any(row["flow"] == source.name and row["mode"] == "refresh" for row in books.runs)
    # Bronze that was read again has its erased people left out, and counted as suppressed, of the deliveries that could be read again.
    if refreshed and counted - erased <= there <= counted:
        return 0
    return there - (counted - erased)


def _erased(books: Books, name: str, path: str) -> int:
    """The rows that erasures took out, by the run ledger; of a run that was killed before it got there, by the table's log."""
    recorded, committed = Counter[str](), Counter[str]()
    for row in books.runs:
        if row["flow"] == name and row["stage"] == _ERASING:
            recorded[row["run"]] += row["deleted"] or 0
    for commit in log.commits(path) if log.exists(path) else []:
        if commit["note"].get("flow") == f"erasure_{name}":
            committed[str(commit["note"].get("run"))] += int(commit["metrics"].get("numTargetRowsDeleted", 0))
    return sum((recorded | committed).values())


def _differing(name: str, path: str, counted: dict[int, int]) -> list[dict[str, Any]]:
    if not log.exists(path):
        return [{"table": name, "delivery": number, "counted": count, "there": 0} for number, count in counted.items() if count]
    text = "SELECT _delivery, count(*) AS rows FROM t GROUP BY _delivery"
    grouped = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(text)).to_pylist()
    there = Counter({row["_delivery"]: row["rows"] for row in grouped})
    numbers = sorted(number for number in {*there, *counted} if there[number] != counted.get(number, 0))
    return [{"table": name, "delivery": n, "counted": counted.get(n, 0), "there": there[n]} for n in numbers]
