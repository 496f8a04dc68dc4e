"""Rows of people who were erased, in a table as it was before: found by the columns that say whose the rows are."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.datasets.tables import Dataset
from sluice.lake import table_frames
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression, suppression_list

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def drop_rows_of_erased(workspace: Workspace, dataset: Dataset[Any], rows: DataFrame, then: datetime | None = None) -> DataFrame:
    """The rows without those of anybody who is on the suppression list, in the same columns. then: of when they are, where not of now.

    Where the table keeps the facts of whoever is erased, these rows are as they are now: without the person.
    """
    if suppression_list.is_suppression_list_empty(workspace):
        return rows
    names, kept = rows.columns, rows
    for column, domain in subjects.find_table_subjects(workspace.graph, dataset, names).columns:
        at = suppression.row_instant_column(kept, subjects.subject_time_expression(dataset))
        kept = suppression.exclude_suppressed_rows(workspace, kept, F.col(f"`{column}`"), domain, at, then)
    kept = suppression.empty_suppressed_cells(workspace, dataset, kept, then).select(*(F.col(f"`{name}`") for name in names))
    facts = dataset.on_erasure == "anonymise" and then is not None
    return kept.unionByName(_read_anonymised_facts(workspace, dataset, rows, kept)) if facts else kept


def _read_anonymised_facts(workspace: Workspace, dataset: Dataset[Any], rows: DataFrame, kept: DataFrame) -> DataFrame:
    """The rows of now that are nobody's any more, of keys of which a row was left out. Of then they might tell more than is declared."""
    now = table_frames.read_table(workspace.session, workspace.path(dataset.name))
    if not set(rows.columns) <= set(now.columns):
        return kept.limit(0)
    keys, names = list(dataset.keys), [F.col(f"`{name}`") for name in rows.columns]
    nobodys = now.where(F.col(f"`{dataset.subject}`").isNull()).select(*names)
    return nobodys.join(rows.select(*keys), keys, "left_semi").join(kept.select(*keys), keys, "left_anti").select(*names)


def find_unreachable_erasures(workspace: Workspace, dataset: Dataset[Any], columns: list[str]) -> dict[str, set[str]]:
    """Of the domains in which somebody was erased and that no column of the table tells of, the requests."""
    unknown = subjects.find_table_subjects(workspace.graph, dataset, columns).unknown
    if not unknown or suppression_list.is_suppression_list_empty(workspace):
        return {}
    named = {name: domain for domain in unknown for name in (domain, *workspace.graph.former(domain))}
    listed = table_frames.read_table(workspace.session, workspace.suppression).where(F.col("domain").isin(sorted(named)))
    found: dict[str, set[str]] = {}
    for row in listed.select("domain", "request").distinct().collect():
        found.setdefault(named[row.domain], set()).add(row.request)
    return found
