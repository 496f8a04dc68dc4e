"""An instant is the same to every engine that reads a table, in files of now and, once OPTIMIZE has run, in those of before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.conftest import Lakehouse
from tests.few_rows import append_rows

from sluice.cli.tables.read import query_delta_table
from sluice.declare import F, Pipeline, Source, auto_cdc, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.lake import commit_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

INSTANTS = [
    "0001-01-01 00:00:00",
    "1600-02-29 12:34:56.789012",
    "1970-01-01 00:00:00",
    "2262-04-12 00:00:00",
    "9999-12-31 23:59:59.999999",
]
EXPECTED = {number: datetime.fromisoformat(text).replace(tzinfo=UTC) for number, text in enumerate(INSTANTS)}
OUTPUT = "spark.sql.parquet.outputTimestampType"

events = Source(name="events", schema="id INT, at TIMESTAMP, often ARRAY<TIMESTAMP>")


@table(reads="events", keys="id")
def event(events: DataFrame) -> DataFrame:
    """An event."""
    return events.select("id", "at", "often")


@materialized_view(reads="event", keys="id", recompute="keys")
def hour(event: DataFrame) -> DataFrame:
    """Its hour."""
    return event.select("id", F.date_trunc("hour", "at").alias("hour"))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    pipeline = Pipeline(name="clock", description="c", owner="t", layers=("clock.bronze", __name__, "clock.gold"))
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, [events, event, replace(hour, declared_in="clock.gold")]))


def read_everywhere(lake: Lakehouse, name: str) -> dict[str, dict[int, Any]]:
    """By engine, the instants by id."""
    path = lake.workspace().path(name)
    # As text: Python's own conversion of the year 1 has no time zone to go back to.
    rows = lake.spark.read.format("delta").load(path).selectExpr("id", "string(at)").collect()
    files = [uri.removeprefix("file://") for uri in DeltaTable(path).file_uris()]
    of_duckdb = duckdb.sql(f'SELECT id, epoch_us("at") FROM read_parquet({files})').fetchall()
    return {
        "spark": {row[0]: datetime.fromisoformat(row[1].rjust(19, "0")).replace(tzinfo=UTC) for row in rows},
        "sluice show": {row["id"]: row["at"] for row in query_delta_table(path, "SELECT id, at FROM t")},
        "delta-rs": {row["id"]: row["often"][0] for row in query_delta_table(path, "SELECT id, often FROM t")},
        "polars": {row["id"]: row["at"] for row in polars.read_delta(path).select("id", "at").to_dicts()},
        "duckdb": {number: EXPECTED[2] + micros * datetime.resolution for number, micros in of_duckdb},
    }


def kinds(lake: Lakehouse, name: str) -> set[str]:
    """How the files of a table hold their columns."""
    schemas = [
        pq.read_metadata(uri.removeprefix("file://")).schema for uri in DeltaTable(lake.workspace().path(name)).file_uris()
    ]
    return {schema.column(position).physical_type for schema in schemas for position in range(len(schema))}


def test_every_engine_reads_the_same_instants(lake: Lakehouse) -> None:
    lines = [f'{{"id": {number}, "at": "{text}", "often": ["{text}"]}}\n' for number, text in enumerate(INSTANTS)]
    lake.land("events/1.jsonl", "".join(lines))
    lake.run()
    assert "INT96" not in kinds(lake, "events") | kinds(lake, "event") | kinds(lake, "hour")
    for engine, found in read_everywhere(lake, "event").items():
        assert found == EXPECTED, engine
    before = lake.versions()
    lake.run("optimize")
    assert lake.versions() == before, "tables of now need no look"

    # A table as earlier versions of Sluice wrote it.
    path = lake.workspace().path("event")
    as_configured = lake.spark.conf.get(OUTPUT)
    lake.spark.conf.set(OUTPUT, "INT96")
    try:
        lake.spark.read.format("delta").load(path).write.format("delta").mode("overwrite").option("dataChange", "false").save(
            path
        )
    finally:
        lake.spark.conf.set(OUTPUT, as_configured)  # `unset` would leave Spark's default, which is INT96
    lake.spark.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('sluice.instants')")
    assert "INT96" in kinds(lake, "event")
    wrong = read_everywhere(lake, "event")
    assert wrong["spark"] == EXPECTED and wrong["sluice show"] != EXPECTED, "what this is about"
    reports = lake.run("optimize")
    assert any("INT96" in note for note in reports["event"].notes) and "INT96" not in kinds(lake, "event")
    for engine, found in read_everywhere(lake, "event").items():
        assert found == EXPECTED, engine

    versions = lake.versions()
    assert versions["event"] is not None and versions["hour"] == before["hour"]
    lake.run("optimize")
    assert lake.versions() == versions, "once"
    ddl = "id INT, at TIMESTAMP, often ARRAY<TIMESTAMP>, _delivery BIGINT, _row BIGINT"
    append_rows(path, ddl, [(7, datetime(2020, 1, 1, 10, 30, tzinfo=UTC), None, 2, 0)])
    reports = lake.run("gold")
    assert (reports["hour"].inserted, reports["hour"].updated, reports["hour"].deleted) == (1, 0, 0), "no row was changed by it"
    assert all(
        commit["note"].get("sluice") == 1
        for commit in commit_history.read_commit_history(path)
        if commit["operation"] == "WRITE" and commit["note"]
    )


@pytest.mark.thorough
def test_of_rows_that_differ_by_microseconds_the_order_of_arrival_does_not_choose(
    settings: Settings, spark: SparkSession
) -> None:
    """By the content, which decides between equal sequences: of a column, of one inside an array, and of changes.

    The content is hashed with the key: of eight keys some have the row that came first, and some the other one.
    """
    change = auto_cdc("change", reads="events", keys="id", sequence_by="seq")
    source = replace(events, schema="id INT, seq INT, at TIMESTAMP, often ARRAY<TIMESTAMP>")
    pipeline = Pipeline(name="clock", description="c", owner="t", layers=("clock.bronze", __name__))
    lake = Lakehouse(settings, spark, build_declaration_graph(pipeline, [source, event, change]))
    first, later = "2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678902Z"
    for number, at in enumerate((first, later)):
        plain = (f'{{"id": {id}, "seq": 1, "at": "{at}"}}\n' for id in range(8))
        inside = (f'{{"id": {id}, "seq": 1, "often": ["{at}"]}}\n' for id in range(8, 16))
        lake.land(f"events/{number}.jsonl", "".join((*plain, *inside)))
        lake.run()
    assert lake.run("verify") is not None
    both = {datetime.fromisoformat(one).replace(tzinfo=None) for one in (first, later)}
    for name in ("event", "change"):
        rows = lake.rows(name, "id", "at", "often")
        assert len(rows) == 16
        assert {at for id, at, _ in rows if id < 8} == both, name
        assert {often[0] for id, _, often in rows if id >= 8} == both, name
