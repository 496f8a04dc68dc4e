"""The modes of a run, the options that each allows, and the tables that a run concerns."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.declare.assembly.graph import Graph
from sluice.declare.interval import Interval
from sluice.errors import UsageError, nearest_name_hint
from sluice.pipeline_stages import find_stage_of_pipeline

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
