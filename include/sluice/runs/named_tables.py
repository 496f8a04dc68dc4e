"""The tables that a run names: whether the run may name them, and which others it concerns with them. Needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.errors import UsageError
from sluice.run_modes import REFRESH, REPLAY

if TYPE_CHECKING:
    from sluice.declare.assembly.graph import Graph


def check_tables_of_mode(graph: Graph, mode: str, names: Sequence[str]) -> None:
    """Raises UsageError for a table that does not exist, or that a refresh must not make from scratch."""
    for name in names:
        declared = graph[name]
        if mode == REFRESH.name and not declared.may_refresh:
            raise UsageError(
                f"'{name}' is bronze, which holds records that the landing folder may have lost, so it is not made from scratch. Its source may "
                f"allow it: may_refresh=True."
            )


def check_tables_to_optimize(graph: Graph, names: Sequence[str]) -> None:
    """Raises UsageError for a table that does not exist, or whose rows lie in another, so that it has no files to lay out."""
    for name in names:
        if graph.table_of(graph[name].name) != name:
            raise UsageError(f"'{name}' has no table of its own: its rows are in '{graph.table_of(name)}'. Name that one.")


def find_concerned_tables(graph: Graph, mode: str, names: Sequence[str]) -> set[str]:
    """Returns the tables that a run concerns: in a refresh the named ones and all that read them, in a replay those and their inputs, else all."""
    if mode == REFRESH.name:
        anew = {*names, *(log for name in names for log in graph.kept_for(name))}
        return anew | {below for name in anew for below in graph.below(name)}
    if mode == REPLAY.name and names:
        made_from = {item.name for item in graph for name in names if name in graph.below(item.name)}
        return set(names) | made_from
    return {item.name for item in graph}
