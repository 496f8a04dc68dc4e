"""Checks that every table equals a full recompute from bronze. Plain batch code, separate from the flows, does the recompute.

It shares with the flows the declarations (transforms, conditions of expectations), the treatments, the suppression list and the ledger.

Also finds which rows of a table earlier code made, and which may therefore differ: those of the deliveries or records of stale
intervals.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.tables import Table
from sluice.declare.ingest.source import Source
from sluice.declare.interval import ALL_DATES, Interval
from sluice.declare.quoting import quote_columns
from sluice.errors import UsageError
from sluice.ingest import delivery_tables
from sluice.ingest.files import paths
from sluice.lake import batch_sizes, log, spark_counters, table_frames
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.pipeline_stages import VERIFY
from sluice.printable import count_noun
from sluice.settings import Settings
from sluice.step_times import current_step_times
from sluice.table_properties import FINGERPRINT, RESTORED
from sluice.verification.comparison import (
    RowDifferences,
    TablePart,
    align_columns,
    are_keys_divisible,
    count_row_differences,
    find_type_differences,
)
from sluice.verification.recomputation import Recomputation, find_shared_inputs, recompute_silver_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class VerificationFinding:
    """The finding about a table. equal: None if nothing can be said, or if the reason for a difference is known; `note` has the reason.

    missing, surplus: rows that it lacks, and rows that it should not have; different: rows that differ from what their key should have.
    part: the part that was compared; None is all of it. rows: its number of rows, if its log has it. version: the version compared;
    None if there is no table. unlike: whether a column has another type than it should, so that no rows were compared.
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
    part: TablePart | None = None

    def __str__(self) -> str:
        counts = str(RowDifferences(self.missing, self.surplus, self.different))
        told = "" if self.equal is None and counts == "equal" else counts
        return "; ".join(part for part in (told, self.note) if part)


def verify_tables(
    settings: Settings,
    session: SparkSession,
    graph: Graph,
    names: Sequence[str] | None = None,
    *,
    stale: Stale | None = None,
    part: TablePart | None = None,
    failed: dict[str, BaseException] | None = None,
) -> Generator[VerificationFinding, None, None]:
    """Compares tables, by default all, with what a batch over all of bronze makes, and yields one finding after the other. Nothing is written.

    stale: the intervals of a table whose rows earlier code made; by default all of it, if its transform has changed since. part: compares
    this part of each table whose keys allow it. failed: collects, by table, why it could not be compared; without it the first such error
    is raised. Raises UsageError for a name that is no table, or that is a bronze table.
    """
    # A session of its own, because the evaluation settings are chosen table by table.
    workspace = Workspace(settings, graph, session.newSession(), VERIFY.name)
    if (times := current_step_times()) is not None:
        times.job_tags.append(spark_counters.session_job_tag(workspace.session))
    wanted = (
        list_verifiable_tables(graph) if names is None else [check_verifiable_table(graph, name) for name in dict.fromkeys(names)]
    )
    run = _VerificationRun(workspace, stale or _find_stale_by_property(workspace), part)
    again = Recomputation(workspace, run.as_stored, find_shared_inputs(workspace, wanted, run.as_stored), part)
    try:
        for name in wanted:
            started = time.monotonic()
            try:
                found = run.finding(again, name)
            except Exception as error:
                if failed is None:
                    raise
                failed[name] = error
                found = VerificationFinding(name, None, note="could not be compared")
            yield replace(found, seconds=round(time.monotonic() - started, 2))
    finally:
        again.release()


def list_verifiable_tables(graph: Graph) -> list[str]:
    """The tables that can be verified: all but bronze, inputs before readers."""
    return list(graph.datasets)


