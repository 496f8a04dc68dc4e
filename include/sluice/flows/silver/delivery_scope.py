"""The scope of a batch of the silver flow: which deliveries of the files that it names count now and which do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sluice.declare.ingest.source import Source
from sluice.ingest import delivery_tables
from sluice.lake.workspace import Workspace
from sluice.record_states import INGESTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


@dataclass(frozen=True)
class DeliveryScope:
    """What a batch folds.

    fresh: deliveries whose rows are new and count. dead: deliveries of the same files that do not count. everything: all live deliveries are
    folded, and every row that none of them gives is removed.
    """

    fresh: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    everything: bool = False


def find_batch_scope(workspace: Workspace, source: Source, rows: DataFrame) -> DeliveryScope:
    """Returns what the outcomes of a batch touch: which deliveries of their files count now and which do not.

    source: the source that the bronze table is named after. The batch may hold outcomes of any source that feeds the table.
    """
    touched = rows.select("delivery", "source", "file", "state").collect()
    scopes = [
        _find_source_scope(workspace, one, [row for row in touched if row.source == one.name])
        for one in feeding_sources(workspace, source)
    ]
    fresh = {delivery for scope in scopes for delivery in scope.fresh}
    dead = {delivery for scope in scopes for delivery in scope.dead}
    return DeliveryScope(tuple(sorted(fresh)), tuple(sorted(dead)))


def _find_source_scope(workspace: Workspace, source: Source, rows: Sequence[Row]) -> DeliveryScope:
    touched = [(row.delivery, row.file, row.state) for row in rows]
    if not touched:
        return DeliveryScope()
    files = {file for _, file, _ in touched}
    of_files = [
        outcome for outcome in delivery_tables.read_source_outcomes(workspace.outcomes, source.name) if outcome.file in files
    ]
    live = delivery_tables.select_live_deliveries(of_files, source.replaces_files)
    with_rows = {outcome.delivery for outcome in of_files if outcome.had_rows}
    # If a delivery that counted does not any more, for whatever reason, an earlier one of its file counts again.
    once = {outcome.delivery for outcome in of_files if outcome.was_ingested}
    reverted = any(state != INGESTED and delivery in once for delivery, _, state in touched)
    fresh = sorted((live if reverted else {delivery for delivery, _, _ in touched} & live) & with_rows)
    return DeliveryScope(tuple(fresh), tuple(sorted(with_rows - live)))


def read_feeding_outcomes(workspace: Workspace, source: Source) -> list[delivery_tables.DeliveryOutcome]:
    """Returns the outcome of each delivery that feeds a source's bronze table. Files of two sources with the same name are kept apart.

    Reads without Spark, whose jobs would take longer than the reading.
    """
    return [
        replace(outcome, file=f"{one.name}/{outcome.file}")
        for one in feeding_sources(workspace, source)
        for outcome in delivery_tables.read_source_outcomes(workspace.outcomes, one.name)
    ]


def count_delivery_rows(workspace: Workspace, source: Source, deliveries: Iterable[int]) -> int | None:
    """Returns how many rows bronze has of these deliveries, by their outcomes. None if one was not counted."""
    numbers = set(deliveries)
    counts = {one.delivery: one.rows for one in read_feeding_outcomes(workspace, source) if one.delivery in numbers}
    known = [counts.get(number) for number in numbers]
    return None if None in known else sum(count for count in known if count)


def feeding_sources(workspace: Workspace, source: Source) -> tuple[Source, ...]:
    """Returns the sources whose records are in a source's bronze table."""
    return workspace.graph.feeding(source.name)


def outdated_deliveries(workspace: Workspace, source: Source, of_files_with: Iterable[int]) -> list[int]:
    """Returns the deliveries that have rows and do not count, of the files of the given deliveries."""
    numbers, outcomes = set(of_files_with), read_feeding_outcomes(workspace, source)
    files = {one.file for one in outcomes if one.delivery in numbers}
    with_rows = {one.delivery for one in outcomes if one.file in files and one.had_rows}
    return sorted(with_rows.difference(live_deliveries(workspace, source, numbers)))


def live_deliveries(workspace: Workspace, source: Source, of_files_with: Iterable[int] | None = None) -> list[int]:
    """Returns the deliveries that count now and have rows: those of the given deliveries' files, or of all files."""
    numbers = None if of_files_with is None else set(of_files_with)
    found: set[int] = set()
    for one in feeding_sources(workspace, source):
        outcomes = delivery_tables.read_source_outcomes(workspace.outcomes, one.name)
        if numbers is not None:
            files = {outcome.file for outcome in outcomes if outcome.delivery in numbers}
            outcomes = [outcome for outcome in outcomes if outcome.file in files]
        with_rows = {outcome.delivery for outcome in outcomes if outcome.had_rows}
        found |= delivery_tables.select_live_deliveries(outcomes, one.replaces_files) & with_rows
    return sorted(found)
