"""Chooses between affected keys and a full recompute, whichever is cheaper by the logs and by the counts at hand.

Following keys costs a few Spark jobs more than recomputing everything. Below some size these jobs take longer than the rows they save. If
most of a view is touched, asking for its rows key by key is a more expensive way to read all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.flows.gold.touched import ViewScope
from sluice.flows.writing.ranges import Limits
from sluice.lake import batch_sizes, commit_history, file_statistics, log, table_frames
from sluice.lake.flow_report import AS_DECLARED
from sluice.lake.log import TableState
from sluice.lake.workspace import Workspace

SMALL_ROWS = 200_000
"""If a view and its inputs have at most this many rows together, the view is always recomputed in full, which is as cheap.
Source: `benchmarks/bulk.py`, 4,000 records into 100,000 and 300,000, with this bound and without it."""
SMALL_BYTES = 64 * 1024 * 1024
"""The same bound for the bytes of their files."""
JOINS_WORTH = 10
"""Following a change through a join is worth its jobs only above so many times these bounds. Source: `benchmarks/tpch.py` at scale 0.1, 600,000
rows: three queries took 7, 8 and 14 s in full; followed through joins, 19, 25 and 25."""
FULL_RECOMPUTE_SHARE = 0.5
"""From this share of its rows on, a view is recomputed in full."""

_WITHOUT_CHANGES = ("OPTIMIZE", "SET TBLPROPERTIES", "VACUUM START", "VACUUM END")
"""Not all of `commit_history.WITHOUT_ROWS`: from an input with another column, a transform may make other rows of all that are there."""
_COUNTS = {
    "WRITE": ("numOutputRows",),
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    "UPDATE": ("numUpdatedRows",),
}

States = Mapping[str, TableState]


def read_table_states(workspace: Workspace, view: MaterializedView[Any]) -> States:
    """Returns what the logs say about the view and its inputs, by name."""
    found = {name: log.read_table_state(workspace.path(name)) for name in (view.name, *view.reads)}
    return {name: state for name, state in found.items() if state is not None}


def sum_row_counts(known: States) -> int | None:
    """Returns how many rows the tables have together, or None if the log of one does not say."""
    counts = [state.rows for state in known.values()]
    return None if None in counts else sum(count for count in counts if count)


def count_changed_rows(workspace: Workspace, spans: Mapping[str, tuple[int, int]]) -> int | None:
    """Returns how many rows of the change feed the inputs' commits made at most, by their own counts. None if a commit does not say.

    spans: by input, the version that is already followed and the last one to follow.
    """
    counts = []
    for name, (since, until) in spans.items():
        path = workspace.path(name)
        if until > since:
            commits = commit_history.read_commit_history(path, (log.latest_table_version(path) or 0) - since)
            counts += [_count_commit_changes(commit) for commit in commits if since < commit["version"] <= until]
    return None if None in counts else sum(count for count in counts if count)


def _count_commit_changes(commit: Mapping[str, Any]) -> int | None:
    """Returns how many rows of the change feed a commit made. An updated row has two images. Overwritten rows are not counted anywhere."""
    operation, metrics = str(commit["operation"]), commit["metrics"] or {}
    if operation in _WITHOUT_CHANGES:
        return 0
    if operation == "WRITE" and commit["parameters"].get("mode") != "Append":
        return None
    names = [name for name in _COUNTS.get(operation, ()) if name in metrics]
    return 2 * sum(int(metrics[name]) for name in names) if names else None


def is_small_row_count(*counts: int | None) -> bool:
    """Whether the rows are known to be so few that one task without a shuffle is fastest."""
    return _is_total_below(counts, batch_sizes.SMALL + 1)


def reason_for_full_recompute(view: MaterializedView[Any], known: States) -> str | None:
    """Returns the reason to recompute the view in full whatever has changed, or None. Reads nothing."""
    if view.recompute_rule.always_full:
        return AS_DECLARED
    return "small table" if view.recompute_rule.by_cost and _are_tables_small(known) else None


def reason_not_to_follow_joins(view: MaterializedView[Any], known: States) -> str | None:
    """Returns the reason to recompute the view in full if a change reaches it only through a join, or None. Reads nothing."""
    return "small for a join" if view.recompute_rule.by_cost and _are_tables_small(known, JOINS_WORTH) else None


def _are_tables_small(known: States, times: int = 1) -> bool:
    rows = sum_row_counts(known)
    return rows is not None and rows <= times * SMALL_ROWS and sum(state.bytes for state in known.values()) <= times * SMALL_BYTES


def is_most_of_view_touched(
    workspace: Workspace, view: MaterializedView[Any], known: States, scopes: Sequence[ViewScope]
) -> bool:
    """Whether most of the view's rows are in these scopes. Files out of range are not read."""
    rows = known[view.name].rows
    if not view.recompute_rule.by_cost or not rows:
        return False
    path, bound = workspace.path(view.name), FULL_RECOMPUTE_SHARE * rows
    # A bound by the changes themselves needs no look at the table, and a bound by its files needs no job.
    by_keys = [scope.at_most(view.keys) for scope in scopes]
    if _is_total_below(by_keys, bound) or _is_total_below(
        [count_rows_within_limits(path, scope.limits()) for scope in scopes], bound
    ):
        return False
    target = table_frames.read_table(workspace.session, path)
    return sum(scope.of_view(target).count() for scope in scopes) >= bound


def _is_total_below(counts: Sequence[int | None], bound: float) -> bool:
    return None not in counts and sum(count for count in counts if count) < bound


def count_rows_within_limits(path: str, limits: Limits) -> int | None:
    """Returns how many rows the files that can match the limits have, or None if the log does not say."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for column, ranges in limits.items():
        try:
            found[column] = [(_parse_literal(low), _parse_literal(high)) for low, high in ranges]
        except ValueError:
            continue
    return file_statistics.count_rows_in_matching_files(path, found)


def _parse_literal(literal: str) -> Any:
    """Returns the value of a literal of `ranges`. Raises ValueError if a file's statistics cannot be compared with it."""
    kind, _, text = literal.removesuffix("'").partition("'")
    if kind == "DATE":
        return date.fromisoformat(text)
    if kind == "TIMESTAMP":
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    return int(literal)