class _VerificationRun:
    """One verification. Determines the stale intervals of each table once."""

    def __init__(self, workspace: Workspace, stale: Stale, part: TablePart | None = None) -> None:
        self.workspace, self._stale, self.part = workspace, stale, part
        self._intervals: dict[str, list[Interval]] = {}

    def as_stored(self, name: str) -> str | None:
        """The reason why readers of a table follow its stored rows. None if they follow what it should be."""
        declared = self.workspace.graph[name]
        if declared.kind.recompute_rows is None and name in self.workspace.graph.datasets:
            return f"a {declared.kind.label.lower()}"
        if self._restored(name) is not None:
            return "restored"
        if self.stale(declared):
            return "stale"
        # A part may be made from all rows of its inputs' inputs, which are verified in their own turns.
        return "compared in turns of its own" if self.part is not None and name in self.workspace.graph.datasets else None

    def stale(self, declared: Any) -> list[Interval]:
        """The intervals of a table that earlier code made."""
        if declared.name not in self.workspace.graph.tables or not delta_log.is_delta_table(self.workspace.path(declared.name)):
            return []
        if declared.name not in self._intervals:
            self._intervals[declared.name] = self._stale(declared)
        return self._intervals[declared.name]

    def finding(self, again: Recomputation, name: str) -> VerificationFinding:
        """Compares one table."""
        declared: Any = self.workspace.graph[name]
        path = self.workspace.path(name)
        state = log.read_table_state(path)
        found = VerificationFinding(name, None, rows=state.rows if state else None, version=state.version if state else None)
        if declared.kind.recompute_rows is None:
            return replace(found, note=f"not verified: a {declared.kind.label.lower()}{self._late(declared)}")
        self._suit_settings_to_reads(declared)
        expected = again.expected(name)
        if expected is None and found.rows:
            return replace(found, equal=False, surplus=found.rows, note="its inputs have no table")
        if expected is None:
            return replace(found, note="its inputs have no row yet")
        notes = again.followed(name)
        stored = table_frames.read_table(self.workspace.session, path).drop(*PROVENANCE) if state else expected.limit(0)
        if not state:
            notes.append("there is no such table yet")
        if wrong := find_type_differences(expected.schema, stored.schema):
            note = f"its column '{wrong[0]}' is of another type than its transform gives: make it anew"
            return replace(found, equal=None if self.stale(declared) else False, note=note, unlike=True)
        return self._compared(declared, found, expected, stored, notes)

    def _compared(
        self, declared: Dataset[Any], found: VerificationFinding, expected: DataFrame, stored: DataFrame, notes: list[str]
    ) -> VerificationFinding:
        made = align_columns(expected, stored.schema)
        there = align_columns(stored, made.schema)
        if self.part is not None and are_keys_divisible(made.schema, declared.parted_by):
            made, there = (frame.where(self.part.condition(declared.parted_by)) for frame in (made, there))
            found = replace(found, part=self.part)
        differences = count_row_differences(made, there, declared.keys)
        equal: bool | None = not differences
        restored, intervals = self._restored(declared.name), self.stale(declared)
        if restored is not None:
            notes.append(f"restored to version {restored}")
            equal = equal or None
        elif differences and intervals:
            table = self.workspace.graph.tables[declared.name]
            known = _find_stale_keys(self.workspace, table, intervals)
            by = table.replayed_by
            differences = count_row_differences(made, there, table.keys, known, by) if known is not None else differences
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
        return log.read_table_properties(path).get(RESTORED) if delta_log.is_delta_table(path) else None

    def _late(self, declared: Dataset[Any]) -> str:
        state = log.read_table_state(self.workspace.late(declared.name)) if declared.late else None
        return "" if state is None or state.rows is None else f"; {count_noun(state.rows, 'row')} late"

    def _suit_settings_to_reads(self, declared: Dataset[Any]) -> None:
        graph, read = self.workspace.graph, {declared.name, *declared.reads}
        for above in graph:
            if declared.name in graph.below(above.name):
                read.add(graph.table_of(above.name))
        batch_sizes.choose_evaluation_settings(self.workspace.session, [self.workspace.path(name) for name in read])


def check_verifiable_table(graph: Graph, name: str) -> str:
    """Returns the name of a table that can be verified. Raises UsageError for a bronze table, or with the nearest name for an unknown one."""
    if graph[name].name in graph.sources:
        raise UsageError(
            f"'{name}' is bronze, from which the other tables are recomputed. Name one of: {', '.join(list_verifiable_tables(graph))}."
        )
    return name


def _find_stale_by_property(workspace: Workspace) -> Stale:
    def stale(table: Table[Any]) -> list[Interval]:
        whole = log.read_table_properties(workspace.path(table.name)).get(FINGERPRINT)
        return [ALL_DATES] if whole is not None and whole != compute_declaration_fingerprint(table) else []

    return stale


Stale = Callable[[Table[Any]], list[Interval]]
"""Gives the dates of a silver table whose rows earlier code made."""


def _find_stale_keys(workspace: Workspace, table: Table[Any], intervals: Sequence[Interval]) -> DataFrame | None:
    """The keys (`replayed_by`) whose rows may differ because earlier code made some of them. None means all."""
    if ALL_DATES in intervals:
        return None
    source = workspace.graph.sources[table.reads[0]]
    of_intervals = (
        _dated_records_condition(source.dated_by, intervals)
        if source.dated_by
        else _dated_deliveries_condition(workspace, source, intervals)
    )
    names = quote_columns(table.replayed_by)
    origin = table_frames.read_table(workspace.session, workspace.path(source.name)).where(of_intervals).select(*PROVENANCE)
    stored = table_frames.read_table(workspace.session, workspace.path(table.name))
    by_earlier = stored.join(origin, list(PROVENANCE), "left_semi").select(*names)
    by_today = recompute_silver_rows(workspace, table, of_intervals)
    return by_earlier if by_today is None else by_earlier.unionByName(by_today.select(*names))


def _dated_records_condition(dated_by: str, intervals: Sequence[Interval]) -> Column:
    at = F.expr(dated_by).cast("timestamp")

    def within(interval: Interval) -> Column:  # Spark has no instant for an open end
        after = F.lit(True) if interval.start == ALL_DATES.start else at >= F.lit(interval.start)
        return after if interval.end == ALL_DATES.end else after & (at < F.lit(interval.end))

    return functools.reduce(lambda a, b: a | b, (within(one) for one in intervals))


def _dated_deliveries_condition(workspace: Workspace, source: Source, intervals: Sequence[Interval]) -> Column:
    """The condition that a record came in a delivery of these dates, even one that no longer counts, since its rows may remain."""
    numbers = [
        outcome.delivery
        for one in workspace.graph.feeding(source.name)
        for outcome in delivery_tables.read_source_outcomes(workspace.outcomes, one.name)
        if outcome.modified_at is None
        or any(paths.find_delivery_date(one, outcome.file, outcome.modified_at) in interval for interval in intervals)
    ]
    return F.col("_delivery").isin(sorted(numbers))
