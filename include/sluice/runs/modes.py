"""What may be asked of a run: its mode with the tables and options that each allows, and its trigger, by which it looks once or again and again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.declare.interval import Interval
from sluice.errors import UsageError, nearest_name_hint
from sluice.pipeline_stages import find_stage_of_pipeline

if TYPE_CHECKING:
    from sluice.declare.assembly.graph import Graph

MODES = ("increment", "replay", "refresh")


def check_run_mode(graph: Graph, stage: str, mode: str, tables: Sequence[str], interval: Interval | None = None) -> None:
    """Raises UsageError for a stage, mode, interval or table that does not exist or that this mode does not allow."""
    find_stage_of_pipeline(graph.pipeline, stage)
    if mode not in MODES:
        raise UsageError(f"There is no mode '{mode}'.{nearest_name_hint(mode, MODES)}")
    if mode == "replay" and interval is None:
        raise UsageError("Mode 'replay' needs an interval: --from and --to name the days to replay.")
    if mode == "refresh" and not tables:
        raise UsageError("Mode 'refresh' needs --tables: the tables to make from scratch, with everything that reads them.")
    for name in tables:
        declared = graph[name]
        if mode == "refresh" and not declared.may_refresh:
            raise UsageError(
                f"'{name}' is bronze, which holds records that the landing folder may have lost, so it is not made from scratch. Its source may "
                f"allow it: may_refresh=True."
            )


def check_demanded_tables(graph: Graph, names: Sequence[str]) -> None:
    """Raises UsageError for a table that does not exist, or whose rows lie in another, so that it has no files to lay out."""
    for name in names:
        if graph.table_of(graph[name].name) != name:
            raise UsageError(f"'{name}' has no table of its own: its rows are in '{graph.table_of(name)}'. Name that one.")


def find_concerned_tables(graph: Graph, mode: str, tables: Sequence[str]) -> set[str]:
    """Returns the tables that a run concerns: in a refresh the named ones and all that read them, in a replay those and their inputs, else all."""
    if mode == "refresh":
        anew = {*tables, *(log for name in tables for log in graph.kept_for(name))}
        return anew | {below for name in anew for below in graph.below(name)}
    if mode == "replay" and tables:
        made_from = {item.name for item in graph for name in tables if name in graph.below(item.name)}
        return set(tables) | made_from
    return {item.name for item in graph}


SECONDS_BETWEEN_LOOKS = 10.0
"""The default of seconds between the looks of a process that is kept running."""

TRIGGERS = ("available-now", "once", "processing-time")
_NEVER = ("continuous", "real-time")
_UNITS = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_LEAST = 1.0


@dataclass(frozen=True)
class Trigger:
    """every: seconds from one look to the next; None: one look, and the run ends. note: what to say about it."""

    every: float | None = None
    note: str = ""


def parse_trigger(text: str | None = None, keep_running: bool = False) -> Trigger:
    """Returns the trigger that was asked for, in Sluice's words or Spark's. Raises UsageError, with the nearest name, for any other."""
    if text is None:
        return Trigger(SECONDS_BETWEEN_LOOKS if keep_running else None)
    name, _, value = (part.strip() for part in text.partition("="))
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|[_ ]", "-", name).lower()
    if name in _NEVER:
        raise UsageError(
            f"There is no trigger '{name}' here: Spark has it for sources and sinks that take record by record, and Delta is neither; nor "
            f"could rows be merged exactly once without batches. The nearest is --trigger processing-time={_LEAST:g}s."
        )
    if name not in TRIGGERS:
        raise UsageError(f"There is no trigger '{name}'.{nearest_name_hint(name, TRIGGERS)}")
    if name == "processing-time":
        return Trigger(_parse_trigger_seconds(value))
    if value:
        raise UsageError(f"The trigger '{name}' takes no value; to look again and again: --trigger processing-time={value}.")
    if name == "once" and keep_running:
        raise UsageError("The trigger 'once' and --keep-running contradict each other: leave one of them out.")
    note = (
        "The trigger 'once' is deprecated in Spark; 'available-now' is taken, which keeps to the limits of a batch."
        if name == "once"
        else ""
    )
    return Trigger(SECONDS_BETWEEN_LOOKS if keep_running else None, note)


def _parse_trigger_seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.lower())
    unit = found[2] if found and found[2] in _UNITS else found[2].removesuffix("s") if found else ""
    if found is None or unit not in _UNITS:
        raise UsageError(
            f"The trigger 'processing-time' takes how often to look, as in processing-time=10s or processing-time='5 minutes', not '{text[:40]}'."
        )
    seconds = float(found[1]) * _UNITS[unit]
    if seconds < _LEAST:
        raise UsageError(f"The trigger 'processing-time' takes {_LEAST:g}s at least: each look lists the landing folder.")
    return seconds
