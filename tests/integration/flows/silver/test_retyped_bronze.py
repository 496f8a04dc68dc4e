"""Bronze's columns get wider types, and what is made from them is what a refresh would make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse, copied_lakehouse, settings_at
from tests.crash.test_commit_points import Crash, crash_at

from sluice.declare import (
    Pipeline,
    Source,
    auto_cdc,
    expect_or_quarantine,
    materialized_view,
    table,
    temporary_view,
)
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.locations import locate
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sluice.lake.flow_report import FlowReport
    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("shop.bronze", __name__))
SILVER = __name__.rsplit(".", 1)[-1]
KEYED = "SELECT concat('A', id) AS key, at, v FROM events"

EVENTS = Source(name="events", widen_types=True)
orders = table(
    name="orders",
    reads="events",
    keys="key",
    sequence_by="at",
    sql=KEYED,
    expectations=(expect_or_quarantine("not_odd", "v <> 'odd'"),),
)
others = table(name="others", reads="events", keys="v", sql="SELECT v, at FROM events")
changes = temporary_view(name="changes", reads="events", sql=KEYED)
history = auto_cdc("history", reads="changes", keys="key", sequence_by="at", stored_as_scd_type=2)
of_silver = materialized_view(
    name="of_silver", reads="orders", keys="key", sql="SELECT key, count(*) AS n FROM orders GROUP BY key"
)
of_bronze = materialized_view(
    name="of_bronze", reads="events", keys="key", sql=f"SELECT key, count(*) AS n FROM ({KEYED}) GROUP BY key"
)
MADE = (orders, others, changes, history, of_silver, of_bronze)

FIRST = ({"id": 1, "at": 1, "v": "old"}, {"id": 2, "at": 1, "v": "b"}, {"id": 3, "at": 1, "v": "odd"})
WIDER = ({"id": 2.5, "at": 1, "v": "x"}, {"id": 1, "at": 2, "v": "corrected"})
MORE = ({"id": 2, "at": 2, "v": "c"}, {"id": 1, "at": 3, "v": "d", "new": 1})


def shop(settings: Settings, spark: SparkSession, *made: Any) -> Lakehouse:
    return Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [EVENTS, *(made or MADE)]))


def land(lake: Lakehouse, *records: dict[str, Any]) -> None:
    lake.land(f"events/{lake.landed}.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def everything(lake: Lakehouse) -> dict[str, list[tuple[Any, ...]]]:
    """The keys of all tables, and the values of two."""
    names = {one.name: tuple(one.keys) for one in lake.graph.datasets.values()}
    return {name: lake.rows(name, *keys, *(() if name not in ("orders", "history") else ("v",))) for name, keys in names.items()}


def quarantined(lake: Lakehouse) -> list[str]:
    return [json.loads(made)["key"] for (made,) in _rows_of_quarantine(lake)]


def _rows_of_quarantine(lake: Lakehouse) -> list[tuple[Any, ...]]:
    frame = lake.spark.read.format("delta").load(lake.workspace().quarantine("orders"))
    return [tuple(row) for row in frame.select("made").collect()]


def notes(reports: dict[str, FlowReport]) -> dict[str, list[str]]:
    return {name: report.notes for name, report in reports.items()}


def test_what_reads_a_widened_column_is_folded_anew(settings: Settings, spark: SparkSession) -> None:
    lake = shop(settings, spark)
    land(lake, *FIRST)
    lake.run()
    assert quarantined(lake) == ["A3"]
    land(lake, *WIDER)
    said = notes(lake.run())
    why = "folded anew: column 'id' of 'events' was bigint and is double"
    assert said["orders"] == said["history_changes"] == [why]
    assert said["others"] == []  # it reads other columns
    found = everything(lake)
    assert found["orders"] == [("A1.0", "corrected"), ("A2.0", "b"), ("A2.5", "x")]
    assert found["history"] == [
        ("A1.0", 1, "old"),
        ("A1.0", 2, "corrected"),
        ("A2.0", 1, "b"),
        ("A2.5", 1, "x"),
        ("A3.0", 1, "odd"),
    ]
    assert quarantined(lake) == ["A3.0"]
    lake.run(mode="refresh", tables=tuple(lake.graph.datasets))
    assert everything(lake) == found
    assert quarantined(lake) == ["A3.0"]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """The lake of one table after its first run, to be copied."""
    lake = shop(settings_at(tmp_path_factory.mktemp("shop")), spark, orders)
    land(lake, *FIRST)
    lake.run()
    return lake


@pytest.mark.parametrize(
    ("function", "after"),
    [("record_read_columns", False), pytest.param("merge_fold_operations", True, marks=pytest.mark.thorough)],
)
def test_it_is_planned_and_outlasts_a_crash(
    first: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, after: bool
) -> None:
    lake = copied_lakehouse(first, tmp_path)
    land(lake, *WIDER)
    lake.run("bronze")
    assert _reasons_to_fold_anew(lake) == {"orders": "column 'id' of 'events' was bigint and is double"}
    crash_at(monkeypatch, "sluice.flows.silver.fold", function, after)
    with pytest.raises(Crash):
        lake.run(SILVER)
    assert [*_reasons_to_fold_anew(lake)] == ["orders"]
    assert lake.run(SILVER)["orders"].notes == ["folded anew: column 'id' of 'events' was bigint and is double"]
    assert _reasons_to_fold_anew(lake) == {}
    assert lake.rows("orders", "key", "v") == [("A1.0", "corrected"), ("A2.0", "b"), ("A2.5", "x")]


@pytest.mark.thorough
def test_a_lake_of_before_takes_the_types_of_today(first: Lakehouse, tmp_path: Path) -> None:
    lake = copied_lakehouse(first, tmp_path)
    file = locate(lake.workspace().checkpoints(lake.graph.flow_name(lake.graph.tables["orders"]))) / "flow.json"
    memory = json.loads(file.read_bytes())
    assert memory.pop("read_types")["columns"] == {"_delivery": "long", "_row": "long", "at": "long", "id": "long", "v": "string"}
    file.write_text(json.dumps(memory))
    reports = lake.run()
    assert reports["orders"].notes == [] and not reports["orders"].committed
    land(lake, *WIDER)
    assert "folded anew: column 'id' of 'events' was bigint and is double" in lake.run()["orders"].notes
    land(lake, *MORE)  # a column more is no reason
    reports = lake.run()
    assert all(not any("anew" in note for note in report.notes) for report in reports.values()), notes(reports)
    assert reports["orders"].deliveries == 1
    assert lake.rows("orders", "key", "v") == [("A1.0", "d"), ("A2.0", "c"), ("A2.5", "x")]


def _reasons_to_fold_anew(lake: Lakehouse) -> dict[str, str]:
    books = PipelineBooks(lake.settings, lake.graph)
    return {flow.table: flow.anew for flow in lag.measure_pipeline_lag(books) if flow.anew}
