"""What one flow did in one run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sluice.flow_counts import FlowCounts
from sluice.lake import commit_history, log

FOLDED_ANEW, REPLACED, RECOMPUTED_IN_FULL = "folded anew", "replaced, with other columns", "recomputed in full"
"""What notes in the run ledger say. `sluice.runs` finds these texts again, also in old rows, so they must not change."""


@dataclass(frozen=True)
class MergeCounts:
    """How many rows a merge inserted, updated and deleted.

    unplaced: how many it should have inserted but did not, because the table has their key in a row that was not compared.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unplaced: int = 0

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


@dataclass
class FlowReport(FlowCounts):
    """What one flow did in one run: its counts and findings.

    rules: by expectation, how many rows did not meet it. null_rules: for how many of them it was NULL. rules_version: the version of the rules
    that judged rows, or None. table_rules: by expectation on the whole table, what was found.

    recomputed: for a view, how much was made again and why, such as "keys: 12 of 80 rows" or "full: small table"; None if nothing was.
    written_by: what wrote the new versions: "Spark", "delta-rs" or "delta-rs, Spark"; None if there are none.
    verified_part: which part of the table was compared, such as "3/8"; None if nothing could be said.
    steps: the seconds of its steps. job_tags: how Spark knows its jobs (`sluice.step_times`). table_files: for a table with a new version, how
    many files were added and removed, with how many bytes, how many rows were copied, and how many files and bytes there are now.
    decision: for the stage that lays tables out, whether and why it did so or not. questions: what that bought: by column, how many files and
    bytes a query for one value opens by the log's statistics, before and after.
    spark: what Spark counted of its jobs (`sluice.lake.spark_counters`). stream: what Spark counted of the flow's streams
    (`sluice.flows.progress.stream_numbers`).
    """

    flow: str
    layer: str
    version_before: int | None = None
    version_after: int | None = None
    rules: Counter[str] = field(default_factory=Counter)
    null_rules: Counter[str] = field(default_factory=Counter)
    rules_version: str | None = None
    table_rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    quarantine_reasons: Counter[str] = field(default_factory=Counter)
    recomputed: str | None = None
    written_by: str | None = None
    decision: str | None = None
    verified_part: str | None = None
    steps: dict[str, float] = field(default_factory=dict)
    job_tags: Sequence[str] = ()
    table_files: dict[str, int] = field(default_factory=dict)
    spark: dict[str, float] = field(default_factory=dict)
    stream: dict[str, float] = field(default_factory=dict)
    questions: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @property
    def committed(self) -> bool:
        """Whether the table has a new version."""
        return self.version_before != self.version_after

    def note_new_versions(self, path: str) -> None:
        """Notes which version the flow's table has now, and what the versions since the flow began did."""
        self.version_after = log.latest_table_version(path)
        new = commit_history.summarize_new_versions(path, self.version_before)
        self.written_by = new.writers
        state = log.read_table_state(path) if new.writers else None
        if state is not None:
            self.table_files = {
                "added": new.files_added,
                "removed": new.files_removed,
                "rows_copied": new.rows_copied,
                "bytes_added": new.bytes_added,
                "files": state.files,
                "bytes": state.bytes,
            }

    def count_merge(self, changes: MergeCounts) -> None:
        """Counts what a merge did."""
        self.count_changes(changes.inserted, changes.updated, changes.deleted)

    def count_changes(self, inserted: int, updated: int, deleted: int) -> None:
        """Counts rows that were written or removed."""
        self.inserted += inserted
        self.updated += updated
        self.deleted += deleted
        self.rows_out += inserted + updated + deleted

    def count_replacement(self, rows: int) -> None:
        """Counts a table that was replaced as a whole."""
        self.inserted += rows
        self.rows_out += rows
        self.notes.append(REPLACED)


@contextmanager
def report_table_change(flow: str, layer: str, path: str) -> Iterator[FlowReport]:
    """Yields a report of what the block does to one table. The block counts; this notes the table's versions and the time."""
    report = FlowReport(flow=flow, layer=layer, version_before=log.latest_table_version(path))
    yield report
    report.note_new_versions(path)
    report.seconds = round(time.monotonic() - report.started, 2)


@dataclass(eq=False)  # not frozen: Python sets the traceback of an error that leaves a `with`
class FlowsFailed(Exception):
    """Some flows of a stage failed. Holds the reports of all. errors: by flow. report: of the stage, once it is recorded."""

    reports: list[FlowReport]
    errors: dict[str, BaseException]
    report: dict[str, Any] | None = None
