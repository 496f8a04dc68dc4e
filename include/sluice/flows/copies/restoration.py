"""Restores a table to an earlier version without people who were erased since: the difference is merged in one commit.

Delta's own RESTORE would bring back the old files with everybody in them, and readers could see them before they are removed again. Its
change feed also has only whole files. A merge of differences tells later flows exactly what differs, so that they follow.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.quoting import quote_column, quote_columns, quote_identifier
from sluice.errors import SluiceError
from sluice.flows.writing import targets
from sluice.flows.writing.difference import apply_merge_operations, persist_frame, plan_merge_operations
from sluice.lake import batch_sizes, log, table_creation, table_frames, versions
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.printable import count_noun, match_number
from sluice.privacy import suppression, suppression_list
from sluice.table_properties import CONSTRAINT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def restore_table_version(
    workspace: Workspace, dataset: Dataset[Any], version: int, report: FlowReport, bronze: str | None = None
) -> None:
    """Gives the table the rows of a version. The version must be readable and have the same columns.

    bronze: the path of the table that its rows were made from, if only rows that this still has may come back.

    Raises SluiceError if a constraint of today refuses the old rows.
    """
    session, path = workspace.session, workspace.path(dataset.name)
    workspace.mark_next_commits(f"restore_{dataset.name}")
    batch_sizes.choose_evaluation_settings(session, [path, path, *([bronze] if bronze else [])])
    now = table_frames.read_table(session, path)
    then = session.read.format("delta").option("versionAsOf", version).load(path).select(*_quoted_names(now.columns))
    kept = then if bronze is None else then.join(table_frames.read_table(session, bronze), [*PROVENANCE], "left_semi")
    wanted = drop_rows_of_erased(workspace, dataset, kept, versions.read_version_commit_time(path, version))
    _check_constraints_hold(workspace, dataset, wanted, version)
    report.suppressed = 0 if wanted is kept else kept.count() - wanted.count()
    with persist_frame(plan_merge_operations(wanted, now, dataset.keys)) as differing:
        if differing.isEmpty():
            report.notes.append(f"it is as it was at version {version}")
            return
        # The mark comes first: without it, the table would seem to hold everything that its flow has taken.
        versions.mark_restored_table(session, path, version, datetime.now(UTC))
        changes = apply_merge_operations(
            session, path, differing, dataset.keys, targets.choose_bounding_columns(dataset, now.schema)
        )
    report.count_merge(changes)
    report.notes.append(f"restored to version {version}")


def _check_constraints_hold(workspace: Workspace, dataset: Dataset[Any], wanted: DataFrame, version: int) -> None:
    """Checks the constraints beforehand: the table itself would refuse the rows too, but with a message that shows one."""
    path = workspace.path(dataset.name)
    found = {
        name.removeprefix(CONSTRAINT): text
        for name, text in log.read_table_properties(path).items()
        if name.startswith(CONSTRAINT)
    }
    found |= {
        f"{f.name} NOT NULL": f"{quote_identifier(f.name)} IS NOT NULL"
        for f in table_frames.read_table(workspace.session, path).schema
        if not f.nullable
    }
    bad = table_creation.count_failing_rows(wanted, found)
    if bad:
        name = max(bad, key=lambda one: bad[one])
        raise SluiceError(
            f"Table '{dataset.name}' has the constraint '{name}' now, "
            f"which {count_noun(bad[name], 'row')} of version {version} {match_number(bad[name], 'does', 'do')} not meet. "
            f"Nothing was changed. Choose a later version; sluice history {workspace.pipeline}.{dataset.name} lists them."
        )


def _quoted_names(names: list[str]) -> list[str]:
    return [quote_identifier(name) for name in names]


def drop_rows_of_erased(workspace: Workspace, dataset: Dataset[Any], rows: DataFrame, then: datetime | None = None) -> DataFrame:
    """Returns the rows without those of anybody on the suppression list, in the same columns. then: when they are from, if not from now.

    If the table keeps the facts of erased people, these rows are as they are now: without the person.
    """
    if suppression_list.is_suppression_list_empty(workspace):
        return rows
    names, kept = rows.columns, rows
    for column, domain in subjects.find_table_subjects(workspace.graph, dataset, names).columns:
        at = suppression.row_instant_column(kept, subjects.subject_time_expression(dataset))
        kept = suppression.exclude_suppressed_rows(workspace, kept, quote_column(column), domain, at, then)
    kept = suppression.empty_suppressed_cells(workspace, dataset, kept, then).select(*quote_columns(names))
    facts = dataset.on_erasure == "anonymise" and then is not None
    return kept.unionByName(_read_anonymised_facts(workspace, dataset, rows, kept)) if facts else kept


def _read_anonymised_facts(workspace: Workspace, dataset: Dataset[Any], rows: DataFrame, kept: DataFrame) -> DataFrame:
    """Returns today's anonymised rows for keys of which a row was left out. The old rows might tell more than is declared."""
    now = table_frames.read_table(workspace.session, workspace.path(dataset.name))
    if not set(rows.columns) <= set(now.columns):
        return kept.limit(0)
    keys, names = list(dataset.keys), quote_columns(rows.columns)
    nobodys = now.where(quote_column(str(dataset.subject)).isNull()).select(*names)
    return nobodys.join(rows.select(*keys), keys, "left_semi").join(kept.select(*keys), keys, "left_anti").select(*names)


def find_unreachable_erasures(workspace: Workspace, dataset: Dataset[Any], columns: list[str]) -> dict[str, set[str]]:
    """Returns the requests in domains in which somebody was erased, but which no column of the table belongs to."""
    unknown = subjects.find_table_subjects(workspace.graph, dataset, columns).unknown
    if not unknown or suppression_list.is_suppression_list_empty(workspace):
        return {}
    named = {name: domain for domain in unknown for name in (domain, *workspace.graph.former(domain))}
    listed = table_frames.read_table(workspace.session, workspace.suppression).where(F.col("domain").isin(sorted(named)))
    found: dict[str, set[str]] = {}
    for row in listed.select("domain", "request").distinct().collect():
        found.setdefault(named[row.domain], set()).add(row.request)
    return found
