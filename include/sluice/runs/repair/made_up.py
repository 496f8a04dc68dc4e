"""What a lost commit of bronze or of the ledgers held, by what else is written down: deliveries to be read again, files that were numbered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.declare.assembly.graph import Graph
from sluice.declare.ingest.source import Source
from sluice.erasure import requests
from sluice.ingest import ledger
from sluice.ingest.deliveries.discovery import DELIVERED
from sluice.settings import Settings

RUN = "repair"
"""What stands in the ledgers in the place of a run."""


def lost_deliveries(settings: Settings, graph: Graph, table: str, path: str, version: int) -> dict[str, tuple[int, ...]]:
    """By source, the deliveries that have rows by their outcome and none in bronze, or in its quarantine, as it was at a version.

    A delivery is written in one commit. One that a later commit holds is found, too: it is read again, and nothing of it is written twice.
    """
    found = {}
    for source in graph.sources.values():
        counted = "rows" if table == source.table else "quarantined" if table == f"{source.name}_quarantine" else None
        if counted is not None:
            there = _deliveries_in(path, version)
            rows = last_outcomes(settings, graph, source)
            numbers = tuple(sorted(number for number, row in rows.items() if row[counted] and number not in there))
            if numbers:
                found[source.name] = numbers
    return found


def last_outcomes(settings: Settings, graph: Graph, source: Source) -> dict[int, dict[str, Any]]:
    """By delivery of a source, the last outcome, of those that were read."""
    rows = ledger.rows(settings.bookkeeping(graph.pipeline.name, "outcomes"))
    states = ledger.last_states(settings.bookkeeping(graph.pipeline.name, "outcomes"))
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        number = int(str(row["delivery"]))
        if row["source"] == source.name and (row["state"], row["reason"]) == states[number]:
            found[number] = row
    return {number: row for number, row in found.items() if row["state"] in (ledger.INGESTED, ledger.QUARANTINED)}


def note_lost(settings: Settings, graph: Graph, name: str, numbers: Sequence[int]) -> None:
    """Write down that deliveries are to be read again, as if they had no outcome."""
    outcomes = settings.bookkeeping(graph.pipeline.name, "outcomes")
    known = last_outcomes(settings, graph, graph.sources[name])
    reason = "its rows were in a commit that was lost; it is read again"
    rows = [
        {
            **{column: known[number][column] for column in ("delivery", "source", "file", "modified_at", "sha256")},
            **{"state": ledger.LOST, "rows": 0, "reason": reason, "run": RUN, "recorded_at": datetime.now(UTC)},
        }
        for number in numbers
        if number in known
    ]
    ledger.append(outcomes, rows, ledger.OUTCOMES, RUN)


def deliveries_of_outcomes(settings: Settings, graph: Graph) -> int:
    """Number again, as they were, the files that have an outcome and are not in `deliveries` any more. Returns how many."""
    books = {name: settings.bookkeeping(graph.pipeline.name, name) for name in ("deliveries", "outcomes")}
    known = {int(str(row["delivery"])) for row in ledger.rows(books["deliveries"], ["delivery"])}
    rows: dict[int, dict[str, object]] = {}
    for row in ledger.rows(books["outcomes"]):
        number = int(str(row["delivery"]))
        if number not in known and number not in rows:
            event = ledger.VANISHED if row["state"] == ledger.VANISHED else DELIVERED
            facts = {column: row[column] for column in ("delivery", "source", "file", "modified_at", "sha256")}
            rows[number] = {
                **facts,
                "event": event,
                "size": _size(settings, graph, row),
                "discovered_at": datetime.now(UTC),
                "run": RUN,
            }
    ledger.append(books["deliveries"], [rows[number] for number in sorted(rows)], ledger.DELIVERIES, RUN)
    return len(rows)


def unlisted_requests(settings: Settings, graph: Graph, path: str, version: int) -> list[str]:
    """The requests that were carried out and are not on the list of erased people as it was at a version."""
    table = DeltaTable(path, version=version)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT DISTINCT request FROM t"))["request"].to_pylist()
    done = [one.request for one in requests.all_of(settings, graph.pipeline.name) if one.state != requests.RECEIVED]
    return sorted(set(done) - set(found))


def _size(settings: Settings, graph: Graph, row: dict[str, object]) -> int | None:
    source = graph.sources.get(str(row["source"]))
    if source is None:
        return None
    try:
        return (Path(settings.landing) / graph.pipeline.name / source.path / str(row["file"])).stat().st_size
    except OSError:
        return None


def _deliveries_in(path: str, version: int) -> set[int]:
    """The deliveries of which a table had rows at a version."""
    table = DeltaTable(path, version=version)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT DISTINCT _delivery FROM t"))
    return set(found["_delivery"].to_pylist())
