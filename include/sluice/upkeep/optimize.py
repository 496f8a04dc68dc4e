"""OPTIMIZE, with ZORDER where it is declared: only where data came since the last time, and of partitioned tables only there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sluice.declare.datasets.tables import Dataset
from sluice.declare.ingest.source import Source
from sluice.lake import log
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import Row

_CHANGES_DATA = ("WRITE", "MERGE", "DELETE", "UPDATE", "STREAMING UPDATE", "CREATE TABLE AS SELECT", "RESTORE", "TRUNCATE")


def optimize_table(workspace: Workspace, declared: Source | Dataset[Any]) -> FlowReport:
    """Lay out one table's files. A table without new data since its last OPTIMIZE is left alone."""
    path = workspace.path(declared.name)
    report = FlowReport(flow=declared.name, layer=workspace.graph.layer(declared), version_before=log.latest_table_version(path))
    since = _find_last_optimize(path)
    if since is not None:
        workspace.note("optimize")
        where = _changed_partitions_clause(declared, path, since)
        zorder = () if isinstance(declared, Source) else declared.zorder_by
        statement = f"OPTIMIZE delta.`{path}`{where}" + (f" ZORDER BY ({', '.join(f'`{c}`' for c in zorder)})" if zorder else "")
        metrics = workspace.session.sql(statement).select("metrics.numFilesAdded", "metrics.numFilesRemoved").first()
        report.notes.append(_describe_optimize_metrics(metrics, zorder))
    report.version_after = log.latest_table_version(path)
    report.seconds = round(time.monotonic() - report.started, 2)
    return report


def _find_last_optimize(path: str) -> int | None:
    """The version of the last OPTIMIZE, -1 without one; None where no data came since, or all of it is in one file."""
    state = log.read_table_state(path)
    if state is not None and state.files <= 1:
        return None
    new_data = False
    for commit in log.read_commit_history(path):
        if commit["operation"] == "OPTIMIZE":
            return int(commit["version"]) if new_data else None
        new_data = new_data or str(commit["operation"]).startswith(_CHANGES_DATA)
    return -1 if new_data else None


def _changed_partitions_clause(declared: Source | Dataset[Any], path: str, since: int) -> str:
    """A WHERE clause for the partitions with files written after a version; "" where all of the table is meant."""
    if isinstance(declared, Source) or not declared.partition_by or since < 0:
        return ""
    groups = [
        " AND ".join(_partition_condition(name, value) for name, value in group.items())
        for group in log.find_partitions_written_since(path, since)
    ]
    return f" WHERE {' OR '.join(f'({group})' for group in groups)}" if groups else ""


def _partition_condition(name: str, value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"`{name}` IS NULL" if value is None else f"`{name}` = '{text}'"


def _describe_optimize_metrics(metrics: Row | None, zorder: tuple[str, ...]) -> str:
    by = f" by {', '.join(zorder)}" if zorder else ""
    return f"{metrics[1] if metrics else 0} files > {metrics[0] if metrics else 0}{by}"
