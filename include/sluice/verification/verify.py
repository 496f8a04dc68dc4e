"""Is every table what a full recompute from bronze gives? Answered by plain batch code, apart from the flows.

With them it shares what is declared (transforms, conditions of expectations), the treatments, the suppression list and the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.fingerprint import fingerprint
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Dataset, Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.errors import UsageError
from sluice.lake import evaluation, log, tables
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.settings import Settings
from sluice.verification import stale as stale_rows
from sluice.verification.comparison import Differences, aligned, compare, other_types
from sluice.verification.recomputation import Recomputation, shared
from sluice.verification.stale import EVER, Stale

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESTORED = "sluice.restored"
"""The property of a table that was restored: to which version."""

_FINGERPRINT = "sluice.fingerprint"


@dataclass(frozen=True)
class Finding:
    """What was found of a table. equal: None where nothing can be said, or where it is known why it differs; then note says so.

    missing, surplus: rows that it lacks, and that it has too many; different: rows that are other than their key's should be.
    rows: how many it has, where its log tells. version: the one that was looked at, None where there is no table. unlike: whether a
    column is of another type than it should be, so that no rows were compared.
    """

    table: str
    equal: bool | None
    missing: int = 0
    surplus: int = 0
    note: str = ""
    different: int = 0
    rows: int | None = None
    version: int | None = None
    seconds: float = 0.0
    unlike: bool = False

    def __str__(self) -> str:
        counts = str(Differences(self.missing, self.surplus, self.different))
        told = "" if self.equal is None and counts == "equal" else counts
        return "; ".join(part for part in (told, self.note) if part)


def verify(
    settings: Settings, session: SparkSession, graph: Graph, names: Sequence[str] | None = None, *, stale: Stale | None = None
) -> list[Finding]:
    """Compare tables, by default all, each with what a batch over all of bronze gives. Nothing is written.

    stale: of a table the intervals whose rows are by earlier code; by default all, where its transform is another than the one that made
    it. Raises UsageError for a name that is no table, or one of bronze.
    """
    return list(verifying(settings, session, graph, names, stale=stale))


def verifying(
    settings: Settings, session: SparkSession, graph: Graph, names: Sequence[str] | None = None, *, stale: Stale | None = None
) -> Generator[Finding, None, None]:
    """The same, one finding after the other."""
    # A session of its own: how Spark evaluates is chosen table by table.
    workspace = Workspace(settings, graph, session.newSession(), "verify")
    wanted = names_of(graph) if names is None else [known(graph, name) for name in dict.fromkeys(names)]
    run = _Run(workspace, stale or _by_property(workspace))
    again = Recomputation(workspace, run.as_stored, shared(workspace, wanted, run.as_stored))
    try:
        for name in wanted:
            started = time.monotonic()
            found = run.finding(again, name)
            yield replace(found, seconds=round(time.monotonic() - started, 2))
    finally:
        again.release()


def names_of(graph: Graph) -> list[str]:
    """The tables that there is something to say of: all but bronze, inputs before readers."""
    return [declared.name for declared in graph if not isinstance(declared, Source)]


class _Run:
    """One verification. Which intervals are stale is asked once for each table."""

    def __init__(self, workspace: Workspace, stale: Stale) -> None:
        self.workspace, self._stale = workspace, stale
        self._intervals: dict[str, list[Interval]] = {}

    def as_stored(self, name: str) -> str | None:
        """Why those that read a table follow what is stored of it; None where they follow what it should be."""
        declared = self.workspace.graph[name]
        if isinstance(declared, Windowed):
            return "a stream"
        if self._restored(name) is not None:
            return "restored"
        return "stale" if self.stale(declared) else None

    def stale(self, declared: Any) -> list[Interval]:
        """The intervals of a table that earlier code made."""
        if not isinstance(declared, Table) or not log.exists(self.workspace.path(declared.name)):
            return []
        if declared.name not in self._intervals:
            self._intervals[declared.name] = self._stale(declared)
        return self._intervals[declared.name]

    def finding(self, again: Recomputation, name: str) -> Finding:
        """Compare one table."""
        declared: Any = self.workspace.graph[name]
        path = self.workspace.path(name)
        state = log.state(path)
        found = Finding(name, None, rows=state.rows if state else None, version=state.version if state else None)
        if isinstance(declared, Windowed):
            return replace(found, note=f"not verified: a stream{self._late(declared)}")
        self._suit(declared)
        expected = again.expected(name)
        if expected is None and found.rows:
            return replace(found, equal=False, surplus=found.rows, note="its inputs have no table")
        if expected is None:
            return replace(found, note="its inputs have no row yet")
        notes = again.followed(name)
        stored = tables.read(self.workspace.session, path).drop(*PROVENANCE) if state else expected.limit(0)
        if not state:
            notes.append("there is no such table yet")
        if wrong := other_types(expected.schema, stored.schema):
            note = f"its column '{wrong[0]}' is of another type than its transform gives: make it anew"
            return replace(found, equal=None if self.stale(declared) else False, note=note, unlike=True)
        return self._compared(declared, found, expected, stored, notes)

    def _compared(
        self, declared: Dataset[Any], found: Finding, expected: DataFrame, stored: DataFrame, notes: list[str]
    ) -> Finding:
        made = aligned(expected, stored.schema)
        there = aligned(stored, made.schema)
        differences = compare(made, there, declared.keys)
        equal: bool | None = not differences
        restored, intervals = self._restored(declared.name), self.stale(declared)
        if restored is not None:
            notes.append(f"restored to version {restored}")
            equal = equal or None
        elif differences and intervals and isinstance(declared, Table):
            known = stale_rows.keys(self.workspace, declared, intervals)
            by = declared.replayed_by
            differences = compare(made, there, declared.keys, known, by) if known is not None else differences
            equal = None if known is None or differences.all_known else False
            others = sum((differences.missing, differences.surplus, differences.different)) - differences.known
            notes.append(
                "stale: replay or refresh" if equal is None else f"stale, but {others:,} of them not for that: replay or refresh"
            )
        return replace(
            found,
            equal=equal,
            missing=differences.missing,
            surplus=differences.surplus,
            different=differences.different,
            note="; ".join(notes),
        )

    def _restored(self, name: str) -> str | None:
        path = self.workspace.path(name)
        return log.properties(path).get(RESTORED) if log.exists(path) else None

    def _late(self, stream: Windowed[Any]) -> str:
        state = log.state(self.workspace.late(stream.name))
        return "" if state is None or state.rows is None else f"; {state.rows:,} rows late"

    def _suit(self, declared: Dataset[Any]) -> None:
        graph, read = self.workspace.graph, {declared.name, *declared.reads}
        for above in graph:
            if declared.name in graph.below(above.name):
                read.add(graph.table_of(above.name))
        evaluation.suit(self.workspace.session, [self.workspace.path(name) for name in read])


def known(graph: Graph, name: str) -> str:
    """The name, of a table that can be verified. Raises UsageError for one of bronze, and with the nearest name where there is none."""
    if isinstance(graph[name], Source):
        raise UsageError(
            f"'{name}' is bronze, from which the other tables are recomputed. Name one of: {', '.join(names_of(graph))}."
        )
    return name


def _by_property(workspace: Workspace) -> Stale:
    def stale(table: Table[Any]) -> list[Interval]:
        whole = log.properties(workspace.path(table.name)).get(_FINGERPRINT)
        return [EVER] if whole is not None and whole != fingerprint(table) else []

    return stale
