"""A column that bronze has keeps its type: a refresh does not forget it, and a hint that comes too late is not passed over in silence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.ingest import schema_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze",))


def declared(settings: Settings, spark: SparkSession, *sources: Source) -> Lakehouse:
    return Lakehouse(settings, spark, build_declaration_graph(PIPELINE, sources))


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def logged(lake: Lakehouse) -> dict[str, str]:
    version = schema_log.read_latest_schema_version(lake.workspace().schemas("visits"))
    assert version is not None
    return {field.name: field.dataType.simpleString() for field in version.columns()}


def test_a_refresh_keeps_the_columns_of_rows_whose_file_is_gone(settings: Settings, spark: SparkSession) -> None:
    lake = declared(settings, spark, Source(name="visits", may_refresh=True))
    gone = lake.land("visits/1.json", lines({"id": 1, "note": "text", "at": {"a": 1, "b": "x"}}))
    lake.land("visits/2.json", lines({"id": 2, "at": {"a": 2}}))
    lake.run()
    gone.unlink()
    lake.run(mode="refresh", tables=["visits"])
    assert logged(lake) == {"id": "bigint", "note": "string", "at": "struct<a:bigint,b:string>"}
    lake.land("visits/3.json", lines({"id": 3, "note": 5, "at": {"b": 5}}))
    lake.run()
    assert [row[:3] for row in lake.rows("visits", "id", "note", "_rescued_data")] == [
        (1, "text", None),
        (2, None, None),
        (3, None, '{"note":5,"at":{"b":5}}'),
    ]


@pytest.mark.slow
def test_a_refresh_of_one_feed_keeps_the_columns_of_the_others(settings: Settings, spark: SparkSession) -> None:
    visits = Source(name="visits", may_refresh=True)
    lake = declared(settings, spark, visits, Source(name="north", may_refresh=True, into="visits"))
    lake.land("visits/1.json", lines({"id": 1, "note": "text"}))
    lake.land("north/1.json", lines({"id": 2, "door": 1}))
    lake.run()
    lake.run(mode="refresh", tables=["north"])
    assert logged(lake) == {"id": "bigint", "note": "string", "door": "bigint"}
    lake.land("north/2.json", lines({"id": 3, "note": 5}))
    lake.run()
    assert lake.rows("visits", "id", "note", "_rescued_data") == [
        (1, "text", None),
        (2, None, None),
        (3, None, '{"note":5}'),
    ]


@pytest.mark.slow
def test_a_column_of_a_removed_hint_keeps_its_type_and_a_late_hint_is_noted(settings: Settings, spark: SparkSession) -> None:
    lake = declared(settings, spark, Source(name="visits", may_refresh=True))
    lake.land("visits/1.json", lines({"id": 1, "code": 7}))
    lake.run()
    late = Source(name="visits", may_refresh=True, schema_hints="code STRING, zip STRING")
    lake = declared(settings, spark, late)
    lake.land("visits/2.json", lines({"id": 2, "zip": "01067"}))
    (note,) = (one for one in lake.run()["visits"].notes if "schema_hints" in one)
    assert "code string (bronze has bigint)" in note and "zip" not in note
    assert "sluice run shop --mode refresh --table visits" in note
    lake = declared(settings, spark, Source(name="visits", may_refresh=True))
    lake.land("visits/3.json", lines({"id": 3, "zip": 5}))
    lake.run()
    assert [row for row in lake.rows("visits", "id", "zip", "_rescued_data") if row[0] > 1] == [
        (2, "01067", None),
        (3, None, '{"zip":5}'),
    ]
    lake = declared(settings, spark, late)
    assert not any("schema_hints" in one for one in lake.run(mode="refresh", tables=["visits"])["visits"].notes)
    assert logged(lake)["code"] == "string"
