"""What a lost commit held, by what else is written down: deliveries to be read again, requests whose people are on no list any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.declare.assembly.graph import Graph
from sluice.declare.ingest.source import Source
from sluice.erasure import requests
from sluice.ingest import ledger
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
    rows: list[dict[str, Any]] = ledger.rows(settings.bookkeeping(graph.pipeline.name, "outcomes"))
    found = {row["delivery"]: row for row in ledger.in_order(rows) if row["source"] == source.name}
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


def unlisted_requests(settings: Settings, graph: Graph, path: str, version: int) -> list[str]:
    """The requests that were carried out and are not on the list of erased people as it was at a version."""
    table = DeltaTable(path, version=version)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT DISTINCT request FROM t"))["request"].to_pylist()
    done = [one.request for one in requests.all_of(settings, graph.pipeline.name) if one.state != requests.RECEIVED]
    return sorted(set(done) - set(found))


def _deliveries_in(path: str, version: int) -> set[int]:
    """The deliveries of which a table had rows at a version."""
    table = DeltaTable(path, version=version)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT DISTINCT _delivery FROM t"))
    return set(found["_delivery"].to_pylist())
