"""What a tour prints: a line for each task as it ends, then the runs, the tables, and how they compare with what the maker expects."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sluice.lake.flow_report import is_decided
from sluice.pipeline_stages import OPTIMIZE, VERIFY, stages_after_layers

Row: TypeAlias = Mapping[str, object]
Numbers: TypeAlias = tuple[float, ...]


@dataclass
class TourRun:
    """The result of one run: the reports of its jobs and the seconds of its tasks, by stage."""

    title: str
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def layers(self) -> list[str]:
        """The layers that have a report."""
        after = [stage.name for stage in stages_after_layers()]
        return [stage for stage in self.reports if stage not in after]

    def total(self, key: str, *stages: str) -> int:
        """The sum of a number over the flows of these stages."""
        return sum(flow.get(key) or 0 for flow in self._flows(*stages))

    def reasons(self) -> Counter[str]:
        """Quarantined rows by reason."""
        found: Counter[str] = Counter()
        for flow in self._flows(*self.layers):
            found.update(flow.get("quarantine_reasons") or {})
        return found

    def rules(self, of: str = "rules") -> Counter[tuple[str, str]]:
        """Rows that did not meet a rule, by table and rule. of: "null_rules": those of them for which it was NULL."""
        found: Counter[tuple[str, str]] = Counter()
        for flow in self._flows(*self.layers):
            found.update({(flow["flow"], rule): rows for rule, rows in (flow.get(of) or {}).items()})
        return found

    def not_met(self) -> list[str]:
        """The tables that did not meet an expectation on the whole table, and why."""
        rules = [(flow["flow"], rule) for flow in self._flows(*self.layers) for rule in (flow.get("table_rules") or {}).items()]
        return [f"{table} does not meet {name}: {found['text']}" for table, (name, found) in rules if found["met"] is False]

    def changed(self, *stages: str) -> list[str]:
        """The flows of these stages that committed something."""
        return [flow["flow"] for flow in self._flows(*stages) if flow.get("version_before") != flow.get("version_after")]

    def compared(self) -> list[dict[str, Any]]:
        """The tables that were compared with their recompute: the name as `flow`, the rows as `rows_in`, the verdict as `note`."""
        return self._flows(VERIFY.name)

    def line(self, stage: str) -> str:
        """What a stage did, in a line."""
        counts = {
            "deliveries": self.total("deliveries", stage),
            "rows": self.total("rows_out", stage),
            "quarantined": self.total("quarantined", stage),
        }
        told = ", ".join(f"{number:,} {word}" for word, number in counts.items() if number)
        changed = f"new versions of {', '.join(self.changed(stage))}" if self.changed(stage) else "nothing to do"
        if stage == VERIFY.name:
            told, changed = "", self._told_of_recomputes()
        return f"  {stage:<20}{self.seconds[stage]:>6.1f} s   {told or changed}"

    def _told_of_recomputes(self) -> str:
        notes = [f"{flow['flow']}: {flow.get('note') or ''}" for flow in self.compared()]
        return notes[0] if len(notes) == 1 else f"{len(notes)} tables compared with their recompute"

    def _flows(self, *stages: str) -> list[dict[str, Any]]:
        return [flow for stage in stages for flow in self.reports.get(stage, {}).get("flows", [])]


def print_tour_runs(console: Console, runs: list[TourRun]) -> None:
    """Print what each run did, how long its tasks took, and why rows were quarantined."""
    _print_heading(console, "What each run did")
    table = _make_table("run", "deliveries", "rows", "quarantined", "seconds", text_columns=1)
    for run in runs:
        table.add_row(
            run.title,
            f"{run.total('deliveries', *run.layers[:1]):,}",
            f"{run.total('rows_out', *run.layers[:1]):,}",
            f"{run.total('quarantined', *run.layers):,}",
            f"{sum(run.seconds.values()):.0f}",
        )
    console.print(table)
    reasons: Counter[str] = sum((run.reasons() for run in runs), Counter())
    for reason, rows in reasons.most_common():
        console.print(f"  quarantined: {rows:,} x {reason}", highlight=False)
    _print_heading(console, "Seconds a task")
    stages = list(dict.fromkeys(stage for run in runs for stage in run.seconds))
    table = _make_table("run", *stages, text_columns=1)
    for run in runs:
        table.add_row(run.title, *(f"{run.seconds[stage]:.1f}" for stage in stages))
    console.print(table)


def print_rule_failures(console: Console, runs: list[TourRun]) -> None:
    """Print how many rows did not meet a rule, by table, rule and run, and which tables as a whole do not meet one after the last run."""
    counts = [run.rules() for run in runs]
    nulls: Counter[tuple[str, str]] = sum((run.rules("null_rules") for run in runs), Counter())
    _print_heading(console, "Rows that did not meet a rule")
    table = _make_table("table", "rule", *(run.title for run in runs), "of all, NULL", text_columns=2)
    found = sorted(set().union(*counts))
    for name, rule in found:
        table.add_row(name, rule, *(f"{count[name, rule]:,}" for count in counts), f"{nulls[name, rule]:,}")
    console.print(table if found else "none")
    for line in runs[-1].not_met() if runs else []:
        console.print(f"  {line}", highlight=False, soft_wrap=True)


def print_quarantine_reasons(console: Console, reasons: list[dict[str, Any]]) -> None:
    """Print what is in quarantine now, by table and reason. reasons: rows of table, reason, rows and deliveries."""
    _print_heading(console, "In quarantine")
    table = _make_table("table", "reason", "rows", "deliveries", text_columns=2)
    for found in reasons:
        table.add_row(found["table"], found["reason"], f"{found['rows']:,}", f"{found['deliveries']:,}")
    console.print(table if reasons else "nothing")


def print_sample_rows(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows of a table, with NULL as an empty cell. title: what they are."""
    _print_heading(console, title)
    columns = list(rows[0]) if rows else []
    table = _make_table(*columns, text_columns=len(columns))
    for row in rows:
        table.add_row(*(Text("" if row[column] is None else str(row[column])) for column in columns))
    console.print(table if rows else "nothing")


