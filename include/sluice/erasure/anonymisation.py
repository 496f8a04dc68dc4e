"""Cutting the link instead of deleting: what `on_erasure="anonymise"` keeps of somebody who is erased.

In bronze the person's rows lose their subject and everything personal; then the tables that keep the facts are folded again from them. So such a
table is what a refresh would give. NULL, and no token: rows of one person that could still be told from others' would be a pseudonym.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from sluice.declare.ingest.source import Source
from sluice.erasure.steps import places
from sluice.erasure.steps.erasing import Erasing
from sluice.erasure.steps.rows import LAYER
from sluice.flows.silver import refold
from sluice.lake import log, tables
from sluice.lake.report import FlowReport
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import anonymised, suppression

if TYPE_CHECKING:
    from pyspark.sql import Column

STEP = "anonymise"


def anonymise(erasing: Erasing) -> None:
    """Bronze of the sources whose facts a table keeps, then these tables."""
    workspace = erasing.workspace
    for source in workspace.graph.sources.values():
        kept = source.into is None and anonymised.of_source(workspace.graph, source) and log.exists(workspace.path(source.name))
        if kept and not erasing.is_done(STEP, source.name):
            report = _bronze(workspace, source)
            erasing.reports += [report, *_tables(workspace, source)]
            erasing.done(STEP, source.name, rows=report.updated)


def _bronze(workspace: Workspace, source: Source) -> FlowReport:
    path = workspace.path(source.name)
    report = FlowReport(flow=source.name, layer=LAYER, version_before=log.version(path))
    workspace.note(f"erasure_{source.name}")
    columns = log.columns(path)
    if anonymised.MARK not in columns:
        workspace.session.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (`{anonymised.MARK}` BOOLEAN)")
    subject, bronze = places.subject_in_bronze(source, workspace), tables.read(workspace.session, path)
    told = bronze.withColumn("_whose", F.expr(subject)).where(F.col("_whose").isNotNull())
    at = suppression.instant(told, source.subject_at)
    theirs = suppression.only_suppressed(workspace, told, F.col("_whose"), source.domain, at).select(*PROVENANCE).persist()
    try:
        report.updated = report.rows_out = theirs.count()
        if report.updated:
            hidden = {name.lower() for name in anonymised.hidden(workspace.graph, source)}
            changed: dict[str, str | Column] = {f"`{name}`": "NULL" for name in columns if name.lower() in hidden}
            changed[f"`{anonymised.MARK}`"] = "true"
            same = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in PROVENANCE)
            merging = DeltaTable.forPath(workspace.session, path).alias("t").merge(theirs.alias("s"), same)
            merging.whenMatchedUpdate(set=changed).execute()
    finally:
        theirs.unpersist()
    report.notes.append(f"{report.updated} rows kept without the person")
    report.version_after = log.version(path)
    report.seconds = round(time.monotonic() - report.started, 2)
    return report


def _tables(workspace: Workspace, source: Source) -> list[FlowReport]:
    """Fold again what marked rows of bronze gave; also those of before, since a killed erasure does not know how far it came."""
    reports = []
    for table in workspace.graph.tables.values():
        path = workspace.path(table.name)
        if table.reads[0] == source.name and table.on_erasure == "anonymise" and log.exists(path):
            report = FlowReport(flow=table.name, layer=LAYER, version_before=log.version(path))
            origin = tables.read(workspace.session, workspace.path(source.name)).where(anonymised.MARK).select(*PROVENANCE)
            refold.of_rows(workspace, table, origin, report)
            report.version_after = log.version(path)
            report.seconds = round(time.monotonic() - report.started, 2)
            reports.append(report)
    return reports
