"""How old the latest data of the published tables is, against the pipeline's target. Read from their logs without a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sluice.declare.assembly.graph import Graph
from sluice.declare.pipeline import parse_duration
from sluice.lake import log
from sluice.runs.ledger import WITHOUT_DATA
from sluice.runs.status.books import PipelineBooks
from sluice.settings import Settings

_LOOKED_AT = 50


@dataclass(frozen=True)
class Freshness:
    """A published table. data_at: when rows of it last changed (UTC); None: there is none yet. age: since then, now. target: how old it may be.

    checked_at: when a run last brought it up to date, whether or not there was anything new.
    """

    table: str
    data_at: datetime | None
    age: timedelta | None
    target: timedelta | None
    checked_at: datetime | None

    @property
    def late(self) -> bool:
        """Whether its data is older than it may be."""
        return self.target is not None and self.age is not None and self.age > self.target


def measure_freshness(settings: Settings, graph: Graph, now: datetime | None = None) -> list[Freshness]:
    """The freshness of each published table."""
    books = PipelineBooks(settings, graph)
    now = now or datetime.now(UTC)
    target = parse_duration(graph.pipeline.freshness) if graph.pipeline.freshness else None
    found = []
    for name in graph.pipeline.publishes:
        at = _find_last_data_change(books.path(name))
        layer = graph.layer(graph[name])
        runs = [row["ended_at"] for row in books.runs if row["flow"] == name and row["stage"] == layer and row["state"] == "done"]
        found.append(Freshness(name, at, now - at if at else None, target, runs[-1] if runs else None))
    return found


def _find_last_data_change(path: str) -> datetime | None:
    if not log.is_delta_table(path):
        return None
    for limit in (_LOOKED_AT, None):
        for commit in log.read_commit_history(path, limit):
            if commit["operation"] not in WITHOUT_DATA:
                at: datetime | None = commit["at"]
                return at
    return None
