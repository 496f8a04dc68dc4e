"""Erasure by age: what is older than its source keeps it leaves bronze, what was set aside of it, and every table that is made of it.

A journal says, before anything is deleted, which version of bronze was looked at and before which instant. So a run that was killed is brought
to its end by the next one: what had left bronze is found in that version, and the tables are folded again.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.ingest.source import Source
from sluice.erasure.steps.erasing import Follow, NotFollowed
from sluice.erasure.steps.rows import LAYER, merged
from sluice.flows.silver import refold
from sluice.lake import log, tables
from sluice.lake.report import FlowReport
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import age

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAME = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in PROVENANCE)


def expire(workspace: Workspace, follow: Follow, now: datetime | None = None) -> list[FlowReport]:
    """Take out what is too old, of every source that says how long it is kept. follow: runs the layers above bronze where anything left.

    now: UTC. Nothing to do is no report and no commit. Raises NotFollowed, with the reports of all, where flows failed that were to follow:
    the next run goes on from there.
    """
    reports: list[FlowReport] = []
    begun = []
    for source in workspace.graph.sources.values():
        before = age.oldest(source, now)
        if before is None or not log.exists(workspace.path(source.name)):
            continue
        reports += [one for one in (_aside(workspace, source.name, before), *_asides(workspace, source, before)) if one.deleted]
        found = _begun(workspace, source) or _begin(workspace, source, before)
        if found is not None:
            begun.append(source)
            reports += _carried_out(workspace, source, *found)
    if begun:
        try:
            reports += follow()
        except NotFollowed as failed:
            raise NotFollowed(reports + failed.reports, failed.errors) from None
    for source in begun:
        _journal(workspace, source).unlink(missing_ok=True)
    return reports


def _carried_out(workspace: Workspace, source: Source, version: int, before: datetime) -> list[FlowReport]:
    path = workspace.path(source.name)
    report = FlowReport(flow=source.name, layer=LAYER, version_before=log.version(path))
    old = _old(workspace, source, before, version).persist()
    try:
        workspace.note(f"erasure_{source.name}")
        report.deleted = report.rows_out = merged(workspace, path, old, _SAME)
        report.notes.append(f"{report.deleted} rows older than {source.keep_for}")
        _ended(report, path)
        return [report, *(_folded(workspace, table, old) for table in workspace.graph.tables if _reads(workspace, table, source))]
    finally:
        old.unpersist()


def _folded(workspace: Workspace, table: str, old: DataFrame) -> FlowReport:
    path = workspace.path(table)
    report = FlowReport(flow=table, layer=LAYER, version_before=log.version(path))
    refold.of_rows(workspace, workspace.graph.tables[table], old, report)
    _ended(report, path)
    return report


def _reads(workspace: Workspace, table: str, source: Source) -> bool:
    return workspace.graph.tables[table].reads[0] == source.name and log.exists(workspace.path(table))


def _old(workspace: Workspace, source: Source, before: datetime, version: int | None = None) -> DataFrame:
    bronze = tables.read(workspace.session, workspace.path(source.name), version)
    return bronze.where(age.too_old(source, bronze, before)).select(*PROVENANCE)


def _asides(workspace: Workspace, source: Source, before: datetime) -> list[FlowReport]:
    """What other sources set aside that go into the same table. What tables set aside goes with the rows of bronze."""
    return [_aside(workspace, one.name, before) for one in workspace.graph.feeding(source.name) if one is not source]


def _aside(workspace: Workspace, source: str, before: datetime) -> FlowReport:
    """What could not be read tells of no time: it goes by when it was set aside."""
    name, path = f"{source}_quarantine", workspace.quarantine(source)
    report = FlowReport(flow=name, layer=LAYER, version_before=log.version(path))
    if log.exists(path):
        old = tables.read(workspace.session, path).where(F.col("quarantined_at") < F.lit(before)).select(*PROVENANCE).distinct()
        if not old.isEmpty():
            workspace.note(f"erasure_{name}")
            report.deleted = report.rows_out = merged(workspace, path, old, _SAME)
    _ended(report, path)
    return report


def _ended(report: FlowReport, path: str) -> None:
    report.version_after = log.version(path)
    report.seconds = round(time.monotonic() - report.started, 2)


def _begin(workspace: Workspace, source: Source, before: datetime) -> tuple[int, datetime] | None:
    """Write down what is to go; None where nothing is."""
    if _old(workspace, source, before).isEmpty():
        return None
    version = log.version(workspace.path(source.name)) or 0
    file = _journal(workspace, source)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(json.dumps({"version": version, "before": before.isoformat()}))
    temporary.replace(file)
    return version, before


def _begun(workspace: Workspace, source: Source) -> tuple[int, datetime] | None:
    """What an earlier run began and did not bring to its end."""
    try:
        said = json.loads(_journal(workspace, source).read_text())
    except FileNotFoundError:
        return None
    return int(said["version"]), datetime.fromisoformat(said["before"]).astimezone(UTC)


def _journal(workspace: Workspace, source: Source) -> Path:
    return Path(workspace.places.bookkeeping("aging")) / f"{source.name}.json"
