"""The charts of `sluice report`: bars by run for the seconds of its stages and for counts, and small bars for a cell of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.cli.printing import format_instant
from sluice.declare.assembly.graph import Graph
from sluice.flow_counts import ALERT_COUNTS
from sluice.printable import format_size
from sluice.record_states import FAILED
from sluice.runs.run_ledger import Row, has_committed
from sluice.runs.status.run_times import RunTimes

_STAGES_HIGH, _STRIP_HIGH, _CELL_HIGH = 130, 34, 16
_LEFT, _APART, _BAR = 4, 22, 16
"""For bars by run: the left edge of the first bar, the distance between bars, and their width."""
_CELL_BARS, _CELL_APART = 24, 5
OTHER_COLOUR = "other"
"""The colour of stages that are no layer, as the page's style names it."""
COUNTS_APART = (*ALERT_COUNTS, "late")
"""Counts of rows that did not go into their table, or not in the usual way."""

RunValues = Sequence[float | None]
"""A number for each run; None if it is unknown."""


@dataclass(frozen=True)
class Bar:
    """x, y: the upper left corner. about: the text shown for the bar."""

    x: int
    y: int
    width: int
    height: int
    about: str


@dataclass(frozen=True)
class Strip:
    """A row of bars. total: their sum, or the last of them."""

    title: str
    total: str
    bars: tuple[Bar, ...]
    width: int
    height: int


def draw_stage_bars(runs: Sequence[RunTimes], colours: Mapping[str, str]) -> dict[str, Any]:
    """The seconds of each run, with its stages stacked."""
    most = max((run.seconds for run in runs), default=0.0)
    bars = []
    for position, run in enumerate(runs):
        top, parts = _STAGES_HIGH, []
        for stage in run.stages:
            height = int(_STAGES_HIGH * float(stage["seconds"]) / most) if most else 0
            top -= height
            parts.append({"colour": colours.get(stage["stage"], OTHER_COLOUR), "y": top, "height": height})
        stages = ", ".join(f"{stage['stage']} {stage['seconds']} s" for stage in run.stages)
        bars.append({
            "x": _LEFT + position * _APART,
            "parts": parts,
            "failed": any(stage["state"] == FAILED for stage in run.stages),
            "about": f"{_name_run(run)}: {run.seconds} s. {stages}",
        })
    return {"runs": bars, "most": most, "width": _width_of_bars(runs)}


def draw_run_strips(graph: Graph, rows: Sequence[Row], runs: Sequence[RunTimes]) -> list[Strip]:
    """The counts of each run, all its attempts and rounds: a strip for each count that is not always zero."""
    counted = group_counted_rows(rows)
    files, size = _measure_table_sizes(graph, rows, runs)
    found = [_draw_strip("CPU seconds", runs, [run.cpu_seconds for run in runs])]
    found.append(_draw_strip("rows written", runs, [_add_counts(counted, run, lambda row: row["rows_out"]) for run in runs]))
    found.append(_draw_strip("files of all tables", runs, files, summed=False))
    found.append(_draw_strip("size of all tables", runs, size, summed=False, shown=lambda number: format_size(int(number))))
    for name in COUNTS_APART:
        found.append(_draw_strip(f"rows {name}", runs, [_add_counts(counted, run, _column_counter(name)) for run in runs]))
    unmet = [_add_counts(counted, run, lambda row: sum(row["rules"].values())) for run in runs]
    found.append(_draw_strip("rows that did not meet a rule", runs, unmet))
    return [strip for strip in found if strip.bars]


def draw_cell_bars(values: Sequence[float]) -> Strip | None:
    """The latest of some values as small bars; None if all are zero."""
    latest = values[-_CELL_BARS:]
    heights = _scale_to_heights(latest, _CELL_HIGH)
    if not any(heights):
        return None
    bars = (
        Bar(position * _CELL_APART, _CELL_HIGH - height, _CELL_APART - 1, height, f"{value:,}")
        for position, (value, height) in enumerate(zip(latest, heights, strict=True))
    )
    return Strip("", "", tuple(bars), len(latest) * _CELL_APART, _CELL_HIGH)


def _draw_strip(
    title: str,
    runs: Sequence[RunTimes],
    values: RunValues,
    summed: bool = True,
    shown: Callable[[float], str] = lambda number: f"{number:,.0f}",
) -> Strip:
    """Without bars if all values are zero or unknown."""
    known = [value for value in values if value is not None]
    heights = _scale_to_heights([value or 0 for value in values], _STRIP_HIGH)
    bars = [
        Bar(_LEFT + position * _APART, _STRIP_HIGH - height, _BAR, height, f"{_name_run(run)}: {shown(value or 0)} {title}")
        for position, (run, value, height) in enumerate(zip(runs, values, heights, strict=True))
        if height
    ]
    total = (f"{shown(sum(known))} in all" if summed else f"{shown(known[-1])} now") if known else ""
    return Strip(title, total, tuple(bars), _width_of_bars(runs), _STRIP_HIGH)


def _scale_to_heights(values: Sequence[float], high: int) -> list[int]:
    """The height of a bar: at least one unit if the value is not zero, so that it can be seen."""
    most = max(values, default=0)
    return [max(1, int(high * value / most)) if value else 0 for value in values]


def _column_counter(name: str) -> Callable[[Row], float | None]:
    return lambda row: row[name]


def _add_counts(counted: Mapping[str, Sequence[Row]], run: RunTimes, count: Callable[[Row], float | None]) -> float:
    return sum(count(row) or 0 for row in counted.get(run.run, ()))


def group_counted_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """By run, the rows of the run ledger whose counts are those of the run. rows: of one flow, or of all.

    A run's attempts and the rounds of a process that is kept running add up. An attempt that failed before its first commit counts only
    as long as no other followed, which counts the same rows again.
    """
    found: dict[str, list[Row]] = {}
    tried: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        attempt = (row["run"], row["stage"], row["flow"])
        if (before := tried.pop(attempt, None)) is not None:
            found[row["run"]].remove(before)
        if not has_committed(row):
            tried[attempt] = row
        found.setdefault(row["run"], []).append(row)
    return found


def _measure_table_sizes(
    graph: Graph, rows: Sequence[Row], runs: Sequence[RunTimes]
) -> tuple[list[float | None], list[float | None]]:
    """The files and the bytes of all declared tables after each run, if the run recorded them."""
    now: dict[str, Mapping[str, int]] = {}
    after: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row["table_files"] and row["flow"] in graph.stored:
            now[graph.table_of(row["flow"])] = row["table_files"]
        after[row["run"]] = (_add_up(now, "files"), _add_up(now, "bytes"))
    return [after[run.run][0] or None for run in runs], [after[run.run][1] or None for run in runs]


def _add_up(tables: Mapping[str, Mapping[str, int]], name: str) -> int:
    return sum(table.get(name, 0) for table in tables.values())


def _width_of_bars(runs: Sequence[RunTimes]) -> int:
    return _LEFT + _APART * len(runs) + 6


def _name_run(run: RunTimes) -> str:
    return f"{run.run}, {format_instant(run.rows[0]['started_at'])}"


def trend_by_run(rows: Sequence[Row], count: Callable[[Row], float | None]) -> Iterator[float]:
    """A count of one table's rows of the run ledger, a number for each run in which the table was worked on."""
    for counted in group_counted_rows(rows).values():
        if timed := [row for row in counted if row["seconds"]]:
            yield sum(count(row) or 0 for row in timed)
