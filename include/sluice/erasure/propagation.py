"""Propagating deletions: whoever asked to be erased leaves every declared table that carries the subject, and gold follows.

The suppression list is extended first, so that nothing lets the person in again while the deletion goes on. Rows are deleted by a merge
on the subject's values in the table, found by their pseudonyms: a literal predicate would write the person into the table's history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from sluice.erasure import requests
from sluice.erasure.requests import ErasureRequest
from sluice.lake import commits, log, tables
from sluice.lake.commits import Transaction
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace, has_quarantine
from sluice.privacy import secrets, suppression
from sluice.privacy.pseudonyms import with_pseudonym

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PSEUDONYM = "_pseudonym"


def propagate(workspace: Workspace, follow: Callable[[], list[FlowReport]]) -> list[FlowReport]:
    """Carry out every request that is not done. follow: runs the layers above bronze, so that what reads a table hears of it.

    A killed propagation is simply run again: each step finds nothing left to do where it was done.
    """
    waiting = [request for request in requests.all_of(workspace.settings, workspace.pipeline) if request.done_at is None]
    if not waiting:
        return []
    suppress(workspace, waiting)
    reports = [
        report for name, path, column, domain in _places(workspace) for report in _delete(workspace, name, path, column, domain)
    ]
    reports += follow()
    for request in waiting:
        requests.done(workspace.settings, workspace.pipeline, request)
    return reports


def suppress(workspace: Workspace, waiting: Sequence[ErasureRequest]) -> None:
    """Put the requests' subjects on the suppression list, each once."""
    suppression.create(workspace)
    workspace.note("suppression")
    now = datetime.now(UTC)
    for request in waiting:
        rows = [(request.domain, hashed, request.request, now) for hashed in request.pseudonyms]
        listed = tables.read(workspace.session, workspace.suppression).select("domain", "pseudonym")
        fresh = workspace.session.createDataFrame(rows, suppression.SCHEMA).join(listed, ["domain", "pseudonym"], "left_anti")
        if not fresh.isEmpty():
            once = Transaction("suppression", request.request, "suppression", 0)
            commits.append(fresh.select("domain", "pseudonym", "request", "since"), workspace.suppression, once)


def _places(workspace: Workspace) -> list[tuple[str, str, str, str]]:
    """Name, path, subject column and domain of every table with rows of subjects. Views are not among them: they follow."""
    found = []
    for declared in workspace.graph:
        domain = workspace.graph.domain(declared)
        if domain is None or declared.subject is None:
            continue
        if workspace.graph.table_of(declared.name) == declared.name:
            found.append((declared.name, workspace.path(declared.name), declared.subject, domain))
        if has_quarantine(declared):
            found.append((f"{declared.name}_quarantine", workspace.quarantine(declared.name), "_subject", domain))
    return [place for place in found if log.exists(place[1])]


def _delete(workspace: Workspace, name: str, path: str, column: str, domain: str) -> list[FlowReport]:
    report = FlowReport(flow=name, layer="propagate_deletions", version_before=log.version(path))
    workspace.note(f"erasure_{name}")
    people = _people(workspace, path, column, domain).persist()
    gone = people.count()
    if gone:
        merging = DeltaTable.forPath(workspace.session, path).alias("t").merge(people.alias("s"), f"t.`{column}` <=> s.subject")
        merging.whenMatchedDelete().execute()
        report.deleted = int(log.commits(path, 1)[0]["metrics"].get("numTargetRowsDeleted", 0))
        report.rows_out = report.deleted
        report.notes.append(f"{gone} subjects erased")
    people.unpersist()
    report.version_after = log.version(path)
    report.seconds = round(time.monotonic() - report.started, 2)
    return [report]


def _people(workspace: Workspace, path: str, column: str, domain: str) -> DataFrame:
    """The subject's values in a table that are on the suppression list."""
    present = (
        tables.read(workspace.session, path).select(F.col(f"`{column}`").alias("subject")).where("subject IS NOT NULL").distinct()
    )
    key = secrets.key(workspace.settings, make=False)
    hashed = with_pseudonym(present, key, domain, F.col("subject"), _PSEUDONYM)
    listed = tables.read(workspace.session, workspace.suppression).where(F.col("domain") == domain)
    return hashed.join(listed.select(F.col("pseudonym").alias(_PSEUDONYM)), _PSEUDONYM, "left_semi").select("subject")
