"""What a tour prints: a line a task while it goes, then runs, tables and the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from sluice.cli.truth import Verdict

LAYERS = ("bronze", "silver", "gold")
STAGES = (*LAYERS, "propagate_deletions", "optimize", "vacuum")


@dataclass
class Run:
    """What became of one run: the reports of its jobs and the seconds of its tasks, by stage."""

    title: str
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def total(self, key: str, *stages: str) -> int:
        """The sum of a number over the flows of these stages."""
        return sum(flow.get(key) or 0 for stage in stages for flow in self._flows(stage))

    def reasons(self) -> Counter[str]:
        """Quarantined rows by reason."""
        found: Counter[str] = Counter()
        for stage in LAYERS:
            for flow in self._flows(stage):
                found.update(flow.get("quarantine_reasons") or {})
        return found

    def changed(self, *stages: str) -> list[str]:
        """The flows of these stages that committed something."""
        flows = [flow for stage in stages for flow in self._flows(stage)]
        return [flow["flow"] for flow in flows if flow.get("version_before") != flow.get("version_after")]

    def line(self, stage: str) -> str:
        """What a stage did, in a line."""
        counts = {
            "deliveries": self.total("deliveries", stage),
            "rows": self.total("rows_out", stage),
            "quarantined": self.total("quarantined", stage),
        }
        told = ", ".join(f"{number:,} {word}" for word, number in counts.items() if number)
        changed = f"new versions of {', '.join(self.changed(stage))}" if self.changed(stage) else "nothing to do"
        return f"  {stage:<20}{self.seconds[stage]:>6.1f} s   {told or changed}"

    def _flows(self, stage: str) -> list[dict[str, Any]]:
        flows: list[dict[str, Any]] = self.reports.get(stage, {}).get("flows", [])
        return flows


def print_runs(console: Console, runs: list[Run]) -> None:
    """Print what each run did, how long its tasks took, and why rows were quarantined."""
    _heading(console, "What each run did")
    table = _table("run", "deliveries", "rows", "quarantined", "seconds", text_columns=1)
    for run in runs:
        table.add_row(
            run.title,
            f"{run.total('deliveries', 'bronze'):,}",
            f"{run.total('rows_out', 'bronze'):,}",
            f"{run.total('quarantined', *LAYERS):,}",
            f"{sum(run.seconds.values()):.0f}",
        )
    console.print(table)
    reasons: Counter[str] = sum((run.reasons() for run in runs), Counter())
    for reason, rows in reasons.most_common():
        console.print(f"  quarantined: {rows:,} x {reason}", highlight=False)
    _heading(console, "Seconds a task")
    table = _table("run", *STAGES, text_columns=1)
    for run in runs:
        table.add_row(run.title, *(f"{run.seconds[stage]:.1f}" for stage in STAGES))
    console.print(table)


def print_tables(console: Console, tables: list[dict[str, Any]]) -> None:
    """Print every table with its rows and its version."""
    _heading(console, "The tables")
    table = _table("layer", "table", "rows", "version", text_columns=2)
    for found in tables:
        rows = "unknown" if found["rows"] is None else f"{found['rows']:,}"
        table.add_row(found["layer"], found["table"], rows, str(found["version"]))
    console.print(table)


def print_verdicts(console: Console, verdicts: list[Verdict]) -> None:
    """Print how each table compares with the truth."""
    _heading(console, "Against the truth")
    table = _table("table", "rows expected", "rows found", "verdict", text_columns=1)
    for verdict in verdicts:
        words = "equal" if verdict.equal else f"{verdict.missing:,} missing, {verdict.surplus:,} too many"
        table.add_row(verdict.table, f"{verdict.expected:,}", f"{verdict.found:,}", words)
    console.print(table)


def _heading(console: Console, text: str) -> None:
    console.print(f"\n{text}", style="bold")


def _table(*columns: str, text_columns: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position < text_columns else "right", no_wrap=True)
    return table
