"""OPTIMIZE, with ZORDER where it is declared: only where data came since the last time, and of partitioned tables only there.

Files that hold instants as INT96, as Spark writes them unless told otherwise, are written anew, once a table: every reader
then understands them. INT96 counts nanoseconds from a day. Spark reads every instant of it; other engines make nanoseconds
since 1970 of it, which are of the years 1677 to 2262 only: whatever lies outside becomes another instant, without a word.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from deltalake import DeltaTable

from sluice.declare.datasets.tables import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.sql.schema import quote_identifier
from sluice.lake import log, tables
from sluice.lake.report import FlowReport
from sluice.lake.tables import INSTANTS, MICROSECONDS
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import OPTIMIZE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_CHANGES_DATA = ("WRITE", "MERGE", "DELETE", "UPDATE", "STREAMING UPDATE", "CREATE TABLE AS SELECT", "RESTORE", "TRUNCATE")


def optimize_table(workspace: Workspace, declared: Source | Dataset[Any]) -> FlowReport:
    """Lay out one table's files. A table without new data since its last OPTIMIZE is left alone."""
    path = workspace.path(declared.name)
    report = FlowReport(flow=declared.name, layer=workspace.graph.layer(declared), version_before=log.latest_table_version(path))
    since = _find_last_optimize(path)
    if since is not None:
        workspace.note(OPTIMIZE.name)
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


_CHECKED = "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled"


def rewrite_int96_files(workspace: Workspace, name: str, path: str) -> FlowReport | None:
    """Write a table's files anew where one of them holds INT96; None where there was nothing to do, as after the first time.

    It is an OPTIMIZE: no row changes, and whoever follows the table sees no change. The table's property says that it is done; tables of
    now are made with it.
    """
    if log.read_table_properties(path).get(INSTANTS) == MICROSECONDS:
        return None
    report = FlowReport(flow=name, layer=OPTIMIZE.name, version_before=log.latest_table_version(path))
    workspace.note("instants")
    old = [file for file in _list_current_files(path) if _has_int96(file)]
    if old:
        _rewrite_all_files(workspace.session, path)
        report.notes.append(f"{len(old)} files held instants as INT96; all are written anew")
    workspace.session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{INSTANTS}' = '{MICROSECONDS}')")
    report.version_after = log.latest_table_version(path)
    report.seconds = round(time.monotonic() - report.started, 2)
    return report


def _rewrite_all_files(session: SparkSession, path: str) -> None:
    """ZORDER takes every file, also one that is alone or large enough. By which column does not matter here; it need have no statistics."""
    schema = tables.read_table(session, path).schema
    ordered = tables.choose_statistics_columns(schema, private=log.read_partition_columns(path))
    session.conf.set(_CHECKED, "false")
    try:
        session.sql(f"OPTIMIZE delta.`{path}` ZORDER BY ({quote_identifier(ordered[0])})").collect()
    finally:
        session.conf.unset(_CHECKED)


def _list_current_files(path: str) -> list[Path]:
    """The files of the latest version."""
    found = []
    for uri in DeltaTable(path).file_uris():
        file = Path(urlparse(uri).path if uri.startswith("file:") else uri)
        found.append(file if file.exists() else Path(unquote(str(file))))
    return found


def _has_int96(file: Path) -> bool:
    schema = pq.read_metadata(file).schema
    return any(schema.column(place).physical_type == "INT96" for place in range(len(schema)))
