"""A refresh: the new columns are there at once, everything below follows, and bronze is refreshed only if its source allows it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse, copied_lakehouse, settings_at

from sluice import delta_log
from sluice.declare import F, Pipeline, Source, expect_or_quarantine, materialized_view, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.errors import SluiceError, UsageError
from sluice.lake import log
from sluice.locations import locate, remove_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

PIPELINE = Pipeline(name="stock", description="Stock.", owner="tests", layers=("stock.bronze", __name__))
LAYERS = ("bronze", __name__.rsplit(".", 1)[-1])
counts = Source(
    name="counts", format="csv", path="counts", infer_types=False, redelivery="replace", comment="Counts.", may_refresh=True
)


def declared(source: Source, parts: Callable[[DataFrame], DataFrame], kind: str) -> Graph:
    @table(reads="counts", keys="item", zorder_by="item", partition_by="kind" if kind else ())
    @expect_or_quarantine("counted", "number IS NOT NULL")
    def item(counts: DataFrame) -> DataFrame:
        """What there is of an item."""
        return parts(counts)

    @materialized_view(reads="item", keys="kind")
    def by_kind(item: DataFrame) -> DataFrame:
        """What there is of a kind."""
        return item.groupBy(F.substring("item", 1, 1).alias("kind")).agg(F.sum("number").alias("number"))

    return build_declaration_graph(PIPELINE, [source, item, by_kind])


def old(counts: DataFrame) -> DataFrame:
    return counts.select("item", F.col("number").try_cast("int").alias("number"), F.lit("x").alias("mark"))


def new(counts: DataFrame) -> DataFrame:
    return counts.select("item", F.col("number").try_cast("double").alias("number"), F.substring("item", 1, 1).alias("kind"))


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    lake = Lakehouse(settings_at(tmp_path_factory.mktemp("first_run")), spark, declared(counts, old, ""))
    lake.land("counts/1.csv", "item,number\na1,1\na2,2\nb1,bad\n")
    lake.land("counts/2.csv", "item,number\nb2,4\n")
    lake.run(*LAYERS)
    return lake


@pytest.fixture
def lake(first_run: Lakehouse, tmp_path: Path) -> Lakehouse:
    return copied_lakehouse(first_run, tmp_path)


@pytest.mark.slow
def test_a_refresh_may_change_columns_types_and_partitions_in_one_commit(lake: Lakehouse) -> None:
    lake.graph = declared(counts, new, "kind")
    with pytest.raises(SluiceError, match=r"'number' is int, its transform now gives double.*--mode refresh --table item"):
        lake.run(*LAYERS)
    version = log.latest_table_version(lake.workspace().path("item"))
    reports = lake.run(*LAYERS, mode="refresh", tables=["item"])
    assert lake.rows("item", "item", "number", "kind") == [("a1", 1.0, "a"), ("a2", 2.0, "a"), ("b2", 4.0, "b")]
    assert "mark" not in lake.spark.read.format("delta").load(lake.workspace().path("item")).columns
    assert (
        log.latest_table_version(lake.workspace().path("item")) == (version or 0) + 2
    )  # the table, and the note of whose code made it
    assert log.read_partition_columns(lake.workspace().path("item")) == ["kind"]
    properties = log.read_table_properties(lake.workspace().path("item"))
    assert properties["delta.enableChangeDataFeed"] == "true" and "mark" not in properties["delta.dataSkippingStatsColumns"]
    assert lake.rows("by_kind") == [("a", 3.0), ("b", 4.0)]
    assert any("replaced" in note for note in reports["item"].notes)
    before = lake.versions()
    lake.run(*LAYERS)
    assert lake.versions() == before
    lake.land("counts/2.csv", "item,number\nb2,5\nb3,1\n")
    lake.run(*LAYERS)
    assert lake.rows("by_kind") == [("a", 3.0), ("b", 6.0)]


def test_bronze_is_read_again_as_its_source_is_declared_now(lake: Lakehouse) -> None:
    typed = replace(counts, schema="item STRING, number INT")
    (lake.settings.landing / "stock" / "counts" / "2.csv").unlink()
    lake.land("counts/3.csv", "item,number\nc1,7\n")
    lake.graph = declared(typed, old, "")
    reports = lake.run(*LAYERS, mode="refresh", tables=["counts"])
    assert "1 delivery read again, 1 kept" in reports["counts"].notes[0]
    bronze = lake.rows("counts", "item", "number", "_delivery", "_rescued_data")
    assert bronze == [
        ("a1", 1, 1, None),
        ("a2", 2, 1, None),
        ("b1", None, 1, '{"number":"bad"}'),
        ("b2", 4, 2, None),
        ("c1", 7, 3, None),
    ]
    assert [(row["delivery"], row["state"], row["rows"]) for row in lake.outcomes() if row["event"] == "delivered"] == [
        (1, "ingested", 3),
        (2, "ingested", 1),
        (3, "ingested", 1),
    ]
    assert lake.rows("item", "item", "number") == [("a1", 1), ("a2", 2), ("b2", 4), ("c1", 7)]
    assert all(isinstance(row["recorded_at"], datetime.datetime) for row in lake.outcomes())
    before = lake.versions()
    lake.run(*LAYERS)
    assert lake.versions() == before


@pytest.mark.thorough
def test_rows_whose_files_are_gone_get_a_declared_type_that_no_value_of_theirs_can_become(
    settings: Settings, spark: SparkSession
) -> None:
    def kept(schema: str) -> Graph:
        return declared(Source(name="counts", path="counts", comment="Counts.", may_refresh=True, schema=schema), old, "")

    lake = Lakehouse(settings, spark, kept("item STRING, number STRUCT<a: INT>"))
    first = lake.land("counts/1.jsonl", '{"item": "a1", "number": {"a": 1}}\n')
    lake.run("bronze")
    first.unlink()
    lake.land("counts/2.jsonl", '{"item": "b1", "number": "x"}\n')
    lake.graph = kept("item STRING, number STRING")
    with pytest.raises(SluiceError, match=r"'number' is struct<a:int> in bronze.*--mode refresh --table counts"):
        lake.run("bronze")
    report = lake.run("bronze", mode="refresh", tables=["counts"])["counts"]
    assert "of another type now: number; a value that does not fit is in _rescued_data" in report.notes
    assert lake.rows("counts", "item", "number", "_delivery", "_rescued_data") == [
        ("a1", None, 1, '{"number":{"a":1}}'),
        ("b1", "x", 2, None),
    ]


def test_a_bronze_table_that_is_gone_is_not_made_empty_in_silence(lake: Lakehouse) -> None:
    remove_folder(locate(lake.workspace().path("counts")))
    with pytest.raises(UsageError, match=r"2 deliveries.*--mode refresh --table counts"):
        lake.run("bronze")
    assert not delta_log.is_delta_table(lake.workspace().path("counts"))
    lake.run("bronze", mode="refresh", tables=["counts"])
    assert len(lake.rows("counts", "item")) == 4
