"""The shape with which a source's bronze table is created."""

from __future__ import annotations

from pyspark.sql.types import StructType

from sluice.declare.ingest.source import Source
from sluice.declare.layout import Layout
from sluice.lake import tables
from sluice.lake.tables import TableShape
from sluice.lake.workspace import Workspace

TECHNICAL = "_delivery BIGINT, _file STRING, _row BIGINT, _ingested_at TIMESTAMP, _rescued_data STRING"
_ALWAYS = ("_delivery", "_ingested_at")
"""Columns come and go with deliveries, and any of them may be personal, so bronze has statistics only for the delivery, and as declared."""


def bronze_table_shape(workspace: Workspace, source: Source) -> TableShape:
    """Returns the shape with which a source's bronze table is created. Sources that share a table have the one of the source it is named after."""
    of = workspace.graph.sources[source.table]
    layout = of.layout or Layout()
    declared = tables.parse_ddl_schema(source.ddl) if source.ddl else StructType()
    return TableShape(
        schema=StructType([*declared.fields, *tables.parse_ddl_schema(TECHNICAL).fields]),
        comment=of.comment,
        statistics=(*_ALWAYS, *layout.statistics_columns),
        statistics_declared=bool(layout.statistics_columns),
        retain=layout.retain or workspace.graph.pipeline.retain,
        keep_log=layout.keep_log,
        change_feed=layout.change_feed,
        deletion_vectors=layout.deletion_vectors,
        file_bytes=layout.file_bytes,
    )
