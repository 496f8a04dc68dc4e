"""What one flow did in one run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sluice.lake import log


@dataclass
class FlowReport:
    """Counts of one flow in one run. rows_in: bronze records read or source rows folded; rows_out: rows written or taken out.

    rules: by expectation, how many rows did not meet it; null_rules: for how many of them it was NULL. rules_version: of the rules by
    which rows were judged; None where none were. table_rules: by expectation on the whole table, what was found (see `found`).

    recomputed: of a view, how much of it was made again and why, as "keys: 12 of 80 rows" or "full: small table"; None: nothing was.
    Of a stateful flow: late, the rows that came after the watermark; unfollowed, changes of inputs other than appends, which it cannot
    follow; state_rows and state_bytes, what it keeps of open windows.
    """

    flow: str
    layer: str
    version_before: int | None = None
    version_after: int | None = None
    batches: int = 0
    deliveries: int = 0
    rows_in: int = 0
    rows_out: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    quarantined: int = 0
    dropped: int = 0
    suppressed: int = 0
    rescued: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    null_rules: Counter[str] = field(default_factory=Counter)
    rules_version: str | None = None
    table_rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    quarantine_reasons: Counter[str] = field(default_factory=Counter)
    recomputed: str | None = None
    late: int = 0
    unfollowed: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @property
    def committed(self) -> bool:
        """Whether the table has a new version."""
        return self.version_before != self.version_after

    def changed(self, inserted: int, updated: int, deleted: int) -> None:
        """Count what a merge did."""
        self.inserted += inserted
        self.updated += updated
        self.deleted += deleted
        self.rows_out += inserted + updated + deleted

    def replaced(self, rows: int) -> None:
        """Count a table that was replaced as a whole."""
        self.inserted += rows
        self.rows_out += rows
        self.notes.append("replaced, with other columns")


@contextmanager
def report_table_change(flow: str, layer: str, path: str) -> Iterator[FlowReport]:
    """A report of what the block does to one table: the block counts; the table's versions and the time are noted here."""
    report = FlowReport(flow=flow, layer=layer, version_before=log.latest_table_version(path))
    yield report
    report.version_after = log.latest_table_version(path)
    report.seconds = round(time.monotonic() - report.started, 2)
