"""Rows of people who were erased, in a table as it was before: found by the columns that say whose the rows are."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare import subjects
from sluice.declare.tables import Dataset
from sluice.lake import tables
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def without(workspace: Workspace, dataset: Dataset[Any], rows: DataFrame, then: datetime | None = None) -> DataFrame:
    """The rows without those of anybody who is on the suppression list, in the same columns. then: of when they are, where not of now."""
    if suppression.is_empty(workspace):
        return rows
    names = rows.columns
    for column, domain in subjects.of(workspace.graph, dataset, names).columns:
        at = suppression.instant(rows, subjects.instant(dataset))
        rows = suppression.without_suppressed(workspace, rows, F.col(f"`{column}`"), domain, at, then)
    return rows.select(*(F.col(f"`{name}`") for name in names))


def untold(workspace: Workspace, dataset: Dataset[Any], columns: list[str]) -> dict[str, set[str]]:
    """Of the domains in which somebody was erased and that no column of the table tells of, the requests."""
    unknown = subjects.of(workspace.graph, dataset, columns).unknown
    if not unknown or suppression.is_empty(workspace):
        return {}
    named = {name: domain for domain in unknown for name in (domain, *workspace.graph.former(domain))}
    listed = tables.read(workspace.session, workspace.suppression).where(F.col("domain").isin(sorted(named)))
    found: dict[str, set[str]] = {}
    for row in listed.select("domain", "request").distinct().collect():
        found.setdefault(named[row.domain], set()).add(row.request)
    return found
