"""How old a published table's data is, of tables that are made here without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake

from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs.status import timeliness
from sluice.settings import Settings


@table(reads="reports", keys="id")
def report(reports: Any) -> Any:
    """A report."""
    return reports.select("id")


def _declare_published_report() -> Graph:
    layers = ("pipelines.shop.bronze", __name__)
    pipeline = Pipeline(
        name="shop", description="x", owner="x", layers=layers, publishes=("report",), schedule="@daily", freshness="36 hours"
    )
    return build_declaration_graph(pipeline, [Source(name="reports", format="csv", path="reports", comment="x"), report])


def _measure(settings: Settings, graph: Graph, after: timedelta) -> timeliness.Freshness:
    (found,) = timeliness.measure_freshness(PipelineLake(settings, graph), datetime.now(UTC) + after)
    return found


def test_a_table_that_never_had_rows_is_late_once_it_is_older_than_its_freshness(settings: Settings) -> None:
    graph = _declare_published_report()
    later = timedelta(hours=37)
    absent = _measure(settings, graph, later)
    assert (absent.data_at, absent.age, absent.late) == (None, None, False), "there is no table"

    path = PipelineRecords(settings, "shop").table_path(graph.layer(graph["report"]), "report")
    rows = pa.table({"id": [1]})
    table = DeltaTable.create(path, Schema.from_arrow(rows.schema))
    empty = _measure(settings, graph, later)
    assert (empty.data_at, empty.late) == (None, True) and empty.age is not None and empty.age >= later - timedelta(minutes=1)
    assert not _measure(settings, graph, timedelta(hours=35)).late

    table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.create_checkpoint()
    Path(path, "_delta_log", f"{0:020d}.json").unlink()
    assert _measure(settings, graph, later).late, "the log shows no data since it begins"

    write_deltalake(path, rows, mode="append")
    filled = _measure(settings, graph, timedelta(hours=1))
    assert filled.data_at is not None and not filled.late