def print_table_versions(console: Console, tables: list[dict[str, Any]]) -> None:
    """Print every table with its rows and its version."""
    _print_heading(console, "The tables")
    table = _make_table("layer", "table", "rows", "version", text_columns=2)
    for found in tables:
        rows = "unknown" if found["rows"] is None else f"{found['rows']:,}"
        table.add_row(found["layer"], found["table"], rows, str(found["version"]))
    console.print(table)


def print_rewritten_tables(console: Console, rows: Sequence[Row]) -> None:
    """Print which tables OPTIMIZE rewrote, why, and how many files a question of one value opens before and after. rows: of the run ledger."""
    _print_heading(console, "What OPTIMIZE rewrote")
    done = [row for row in rows if row["stage"] == OPTIMIZE.name and is_decided(str(row["decision"]))]
    for row in done:
        console.print(
            f"  {row['flow']}: {row['decision']}; {row['note'] or 'no note'}", highlight=False, soft_wrap=True, markup=False
        )
    if not done:
        console.print("none: no table has files that are worth it")


def print_truth_verdicts(console: Console, verdicts: list[TruthVerdict]) -> None:
    """Print how each table compares with the truth."""
    _print_heading(console, "Against the truth")
    table = _make_table("table", "rows expected", "rows found", "verdict", text_columns=1)
    for verdict in verdicts:
        words = "equal" if verdict.equal else f"{verdict.missing:,} missing, {verdict.surplus:,} too many"
        table.add_row(verdict.table, f"{verdict.expected:,}", f"{verdict.found:,}", words)
    console.print(table)


def print_recompute_verdicts(console: Console, compared: list[dict[str, Any]]) -> None:
    """Print how each table compares with what a batch over all of bronze gives."""
    _print_heading(console, "Against a full recompute from bronze")
    table = _make_table("table", "rows", "seconds", "verdict", text_columns=1)
    for found in compared:
        table.add_row(
            found["flow"], f"{found.get('rows_in') or 0:,}", f"{found.get('seconds') or 0:.1f}", Text(found.get("note") or "")
        )
    console.print(table if compared else "nothing was compared")


def _print_heading(console: Console, text: str) -> None:
    console.print(f"\n{text}", style="bold")


def _make_table(*columns: str, text_columns: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position < text_columns else "right", no_wrap=True)
    return table


@dataclass(frozen=True, kw_only=True)
class TruthVerdict:
    """How a table compares with the truth. Counts of rows; never a value, which may be personal."""

    table: str
    expected: int
    found: int
    missing: int
    surplus: int

    @property
    def equal(self) -> bool:
        """Whether every expected row is there and no other one."""
        return not self.missing and not self.surplus


def compare_with_truth(table: str, expected: Sequence[Row], found: Sequence[Row]) -> TruthVerdict:
    """Compare two multisets of rows on the columns that the expected rows have.

    Numbers with fractions are equal when close (1e-9, relative), instants when they are the same in UTC.
    """
    columns = sorted({column for row in expected for column in row})
    fractions = [column for column in columns if _has_value_of_type(float | Decimal, column, expected, found)]
    instants = {column for column in columns if _has_value_of_type(datetime, column, expected, found)}
    exact = [column for column in columns if column not in fractions]
    sides = [_group_rows(rows, exact, fractions, instants) for rows in (expected, found)]
    missing = surplus = 0
    for group in sides[0].keys() | sides[1].keys():
        lacking, left = _count_unmatched(sides[0].get(group, []), sides[1].get(group, []))
        missing, surplus = missing + lacking, surplus + left
    return TruthVerdict(table=table, expected=len(expected), found=len(found), missing=missing, surplus=surplus)


def _has_value_of_type(kind: object, column: str, *sides: Iterable[Row]) -> bool:
    return any(isinstance(row.get(column), kind) for rows in sides for row in rows)  # type: ignore[arg-type]  # the rows are plain mappings of object


def _group_rows(
    rows: Sequence[Row], exact: list[str], fractions: list[str], instants: set[str]
) -> dict[tuple[object, ...], list[Numbers]]:
    groups: dict[tuple[object, ...], list[Numbers]] = defaultdict(list)
    for row in rows:
        values = [_comparable_value(row.get(column), instant=column in instants) for column in exact]
        absent = [row.get(column) is None for column in fractions]
        numbers = tuple(float(str(row[column])) if row.get(column) is not None else 0.0 for column in fractions)
        groups[*values, *absent].append(numbers)
    return groups


def _comparable_value(value: object, *, instant: bool) -> object:
    if instant and isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple | dict):
        return repr(value)
    return value


def _count_unmatched(expected: list[Numbers], found: list[Numbers]) -> tuple[int, int]:
    """How many rows of each side have no close partner on the other. Walks both in order."""
    left, right = sorted(expected), sorted(found)
    i = j = matched = 0
    while i < len(left) and j < len(right):
        if all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(left[i], right[j], strict=True)):
            matched, i, j = matched + 1, i + 1, j + 1
        elif left[i] < right[j]:
            i += 1
        else:
            j += 1
    return len(left) - matched, len(right) - matched
