"""Files that hold instants as INT96, as Spark writes them unless told otherwise, are written anew, once a table: every reader then understands them.

INT96 counts nanoseconds from a day. Spark reads every instant of it; other engines make nanoseconds since 1970 of it, which are of the
years 1677 to 2262 only: whatever lies outside becomes another instant, without a word.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from deltalake import DeltaTable

from sluice.declare.sql.schema import quote_identifier
from sluice.lake import log, tables
from sluice.lake.report import FlowReport
from sluice.lake.tables import INSTANTS, MICROSECONDS
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CHECKED = "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled"


def rewrite_int96_files(workspace: Workspace, name: str, path: str) -> FlowReport | None:
    """Write a table's files anew where one of them holds INT96; None where there was nothing to do, as after the first time.

    It is an OPTIMIZE: no row changes, and whoever follows the table sees no change. The table's property says that it is done; tables of
    now are made with it.
    """
    if log.read_table_properties(path).get(INSTANTS) == MICROSECONDS:
        return None
    report = FlowReport(flow=name, layer="optimize", version_before=log.latest_table_version(path))
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
