"""Checks whether the delivery ledger adds up: compares its counts of each delivery with the rows of the tables. Needs no JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice import delta_log
from sluice.declare.ingest.source import Source
from sluice.erasure.request_events import name_erasure_flow
from sluice.ingest import delivery_tables
from sluice.lake import commit_history, log
from sluice.lake.pipeline_lake import PipelineLake
from sluice.open_tables import find_table_snapshot
from sluice.pipeline_records import name_quarantine
from sluice.pipeline_stages import DELETIONS, ERASE
from sluice.privacy import anonymised
from sluice.record_states import DISCARDED, ERASED
from sluice.run_modes import REFRESH
from sluice.runs.status.books import PipelineBooks

_ERASING = (DELETIONS.name, ERASE.name)


@dataclass(frozen=True)
class DeliveryAccount:
    """The records of a source and of the sources that go into its table: as counted per delivery when they were read, and as they are now.

    rows, quarantined, suppressed, discarded: the counts. erased, erased_aside: how many of the first two were erased later. bronze, aside:
    the rows that bronze and its quarantine have, None if a file does not say. marked: anonymised rows of bronze; hidden: how many of them no
    erasure can have marked.
    off: by how much a table differs, by name. deliveries: those that differ, with the count and the actual rows.
    """

    source: str
    rows: int
    quarantined: int
    suppressed: int
    discarded: int
    erased: int
    erased_aside: int
    bronze: int | None
    aside: int | None
    marked: int = 0
    hidden: int = 0
    off: dict[str, int] = field(default_factory=dict)
    deliveries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def landed(self) -> int:
        """How many records came."""
        return self.rows + self.quarantined + self.suppressed + self.discarded

    @property
    def adds_up(self) -> bool:
        """Whether every table has the rows that it should have."""
        return not self.off and not self.hidden


def reconcile_deliveries(lake: PipelineLake) -> list[DeliveryAccount]:
    """An account for each existing bronze table."""
    books = PipelineBooks(lake.settings, lake.graph)
    counted = _read_counted_outcomes(books.records.outcome_ledger)
    own = [source for source in lake.graph.sources.values() if source.into is None]
    return [
        _reconcile_bronze_table(books, source, counted) for source in own if delta_log.is_delta_table(books.path(source.name))
    ]


def _reconcile_bronze_table(books: PipelineBooks, source: Source, counted: dict[int, dict[str, Any]]) -> DeliveryAccount:
    """The account of a bronze table, which has one quarantine for each source that feeds it."""
    feeding = [one.name for one in books.graph.feeding(source.name)]
    bronze = _compare_counted_rows(books, feeding, source.name, books.path(source.name), _select_counts(counted, feeding, "rows"))
    asides = [
        _compare_counted_rows(
            books, [name], name_quarantine(name), books.records.quarantine(name), _select_counts(counted, [name], "quarantined")
        )
        for name in feeding
    ]
    there = [aside.there for aside in asides]
    marked = anonymised.count_marked_rows(books.path(source.name))
    listed = log.read_table_state(books.records.suppression_list)
    return DeliveryAccount(
        source=source.name,
        rows=bronze.counted,
        quarantined=sum(aside.counted for aside in asides),
        suppressed=sum(_select_counts(counted, feeding, "suppressed").values()),
        discarded=sum(_select_counts(counted, feeding, "discarded").values()),
        erased=bronze.erased,
        erased_aside=sum(aside.erased for aside in asides),
        bronze=bronze.there,
        aside=None if None in there else sum(count or 0 for count in there),
        marked=marked,
        hidden=0 if listed is not None and listed.rows != 0 else marked,
        off={one.table: one.off for one in (bronze, *asides) if one.off},
        deliveries=[row for one in (bronze, *asides) for row in one.differing],
    )


@dataclass(frozen=True)
class _Compared:
    """One table: the counts, the erased rows, the actual rows, the difference, and the deliveries that differ."""

    table: str
    counted: int
    erased: int
    there: int | None
    off: int
    differing: list[dict[str, Any]]


def _compare_counted_rows(
    books: PipelineBooks, feeding: Sequence[str], table: str, path: str, counted: dict[int, int]
) -> _Compared:
    state = log.read_table_state(path)
    total, erased, there = sum(counted.values()), _sum_erased_rows(books, table, path), state.rows if state else 0
    off = _compute_row_difference(books, feeding, total, erased, there)
    return _Compared(table, total, erased, there, off, _find_differing_deliveries(table, path, counted) if off else [])


def _select_counts(counted: dict[int, dict[str, Any]], sources: Sequence[str], column: str) -> dict[int, int]:
    """One count by delivery, for the deliveries of these sources."""
    return {number: row.get(column) or 0 for number, row in counted.items() if row["source"] in sources}


def _read_counted_outcomes(path: str) -> dict[int, dict[str, Any]]:
    """The counts by delivery: of its last reading, or of a readmission since."""
    found: dict[int, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = delivery_tables.read_delivery_ledger_rows(path)
    for row in delivery_tables.sort_outcomes_by_recording(rows):
        if row["state"] not in (DISCARDED, ERASED) or row.get("discarded"):
            found[row["delivery"]] = row
    return found


def _compute_row_difference(books: PipelineBooks, feeding: Sequence[str], counted: int, erased: int, there: int | None) -> int:
    if there is None or there == counted - erased:
        return 0
    refreshed = any(row["flow"] in feeding and row["mode"] == REFRESH.name for row in books.runs)
    # A refresh of bronze leaves erased people out and counts them as suppressed, in the deliveries that it could read again.
    if refreshed and counted - erased <= there <= counted:
        return 0
    return there - (counted - erased)


def _sum_erased_rows(books: PipelineBooks, name: str, path: str) -> int:
    """The rows that erasures removed, by the run ledger; for a run that was killed before it wrote there, by the table's log."""
    recorded, committed = Counter[str](), Counter[str]()
    for row in books.runs:
        if row["flow"] == name and row["stage"] in _ERASING:
            # The stage `erase` removes files too, but a VACUUM removes no rows.
            most = row["rows_out"] or 0 if row["stage"] == ERASE.name else row["deleted"] or 0
            recorded[row["run"]] += min(row["deleted"] or 0, most)
    for commit in commit_history.read_commit_history(path) if delta_log.is_delta_table(path) else []:
        if commit["note"].get("flow") == name_erasure_flow(name):
            committed[str(commit["note"].get("run"))] += int(commit["metrics"].get("numTargetRowsDeleted", 0))
    return sum((recorded | committed).values())


def _find_differing_deliveries(name: str, path: str, counted: dict[int, int]) -> list[dict[str, Any]]:
    opened = find_table_snapshot(path)
    if opened is None:
        return [{"table": name, "delivery": number, "counted": count, "there": 0} for number, count in counted.items() if count]
    grouped = opened.query_rows("SELECT _delivery, count(*) AS rows FROM t GROUP BY _delivery").to_pylist()
    there = Counter({row["_delivery"]: row["rows"] for row in grouped})
    numbers = sorted(number for number in {*there, *counted} if there[number] != counted.get(number, 0))
    return [{"table": name, "delivery": n, "counted": counted.get(n, 0), "there": there[n]} for n in numbers]
